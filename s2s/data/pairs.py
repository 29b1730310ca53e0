"""Parallel corpora: sentence pairs, their filters and prefixes; generated corpora."""

import difflib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int

from s2s.data.scripts import split_words
from s2s.data.sources import Corpus, Source, digest_of, hashes, repeated
from s2s.data.tokenizers import describe_changes
from s2s.errors import UserError
from s2s.recipe.pairs import FilterSettings, LearnedPairs, PairSettings
from s2s.recipe.schema import MADE, Split
from s2s.recipe.wording import near_files

if TYPE_CHECKING:
    import datasets


_BUILT_IN_SIZES = {"train": 40_000, "validation": 500, "test": 1_000}
# Generated corpora. Each entry is a group of columns of the same sentences: the function of `phrasebook` or `homonyms`
# that generates them, the recipe's column names with the fields they are read from, and extra columns.
_MADE: dict[str, tuple[tuple[str, dict[str, str], tuple[str, ...]], ...]] = {
    "built-in": (
        ("phrases", {"en": "source", "de": "target", "cases": "cases"}, ("construction", "distance")),
        ("numbered", {"singular": "singular", "plural": "plural"}, ()),
        ("judgements", {"sentence": "sentence", "judgement": "judgement"}, ()),
    ),
    "homonyms": (("homonyms", {"en": "source", "de": "target"}, ("word", "sign")),),
}


class PairSource(Source[LearnedPairs, "datasets.Dataset"]):
    """Source of sentence pairs: unchanged text in the columns `source` and `target`.

    Pairs are memory-mapped Arrow data. The built-in corpora have more columns, see `phrasebook.Phrase` and
    `homonyms.Homonym`. Held-out pairs have distinct sources, none of which remains in the training data.
    """

    item_name: ClassVar[str] = "pairs"
    inputs: ClassVar[str] = "sources"
    in_order: ClassVar[bool] = False

    def load_split(self, name: str, train: "datasets.Dataset | None" = None) -> "datasets.Dataset | None":
        """Read one split, or generate it in the given size (built-in corpora); None as for other sources."""
        import datasets

        datasets.disable_progress_bars()
        split: Split | None = getattr(self.settings, name)
        if self.settings.corpus in MADE and split is not None:
            return _built_in(name, split, self.settings)
        if name == "train" and isinstance(split, int):
            near = "".join(near_files(self.settings.corpus, MADE))
            what = f"data.train is {split}; only the built-in corpora ({', '.join(MADE)}) can be generated in any size"
            raise UserError(what, remedy=(f"did you mean data.corpus={near}? " if near else "") + "name a file")
        return super().load_split(name, train)

    def read(self, name: str, split: str | tuple[str, str], train: "datasets.Dataset | None") -> "datasets.Dataset":
        """Read the columns `source` and `target` from line-aligned files, a table, or the hub."""
        from s2s.data.pair_files import read_pairs

        return read_pairs(self, name, split)

    def keys(self, part: "datasets.Dataset") -> Iterable[Hashable]:
        return (source for source, _ in pairs(part))

    def keys_with_targets(self, part: "datasets.Dataset") -> Iterable[Hashable]:
        return pairs(part)

    def held_out(self, name: str, part: "datasets.Dataset") -> dict[str, str]:
        """Return the digest of a held-out split by name; empty for built-in corpora."""
        return {} if self.settings.corpus in MADE else super().held_out(name, part)

    def usable_mask(self, part: "datasets.Dataset") -> Bool[np.ndarray, " examples"]:
        """Return a mask of the pairs with text on both sides.

        Pairs with an empty side can be neither translated nor scored; they stay in the training data, where the filters
        count them.
        """
        return np.array([bool(source.strip() and target.strip()) for source, target in pairs(part)], dtype=bool)

    def digest(self, part: "datasets.Dataset") -> str:
        return digest_of(part["source"], part["target"])


def load(settings: PairSettings) -> Corpus["datasets.Dataset"]:
    """Load the splits of a recipe's `data` section."""
    return PairSource(settings).load()


def load_split(settings: PairSettings, name: str) -> "datasets.Dataset | None":
    """Load one split; None if there is none, or if it is held out of the training data."""
    return PairSource(settings).load_split(name)


def pairs(dataset: "datasets.Dataset") -> Iterator[tuple[str, str]]:
    """Iterate over the source and target of each row, reading blocks of 10,000 rows."""
    for first in range(0, len(dataset), 10_000):
        rows = dataset[first : first + 10_000]
        yield from zip(rows["source"], rows["target"], strict=True)


def with_prefix(prefix: str, text: str) -> str:
    """Put a prefix, such as a language tag, before a source that has text."""
    return prefix + text if text.strip() else text


def prefixed(dataset: "datasets.Dataset", prefix: str) -> "datasets.Dataset":
    """Put a prefix before each source that has text (cached)."""
    return _with_texts(dataset, "source", lambda t: with_prefix(prefix, t), f"with {prefix}") if prefix else dataset


def without_prefix(dataset: "datasets.Dataset", prefix: str) -> "datasets.Dataset":
    """Remove a prefix from the sources that begin with it (cached)."""
    return _with_texts(dataset, "source", lambda t: t.removeprefix(prefix), f"without {prefix}") if prefix else dataset


def without_spaces_around_targets(dataset: "datasets.Dataset") -> "datasets.Dataset":
    """Remove white space at both ends of targets (cached)."""
    if all(target == target.strip() for _, target in pairs(dataset)):
        return dataset
    return _with_texts(dataset, "target", str.strip, "without spaces around targets")


def _with_texts(
    dataset: "datasets.Dataset", column: str, changed: Callable[[str], str], how: str
) -> "datasets.Dataset":
    def change(rows: Mapping[str, list[str]]) -> dict[str, list[str]]:
        return {column: [changed(text) for text in rows[column]]}

    from s2s.data.caching import map_cached, named

    return map_cached(dataset.select_columns(["source", "target"]), change, named(dataset._fingerprint, column, how))


def check_columns(settings: LearnedPairs, section: str = "data") -> None:
    """Refuse columns that a generated corpus does not have, or that are of different sentences; generates nothing.

    Args:
        settings: Section of the corpus; one that is read from files passes.
        section: Its place in the recipe, for messages.
    """
    if settings.corpus not in MADE:
        return
    corpus = _MADE[settings.corpus]
    known = [side for _, sides, _ in corpus for side in sides]
    for key, side in (("source", settings.source), ("target", settings.target)):
        if side not in known:
            near = difflib.get_close_matches(side, known, n=1)
            raise UserError(
                f"{section}.{key} is {side!r}, but the {settings.corpus} corpus has {', '.join(known)}",
                remedy=(f"did you mean {near[0]}? " if near else "") + f"choose one of them, or set {section}.corpus",
            )
    sides = next(sides for _, sides, _ in corpus if settings.source in sides)
    if settings.target not in sides:
        raise UserError(
            f"{section}.target is {settings.target!r}, which has other sentences than {settings.source}",
            remedy=f"set {section}.target to {' or '.join(s for s in sides if s != settings.source)}",
        )


def _built_in(name: str, split: Split, settings: LearnedPairs) -> "datasets.Dataset":
    import datasets

    if not isinstance(split, int) and split != name:
        what = f"data.{name} is {split!r}, but the {settings.corpus} corpus is generated"
        raise UserError(what, remedy=f"set data.{name}: {_BUILT_IN_SIZES[name]}, or data.corpus: files")
    check_columns(settings)
    make, sides, beside = next(each for each in _MADE[settings.corpus] if settings.source in each[1])
    size = split if isinstance(split, int) else _BUILT_IN_SIZES[name]
    if make == "homonyms":
        from s2s.data.homonyms import homonyms

        if settings.words != 1:
            raise UserError(
                f"is {settings.words}, but the homonyms corpus always has all its words", "data.words", "leave it out"
            )
        found: Sequence[Any] = homonyms(name, size, settings.seed)
    else:
        from s2s.data import phrasebook

        found = getattr(phrasebook, make)(name, size, settings.seed, words=settings.words)
    fields = {"source": sides[settings.source], "target": sides[settings.target]} | {field: field for field in beside}
    return datasets.Dataset.from_dict({column: [getattr(p, f) for p in found] for column, f in fields.items()})


# The length ratio of very short texts means little: "Yes." may be "Ja, das stimmt."
_SHORT = 20


@dataclass(frozen=True)
class FilterReport:
    """Number of training pairs that each rule dropped."""

    # pairs dropped, by rule in the order of the rules, without disabled rules. A pair that breaks several rules counts
    # for the first one.
    dropped: dict[str, int]
    kept: int  # pairs that remain

    def __str__(self) -> str:
        if not any(self.dropped.values()):
            return f"{self.kept:,} training pairs, none dropped by the filters"
        rows = {"training pairs": self.kept + sum(self.dropped.values())}
        rows |= {f"  dropped: {rule}": count for rule, count in self.dropped.items()}
        rows["kept"] = self.kept
        wide = max(map(len, rows))
        return "\n".join(f"{words:{wide}} {count:>11,}" for words, count in rows.items())


def filter_training(dataset: "datasets.Dataset", settings: FilterSettings) -> tuple["datasets.Dataset", FilterReport]:
    """Drop the training pairs that break a rule, and count them."""
    broken = [broken_rule(source, target, settings) for source, target in pairs(dataset)]
    if settings.duplicates == "drop":
        for row in later_copies(dataset):
            broken[row] = broken[row] or "duplicate"
    kept = [row for row, rule in enumerate(broken) if rule is None]
    counts = Counter(broken)
    optional = {
        "over max_words": settings.max_words is not None,
        "over max_ratio": settings.max_ratio is not None,
        "duplicate": settings.duplicates == "drop",
    }
    rules = ["empty source", "empty target", *(rule for rule, on in optional.items() if on)]
    report = FilterReport({rule: counts[rule] for rule in rules}, len(kept))
    return (dataset if len(kept) == len(dataset) else dataset.select(kept)), report


def broken_rule(source: str, target: str, settings: FilterSettings) -> str | None:
    """Return the first rule that a pair breaks, duplicates aside; None if it breaks none.

    Example:
        >>> broken_rule("A short text.", "  ", FilterSettings())
        'empty target'
    """
    if not source.strip():
        return "empty source"
    if not target.strip():
        return "empty target"
    if settings.max_words and max(len(split_words(side)) for side in (source, target)) > settings.max_words:
        return "over max_words"
    shorter, longer = sorted((len(source.strip()), len(target.strip())))
    if settings.max_ratio and longer >= _SHORT and longer > settings.max_ratio * shorter:
        return "over max_ratio"
    return None


def later_copies(dataset: "datasets.Dataset") -> Int[np.ndarray, " copies"]:
    """Return the rows, from 0, whose pair also occurs in an earlier row."""
    return repeated(hashes(pairs(dataset)))


def unreachable(part: "datasets.Dataset", name: str, normalization: str) -> str:
    """Return advice if the normalization changes targets of a split; empty otherwise."""
    split = describe_changes((target for _, target in pairs(part)), normalization)
    remedy = "are not normalized, so no output can match them; tokenizer.normalization=identity avoids this"
    return f"tokenizer.normalization={normalization} changes {split} in {name}; references {remedy}" if split else ""
