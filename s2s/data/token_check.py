"""Checks of a recipe's tokenizer before training: long texts, untrained tokens."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from s2s.data.tokenizers import UNK, Tokenizer
from s2s.errors import UserError

# The same threshold as for the sign in `s2s diagnose`.
_STRANGE = 0.01


@dataclass(frozen=True)
class Cut:
    """Token statistics of one split.

    Attributes:
        pieces: Number of tokens, without special tokens.
        longest: Tokens of the longest text.
        too_long: Number of texts that exceed the length limit, special tokens included.
        unknown: Number of unknown tokens.
        new: Number of tokens that never occur in the training texts, without unknown tokens.
    """

    pieces: int
    longest: int
    too_long: int
    unknown: int
    new: int


@dataclass(frozen=True)
class Cutting:
    """Token statistics of all splits.

    Attributes:
        splits: Statistics by split; empty if no tokenizer can be made.
        max_length: Length limit of training texts in tokens; None for no limit.
        failure: Reason why no tokenizer can be made; empty if one can.
    """

    splits: dict[str, Cut]
    max_length: int | None
    failure: str = ""

    def rows(self) -> dict[str, list[float | None]]:
        """Return the rows of a table: by label, a list with a number for each split.

        Returns:
            Numbers by row label, one for each split; empty if no tokenizer can be made.
        """
        cuts = list(self.splits.values())
        found: dict[str, list[float | None]] = {
            "pieces": [cut.pieces for cut in cuts],
            "  of the longest text": [cut.longest for cut in cuts],
        }
        if self.max_length:
            found[f"  texts above {self.max_length:,}"] = [cut.too_long for cut in cuts]
        found["unknown pieces"] = [cut.unknown for cut in cuts]
        found["pieces that train has not"] = [cut.new for cut in cuts]
        return found if cuts else {}

    def advice(self) -> Iterator[str]:
        """Yield recommended corrections."""
        if self.failure:
            yield self.failure
        for name, cut in self.splits.items():
            if name == "train" and cut.too_long:
                yield f"{cut.too_long:,} texts of train have more than batches.max_length ({self.max_length}) pieces"
            strange = cut.unknown + cut.new
            if strange > _STRANGE * cut.pieces:
                yield (
                    f"{strange / cut.pieces:.1%} of the pieces of {name} are unknown ({cut.unknown:,}) or never stand "
                    f"in train ({cut.new:,}): nothing teaches them; tokenizer.byte_fallback=true, "
                    "tokenizer.kind=unigram or a smaller tokenizer.size"
                )


def cutting(splits: Mapping[str, Sequence[str]], make: Callable[[], Tokenizer], max_length: int | None) -> Cutting:
    """Tokenize the texts of each split with the tokenizer that training would make.

    Args:
        splits: Texts by split, `train` first.
        make: Function that makes the tokenizer.
        max_length: Length limit of training texts in tokens; None for no limit.

    Returns:
        Token statistics of all splits.
    """
    try:
        tokenizer = make()
    except UserError as error:
        return Cutting({}, max_length, f"{error.where}: {error.what}: {error.remedy}")
    found, seen = {}, np.empty(0, np.int64)
    for name, texts in splits.items():
        cut = tokenizer.encode_batch(list(texts))
        lengths = np.array([len(row) for row in cut], dtype=np.int64)
        tokens = np.fromiter((piece for row in cut for piece in row), np.int64, int(lengths.sum()))
        seen = np.unique(tokens) if name == "train" else seen
        unknown = tokens == UNK
        found[name] = Cut(
            len(tokens),
            int(lengths.max(initial=0)),
            int((lengths >= max_length).sum()) if max_length else 0,
            int(unknown.sum()),
            int((~np.isin(tokens, seen) & ~unknown).sum()),
        )
    return Cutting(found, max_length)
