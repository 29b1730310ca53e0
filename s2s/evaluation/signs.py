"""Signs of a bad model, each with a measured value, a threshold and a remedy.

A percentage counts as a sign only if its whole confidence interval is above the threshold, because a few examples may
be due to chance.
"""

import difflib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from s2s.data.scripts import is_unspaced
from s2s.evaluation.classification import Classes, Probabilities, accuracy, calibration, confusion
from s2s.evaluation.inference import draws, estimate, ratios, wilson

WORST = 10
"""Number of worst answers to show."""
_SHOWN = 100


@dataclass(frozen=True)
class Finding:
    """The result of checking for one sign: `measured` and `threshold` in words, `value` with its 95 % interval."""

    name: str
    found: bool
    measured: str
    value: float
    low: float | None
    high: float | None
    threshold: str
    remedy: str

    def __str__(self) -> str:
        return f"  {self.name}: {self.measured}\n      threshold: {self.threshold}\n      → {self.remedy}"


@dataclass(frozen=True)
class WorstExample:
    """One of the worst answers."""

    source: str
    output: str
    reference: str
    score: str

    def __str__(self) -> str:
        read = [f"      read     {_shortened(self.source)}"] if self.source else []
        answered = f"      answered {_shortened(self.output)}"
        return "\n".join([f"  {self.score}", *read, answered, f"      right    {_shortened(self.reference)}"])


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


@dataclass(frozen=True)
class Diagnostics:
    """Signs that a task found in a model's answers."""

    summary: str = ""  # number of examples and quality of the answers
    signs: Sequence[Finding] = ()  # all checked signs, found or not
    worst: Sequence[WorstExample] = ()  # the worst answers, worst first
    # loss in nats per item of predicting class or token frequencies without reading the input; None if the task has
    # none
    chance_loss: float | None = None


def share_sign(name: str, successes: int, trials: int, of_what: str, most: float, reason: str, remedy: str) -> Finding:
    """Check whether a percentage is above a threshold with its whole interval.

    Example:
        >>> share_sign("cut off", 40, 50, "outputs ended at the limit", 2, "…", "…").found
        True
    """
    share = wilson(successes, trials)
    said = f"{share.value:.1f} % ({share.low:.1f} to {share.high:.1f}), {successes:,} of {trials:,} {of_what}"
    threshold = f"the interval is above {most:g} % ({reason})"
    return Finding(name, trials > 0 and share.low > most, said, share.value, share.low, share.high, threshold, remedy)


def plain_sign(name: str, found: bool, measured: str, value: float, threshold: str, remedy: str) -> Finding:
    """Create a finding whose value is not a percentage and has no interval."""
    return Finding(name, found, measured, value, None, None, threshold, remedy)


Numbers = Int[np.ndarray, " tokens"]


def unknown(tokens: Numbers, unknown_piece: int, seen: Collection[int] | None) -> Finding:
    """Check for tokens that are unknown or did not occur in training (`seen`, if recorded)."""
    strange = tokens == unknown_piece
    if seen is not None:
        strange |= ~np.isin(tokens, list(seen))
    what = "are unknown" if seen is None else "are unknown or did not occur in the training sources"
    return share_sign(
        "unknown tokens",
        int(strange.sum()),
        len(tokens),
        f"input tokens {what}",
        1,
        "their embeddings were not trained, and one in a text of a hundred affects its neighbours",
        "split texts as in training; set tokenizer.byte_fallback=true, tokenizer.kind=unigram or a smaller "
        "tokenizer.size; train on texts of the same kind (data.train)",
    )


def entropy(items: Numbers) -> float:
    """Estimate the entropy of item frequencies in nats (Miller & Madow 1955).

    Σ −p log p over relative frequencies p, plus the bias correction (kinds − 1) / 2n for n items.

    Example:
        >>> round(entropy(np.array([1, 1, 2, 2])), 3)
        0.818
    """
    counts = np.unique(items, return_counts=True)[1]
    shares = counts / max(1, len(items))
    return float(-(shares * np.log(shares)).sum() + (len(counts) - 1) / (2 * max(1, len(items))))


_COPIED = 0.8
_TIMES = 3
_LONGEST_PHRASE = 4
_RATIO = 0.1

Cut = Callable[[str], list[str]]


def text_signs(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], cut_off: int
) -> list[Finding]:
    """Check all signs of generated texts, of which `cut_off` ended at the length limit."""
    cut = unit_of(references)
    return [
        _copied(sources, outputs, references, cut),
        repeated(outputs, references, cut),
        *lengths(outputs, references, cut, cut_off),
    ]


def unit_of(references: Sequence[str]) -> Cut:
    """Return the function that splits texts into words, or into characters.

    Characters are used without spaces between words, or if most references are single words.
    """
    if is_unspaced(references):
        return list
    single = sum(len(text.split()) <= 1 for text in references)
    return list if single > len(references) / 2 else str.split


def _copied(sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], cut: Cut) -> Finding:
    """Check for outputs that nearly equal their source, unlike the reference."""

    def _are_alike(one: str, other: str) -> bool:
        return difflib.SequenceMatcher(None, cut(one), cut(other), autojunk=False).ratio() >= _COPIED

    rows = zip(sources, outputs, references, strict=True)
    there = [_are_alike(source, output) for source, output, reference in rows if not _are_alike(source, reference)]
    return share_sign(
        "copies the source",
        sum(there),
        len(there),
        f"outputs equal their source to {_COPIED:.0%} or more, where the reference does not",
        5,
        "names and numbers alone do not reach this",
        "look for untranslated pairs with `s2s data check` and drop them from data.train; train for longer "
        "(training.updates)",
    )


def says_again(words: Sequence[str]) -> bool:
    """Return True if a phrase of up to four words occurs three times in succession.

    Example:
        >>> says_again("he said he said he said".split()), says_again("he said that he said".split())
        (True, False)
    """
    for size in range(1, _LONGEST_PHRASE + 1):
        same = 0
        for place in range(size, len(words)):
            same = same + 1 if words[place] == words[place - size] else 0
            if same >= size * (_TIMES - 1):
                return True
    return False


def repeated(outputs: Sequence[str], references: Sequence[str], cut: Cut) -> Finding:
    """Check for outputs that repeat phrases, unlike the reference."""
    there = [says_again(cut(o)) for o, r in zip(outputs, references, strict=True) if not says_again(cut(r))]
    return share_sign(
        "repeats itself",
        sum(there),
        len(there),
        f"outputs repeat up to {_LONGEST_PHRASE} words {_TIMES} times in a row, where the reference does not",
        2,
        "people hardly ever write like this",
        "train for longer (training.updates); use a model with attention, and model.coverage=true if it has that key; "
        "a lower length limit only hides it",
    )


def lengths(
    outputs: Sequence[str], references: Sequence[str], cut: Cut, cut_off: int, limit: str = "decoding.max_ratio"
) -> list[Finding]:
    """Check the total output length, and outputs cut off at the length limit (recipe key `limit`)."""
    written, wanted = (np.array([len(cut(text)) for text in texts], dtype=float) for texts in (outputs, references))
    whole = max(1.0, float(wanted.sum()))
    ratio = float(written.sum()) / whole
    # A resample may contain no reference word; avoid a division by zero.
    found = estimate(ratio, ratios(written, np.maximum(wanted, 1e-9), draws(len(written))))
    low, high = found.low or 0.0, found.high or 0.0
    said = f"{ratio:.3f} ({low:.3f} to {high:.3f}) times the references' length, {written.sum():,.0f} of {whole:,.0f}"
    short = f"the interval is below {1 - _RATIO:g} (this alone lowers BLEU by 11 %)"
    long = f"the interval is above {1 + _RATIO:g} (every tenth word is superfluous)"
    more = f"raise decoding.length_penalty, lower decoding.beam; raise {limit} if many are cut off"
    less = "lower decoding.length_penalty; train for longer (training.updates), so that the end is learned"
    return [
        Finding("too short", high < 1 - _RATIO, said, ratio, low, high, short, more),
        Finding("too long", low > 1 + _RATIO, said, ratio, low, high, long, less),
        share_sign(
            "cut off",
            cut_off,
            len(outputs),
            "outputs ended at the length limit",
            2,
            "a trained model ends by itself",
            f"raise {limit} if references are longer; else train for longer",
        ),
    ]


_CONFUSED = 25.0
_UNSURE = 5.0
_SHOWN_CLASSES = 3


def class_signs(truth: Classes, probabilities: Probabilities, names: Sequence[str]) -> list[Finding]:
    """Check all signs of a classifier."""
    predicted = probabilities.argmax(axis=1)
    matrix = confusion(truth, predicted, len(names))
    return [
        _never_predicted(matrix, names),
        _one_class_only(truth, predicted, names),
        _confused(matrix, names),
        *_calibrated(truth, probabilities),
    ]


def _never_predicted(matrix: np.ndarray, names: Sequence[str]) -> Finding:
    """Find classes that are never predicted although they have enough examples."""
    support, said = matrix.sum(axis=1), matrix.sum(axis=0)
    missing = [n for n in range(len(names)) if support[n] and not said[n] and wilson(0, int(support[n])).high < 50]
    listed = ", ".join(f"{names[n]} ({support[n]:,} examples)" for n in missing[:_SHOWN_CLASSES])
    measured = f"{len(missing)} of {int((support > 0).sum())} classes{f': {listed}' if missing else ''}"
    threshold = "a class has so many examples that even a recall of 50 % would have shown"
    remedy = "give these classes more training examples, train for longer (training.updates)"
    return plain_sign("classes never predicted", bool(missing), measured, len(missing), threshold, remedy)


def _one_class_only(truth: Classes, predicted: Classes, names: Sequence[str]) -> Finding:
    """Check whether the accuracy exceeds that of always predicting the majority class."""
    counts = np.bincount(truth, minlength=len(names))
    majority, right = int(counts.argmax()), accuracy(truth, predicted)
    share = 100 * counts[majority] / max(1, len(truth))
    said = np.bincount(predicted, minlength=len(names))
    measured = (
        f"accuracy {right.value:.1f} % ({right.low:.1f} to {right.high:.1f}); {share:.1f} % by always answering "
        f"{names[majority]}; {wilson(int(said.max()), len(truth)).value:.1f} % of all answers are "
        f"{names[int(said.argmax())]}"
    )
    threshold = "the interval is not above the share of the most frequent class (the input may be ignored)"
    remedy = "lower training.learning_rate, train for longer (training.updates), and check the labels in data.train"
    found = bool(right.low <= share)
    return Finding("majority class only", found, measured, right.value, right.low, right.high, threshold, remedy)


def _confused(matrix: np.ndarray, names: Sequence[str]) -> Finding:
    """Find the pair of classes with the highest rate of confusion."""
    wrong = matrix - np.diag(matrix.diagonal())
    support = np.maximum(1, matrix.sum(axis=1))
    low = np.array([[wilson(int(c), int(n)).low for c in row] for row, n in zip(wrong, support, strict=True)])
    true, said = divmod(int(low.argmax()), len(names))
    return share_sign(
        "classes confused",
        int(wrong[true, said]),
        int(matrix[true].sum()),
        f"examples of {names[true]} are predicted as {names[said]}",
        _CONFUSED,
        "more than single errors",
        f"check examples of {names[true]} and {names[said]}: are the labels right, and does the input distinguish "
        "them (texts: batches.max_length; images: data.size)? More training examples of both help",
    )


def _calibrated(truth: Classes, probabilities: Probabilities) -> list[Finding]:
    """Check for over-confidence and under-confidence."""
    right = accuracy(truth, probabilities.argmax(axis=1))
    sure = 100 * float(probabilities.max(axis=1).mean()) if len(truth) else 0.0
    error = calibration(truth, probabilities).error
    gap, low, high = sure - right.value, sure - right.high, sure - right.low
    said = (
        f"mean confidence {sure:.1f} %, accuracy {right.value:.1f} %: {gap:+.1f} points ({low:+.1f} to {high:+.1f}); "
        f"calibration error {error:.1f} %"
    )
    why = f"the interval is beyond {_UNSURE:g} points (decisions by these probabilities are misled)"
    over, under = low > _UNSURE, high < -_UNSURE
    calmer = (
        "set training.label_smoothing=0.1, raise head.dropout, or stop earlier (validation.metric=loss, "
        "validation.patience)"
    )
    bolder = "lower training.label_smoothing and head.dropout, train for longer (training.updates)"
    return [
        Finding("too sure", over, said, gap, low, high, why, calmer),
        Finding("not sure enough", under, said, gap, low, high, why, bolder),
    ]
