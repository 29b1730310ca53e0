"""Checks for any kind of corpus: duplicates, train/test overlap, odd characters.

Shared by `s2s data check`, the recipe generator and the tasks.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from s2s.data.sources import MISSING
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.errors import UserError, counted_items

SUSPICIOUS = {
    "\r": "carriage return",
    "\u2028": "line separator U+2028",
    "\u2029": "paragraph separator U+2029",
    "\u0085": "next line U+0085",
    "\0": "NUL",
    "\ufeff": "byte order mark",
    "\ufffd": "replacement character U+FFFD",
}
"""Characters that other programs read as a line end, or that hint at a wrong conversion, with their names."""

_MISSING_TEXT = "missing value as a text (nan, NA, None …)"
MANY = 0.05
"""Share from which a finding is reported."""
_SPOTS = 10
_SHOWN = 110


def note_suspicious(found: dict[str, list[int]], row: int, *texts: str) -> None:
    """Note a row with a `SUSPICIOUS` character or a missing value as text in `found`."""
    if not MISSING.isdisjoint(texts):
        found.setdefault(_MISSING_TEXT, []).append(row)
    for character, name in SUSPICIOUS.items():
        if any(character in text for text in texts):
            found.setdefault(name, []).append(row)


def sample_rows(rows: int, seed: int) -> list[int]:
    """Draw up to ten rows at random, in ascending order, for manual inspection."""
    return sorted(random.Random(seed).sample(range(rows), min(_SPOTS, rows)))


def some_rows(rows: list[int]) -> str:
    """Format the first five row numbers for a message.

    Example:
        >>> some_rows([3, 1200])
        'rows 3, 1,200'
    """
    return f"row{'s' * (len(rows) != 1)} {', '.join(f'{row:,}' for row in rows[:5])}{' …' if rows[5:] else ''}"


def escape_invisible(text: str) -> str:
    r"""Escape invisible characters and cut a text to 110 characters, for the terminal.

    Example:
        >>> escape_invisible("a\u2028b")
        'a\\u2028b'
    """
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return visible if len(visible) <= _SHOWN else visible[: _SHOWN - 1] + "…"


def table(columns: Iterable[str], rows: Mapping[str, Iterable[float | None]]) -> list[str]:
    """Format a table of numbers as lines of equal width; None is shown as `–`."""
    shown = {"": list(columns)}
    for label, numbers in rows.items():
        shown[label] = ["–" if n is None else f"{n:,}" if isinstance(n, int) else f"{n:.2f}" for n in numbers]
    return [
        f"{escape_invisible(label):28}" + "".join(f"{cell:>13}" for cell in cells) for label, cells in shown.items()
    ]


def findings(blocks: Iterable[Iterable[str]], advice: Iterable[str]) -> str:
    """Join blocks of findings and a final block of advice to plain text."""
    mend = [f"  - {words}" for words in advice]
    return "\n\n".join("\n".join(b) for b in (*blocks, ["advice", *mend] if mend else ["nothing suspicious found"]))


# The same threshold as for the sign in `s2s diagnose`.
_STRANGE = 0.01


@dataclass(frozen=True)
class TokenCounts:
    """Token statistics of one split, without special tokens."""

    tokens: int
    longest: int
    too_long: int
    unknown: int
    new: int


@dataclass(frozen=True)
class TokenReport:
    """Token statistics of all splits; empty, with the reason in `failure`, if no tokenizer can be made."""

    splits: dict[str, TokenCounts]
    max_length: int | None
    failure: str = ""

    def rows(self) -> dict[str, list[float | None]]:
        """Return the rows of a table: by label, a list with a number for each split."""
        cuts = list(self.splits.values())
        found: dict[str, list[float | None]] = {
            "tokens": [cut.tokens for cut in cuts],
            "  of the longest text": [cut.longest for cut in cuts],
        }
        if self.max_length:
            found[f"  texts above {self.max_length:,}"] = [cut.too_long for cut in cuts]
        found["unknown tokens"] = [cut.unknown for cut in cuts]
        found["tokens not in train"] = [cut.new for cut in cuts]
        return found if cuts else {}

    def advice(self) -> Iterator[str]:
        """Yield recommended corrections."""
        if self.failure:
            yield self.failure
        for name, cut in self.splits.items():
            if name == "train" and cut.too_long:
                have = "has" if cut.too_long == 1 else "have"
                texts = counted_items(cut.too_long, "texts of train")
                yield f"{texts} {have} more than batches.max_length ({self.max_length}) tokens"
            strange = cut.unknown + cut.new
            if strange > _STRANGE * cut.tokens:
                yield (
                    f"{strange / cut.tokens:.1%} of the tokens of {name} are unknown ({cut.unknown:,}) or do not occur "
                    f"in train ({cut.new:,}), so they cannot be learned; set tokenizer.byte_fallback=true, "
                    "tokenizer.kind=unigram or a smaller tokenizer.size"
                )


def report_tokens(
    splits: Mapping[str, Sequence[str]], make: Callable[[], Tokenizer], max_length: int | None
) -> TokenReport:
    """Tokenize each split (`train` first) with the tokenizer that training would make."""
    try:
        tokenizer = make()
    except UserError as error:
        return TokenReport({}, max_length, f"{error.where}: {error.what}: {error.remedy}")
    found, seen = {}, np.empty(0, np.int64)
    for name, texts in splits.items():
        cut = tokenizer.encode_batch(list(texts))
        lengths = np.array([len(row) for row in cut], dtype=np.int64)
        tokens = np.fromiter((token for row in cut for token in row), np.int64, int(lengths.sum()))
        seen = np.unique(tokens) if name == "train" else seen
        unknown = tokens == UNK
        found[name] = TokenCounts(
            len(tokens),
            int(lengths.max(initial=0)),
            int((lengths >= max_length).sum()) if max_length else 0,
            int(unknown.sum()),
            int((~np.isin(tokens, seen) & ~unknown).sum()),
        )
    return TokenReport(found, max_length)
