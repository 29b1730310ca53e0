"""Signs in generated texts: copying, repetition and wrong length.

Texts are split into words, or into characters if the references are single words or have no spaces between words.
"""

import difflib
from collections.abc import Callable, Sequence

import numpy as np

from s2s.data.scripts import is_unspaced
from s2s.evaluation.inference import draws, estimate, ratios
from s2s.evaluation.signs import Finding, share_sign

_COPIED = 0.8
_TIMES = 3
_LONGEST_PHRASE = 4
_RATIO = 0.1

Cut = Callable[[str], list[str]]


def text_signs(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], cut_off: int
) -> list[Finding]:
    """Check all signs of generated texts.

    Args:
        sources: Source texts.
        outputs: Generated texts.
        references: Reference texts.
        cut_off: Number of outputs that ended at the length limit.

    Returns:
        One finding per sign, found or not.
    """
    cut = unit_of(references)
    return [
        copied(sources, outputs, references, cut),
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


def copied(sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], cut: Cut) -> Finding:
    """Check for outputs that nearly equal their source, unlike the reference.

    Args:
        sources: Source texts.
        outputs: Generated texts.
        references: Reference texts.
        cut: Function that splits a text into words or characters.
    """

    def _alike(one: str, other: str) -> bool:
        return difflib.SequenceMatcher(None, cut(one), cut(other), autojunk=False).ratio() >= _COPIED

    rows = zip(sources, outputs, references, strict=True)
    there = [_alike(source, output) for source, output, reference in rows if not _alike(source, reference)]
    return share_sign(
        "copies the source",
        sum(there),
        len(there),
        f"outputs are their source to {_COPIED:.0%} or more, where the reference is not",
        5,
        "a name or a number alone is no whole sentence",
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
    """Check for outputs that repeat phrases, unlike the reference.

    Args:
        outputs: Generated texts.
        references: Reference texts.
        cut: Function that splits a text into words or characters.
    """
    there = [says_again(cut(o)) for o, r in zip(outputs, references, strict=True) if not says_again(cut(r))]
    return share_sign(
        "repeats itself",
        sum(there),
        len(there),
        f"outputs say up to {_LONGEST_PHRASE} words {_TIMES} times in a row, where the reference does not",
        2,
        "people write so nearly never",
        "train for longer (training.updates); a model with attention, and model.coverage=true where it has that; "
        "a lower limit of lengths only hides it",
    )


def lengths(
    outputs: Sequence[str], references: Sequence[str], cut: Cut, cut_off: int, limit: str = "decoding.max_ratio"
) -> list[Finding]:
    """Check the total output length, and outputs cut off at the length limit.

    Args:
        outputs: Generated texts.
        references: Reference texts.
        cut: Function that splits a text.
        cut_off: Number of outputs that ended at the length limit.
        limit: Recipe key of the length limit.

    Returns:
        Findings for too short, too long and cut-off outputs.
    """
    written, wanted = (np.array([len(cut(text)) for text in texts], dtype=float) for texts in (outputs, references))
    whole = max(1.0, float(wanted.sum()))
    ratio = float(written.sum()) / whole
    # A resample may contain no reference word; avoid a division by zero.
    found = estimate(ratio, ratios(written, np.maximum(wanted, 1e-9), draws(len(written))))
    low, high = found.low or 0.0, found.high or 0.0
    said = f"{ratio:.3f} ({low:.3f} to {high:.3f}) times the references' length, {written.sum():,.0f} of {whole:,.0f}"
    short = f"where the interval is below {1 - _RATIO:g}: BLEU falls by 11 % for that alone"
    long = f"where the interval is above {1 + _RATIO:g}: every tenth word is one too many"
    more = f"raise decoding.length_penalty, lower decoding.beam; raise {limit} where many are cut off"
    less = "lower decoding.length_penalty; train for longer (training.updates), so that the end is learned"
    return [
        Finding("too short", high < 1 - _RATIO, said, ratio, low, high, short, more),
        Finding("too long", low > 1 + _RATIO, said, ratio, low, high, long, less),
        share_sign(
            "cut off",
            cut_off,
            len(outputs),
            "outputs ended at the longest length allowed",
            2,
            "a trained model ends by itself",
            f"raise {limit} where references are longer; else train for longer",
        ),
    ]
