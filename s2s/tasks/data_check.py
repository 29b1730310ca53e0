"""Data checks before training: of any examples, of texts and of labelled examples."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from s2s.data import data_check as look
from s2s.data.data_check import TokenReport, report_tokens
from s2s.data.sources import Corpus, Hashes, count_overlap, hashes, repeated
from s2s.data.tokenized import learned
from s2s.data.tokenizers import normalized
from s2s.errors import counted_items
from s2s.recipe.schema import PieceSettings

if TYPE_CHECKING:
    import datasets

# A class with this many times fewer examples than the largest class is easily never predicted.
IMBALANCE = 10
_LISTED = 8


@dataclass(frozen=True)
class Split:
    """Statistics of one split, and advice.

    Attributes:
        advice: Problems to fix, one sentence each.
    """

    rows: Mapping[str, int]
    advice: Sequence[str]


@dataclass(frozen=True)
class CorpusInspection:
    """Statistics of a corpus, and suspicious examples; `str` formats the report.

    Attributes:
        in_train: Number of examples that are also in the training set, by kind of example and by split; the task's
            examples come first.
        spots: Lines with random training examples, for inspection by eye.
        cut: Statistics of tokenization, if computed.
        own: Further advice of the task.
        note: Note of the corpus on what was left out.
    """

    splits: Mapping[str, Split]
    in_train: Mapping[str, Mapping[str, int]]
    spots: Sequence[str]
    cut: TokenReport | None = None
    own: Sequence[str] = ()
    note: str = ""

    def __str__(self) -> str:
        noun = next(iter(self.in_train))
        drawn = [f"train: {len(self.spots)} {noun} drawn at random", *self.spots]
        return look.findings([self._summary(), drawn], self._advice(noun))

    def _advice(self, noun: str) -> Iterator[str]:
        for found in self.splits.values():
            yield from found.advice
        for name, count in self.in_train[noun].items():
            if count:
                occur = "occurs" if count == 1 else "occur"
                examples = counted_items(count, f"{noun} of {name}")
                yield f"{examples} also {occur} in train: scores will be too optimistic"
        yield from self.cut.advice() if self.cut else ()
        yield from self.own
        yield from filter(None, [self.note])

    def _summary(self) -> list[str]:
        columns = [found.rows for found in self.splits.values()]
        rows: dict[str, list[float | None]] = {row: [column.get(row) for column in columns] for row in columns[0]}
        for noun, counts in self.in_train.items():
            rows[f"{noun} also in train"] = [counts.get(name) for name in self.splits]
        return look.table(self.splits, rows | (self.cut.rows() if self.cut else {}))


def some(
    rows: list[int], which: str, before: tuple[str, str] = ("", ""), after: tuple[str, str] = ("", "")
) -> list[str]:
    """Return a line with the number and rows of such examples.

    Args:
        rows: Rows of the examples, from 1.
        which: The examples, in the plural: `texts of train`.
        before: Words that follow the number, in the singular and in the plural.
        after: Words that follow the rows, likewise.

    Returns:
        One line; empty if there are no rows.

    Example:
        >>> some([3], "texts of train", (" is empty", " are empty"))
        ['1 text of train is empty (row 3)']
    """
    several = len(rows) != 1
    shown = f"{counted_items(len(rows), which)}{before[several]} ({look.some_rows(rows)}){after[several]}"
    return [shown] if rows else []


def _repetitions(name: str, repeated: Sequence[int], of: int, noun: str) -> list[str]:
    """Return advice on repeated training examples, which a model may memorize."""
    many = name == "train" and len(repeated) > look.MANY * of
    are = "is repeated: a model may learn it" if len(repeated) == 1 else "are repeated: a model may learn them"
    return [f"{counted_items(len(repeated), f'{noun} of train')} {are} by heart"] if many else []


def conversions(suspicious: Mapping[str, list[int]], which: str) -> list[str]:
    """Return advice on each kind of suspicious characters in texts.

    Args:
        suspicious: Rows (from 1) by kind of characters; see `look_through`.
        which: Description of the examples, such as `images of train`.

    Returns:
        One line for each kind.
    """
    meant = ": check whether a conversion went wrong"
    return [
        words
        for kind, rows in suspicious.items()
        for words in some(rows, which, (f" with a {kind}", f" with a {kind}"), (meant, meant))
    ]


def missing_classes(name: str, noun: str, counts: Mapping[str, int]) -> list[str]:
    """Return a line that names the classes without an example in a held-out split."""
    missing = [kind for kind, count in counts.items() if not count]
    if name == "train" or not missing:
        return []
    shown = ", ".join(missing[:_LISTED]) + (f" and {len(missing) - _LISTED:,} more" if missing[_LISTED:] else "")
    classes = f"class{'es' if missing[1:] else ''} {shown}"
    return [f"no {noun} of {name} are of {classes}: no {name} score measures {'them' if missing[1:] else 'it'}"]


def look_through(
    texts: Iterable[str], size: Callable[[str], int], unit: str, numbers: Iterable[int]
) -> tuple[dict[str, int], list[int], dict[str, list[int]]]:
    """Measure the sizes of texts, and find empty and suspicious ones; `numbers` are their rows in the file, from 1."""
    sizes, empty = [], []
    suspicious: dict[str, list[int]] = {}
    for row, text in zip(numbers, texts, strict=True):
        sizes.append(size(text))
        if not text.strip():
            empty.append(row)
        look.note_suspicious(suspicious, row, text)
    places = (unit, "  of the shortest", "  of the middle one", "  of the longest")
    spread = sum(sizes), min(sizes), int(np.median(sizes)), max(sizes)
    return dict(zip(places, spread, strict=True)), empty, suspicious


def inspect_texts(
    corpus: Corpus["datasets.Dataset"], seed: int, tokens: PieceSettings, noun: str, altered: str = ""
) -> CorpusInspection:
    """Check plain texts."""
    train = corpus.train
    texts = {name: part["text"][:] for name, part in corpus.splits().items()}
    numbers = {name: corpus.row_numbers(name, len(part)) for name, part in texts.items()}
    spots = [
        f"  {numbers['train'][row]:>9,}  {look.escape_invisible(train[row]['text'])}"
        for row in look.sample_rows(len(train), seed)
    ]
    splits = {name: _check_texts(name, part, numbers[name], tokens, noun, altered) for name, part in texts.items()}
    cut = report_tokens(texts, lambda: learned(texts["train"], tokens), None)
    return CorpusInspection(
        splits, {noun: count_overlap(corpus, lambda part: part["text"])}, spots, cut, note=corpus.note
    )


def _check_texts(
    name: str, texts: Sequence[str], numbers: Sequence[int], tokens: PieceSettings, noun: str, altered: str
) -> Split:
    which, cut = f"{noun} of {name}", (tokens.normalization, tokens.lowercase)
    sizes, empty, suspicious = look_through(texts, lambda text: len(text.encode()), "bytes", numbers)
    again = repeated(hashes(texts)).tolist()
    changed = [row for row, text in zip(numbers, texts, strict=True) if normalized(text, *cut) != text]
    normalized_by = " is changed by tokenizer.normalization", " are changed by tokenizer.normalization"
    advice = [
        *some(empty, which, (" is empty", " are empty")),
        *_repetitions(name, again, len(texts), noun),
        *conversions(suspicious, which),
        *(some(changed, which, normalized_by, (f": {altered}", f": {altered}")) if altered else ()),
    ]
    rows = {f"empty {noun}": len(empty), f"repeated {noun}": len(again), "changed by normalization": len(changed)}
    return Split({noun: len(texts), **sizes, **rows}, advice)


def inspect_labels(
    name: str,
    noun: str,
    hashed: Hashes,
    labels: Int[np.ndarray, " rows"],
    counts: Mapping[str, int],
    numbers: Sequence[int],
    empty: Sequence[int] = (),
) -> Split:
    """Check labelled examples: duplicates, contradictions and rare classes.

    Args:
        numbers: Rows of the examples in their file, from 1.
        empty: Those of examples without a text.
    """
    again = repeated(hashed)
    _, first, number = np.unique(hashed, return_index=True, return_inverse=True)
    other = np.asarray(numbers)[again[labels[again] != labels[first[number[again]]]]]
    contradictory = np.setdiff1d(other, empty).tolist()
    most, hopeless = max(counts.values()), "another class than the same one before: no model can be right on both"
    advice = [
        *some(contradictory, f"{noun} of {name}", after=(f" has {hopeless}", f" have {hopeless}")),
        *_repetitions(name, again.tolist(), len(labels), noun),
        *missing_classes(name, noun, counts),
        *(
            f"class {kind} has {counted_items(count, f'training {noun}')}, the largest one {most:,}: look at macro-F1"
            for kind, count in counts.items()
            if name == "train" and count * IMBALANCE < most
        ),
    ]
    rows = {noun: len(labels), f"repeated {noun}": len(again), "repeated with another class": len(contradictory)}
    return Split({**counts, **rows}, advice)
