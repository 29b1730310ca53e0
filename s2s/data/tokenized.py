"""A corpus as pieces: compact, memory-mapped, and with its lengths at hand."""

import contextlib
import hashlib
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Generic, Protocol

import numpy as np
from jaxtyping import Int

from s2s.data.sources import Corpus, Part, digest_of_arrays
from s2s.data.tokenizers import Tokenizer, train
from s2s.recipe.schema import PieceSettings

if TYPE_CHECKING:
    import datasets
    import pyarrow

TEXT_TOKENIZER = "text"
"""The name under which the tokenizer of texts is kept."""
_CHARACTERS = 10_000_000
Row = Sequence[int] | Int[np.ndarray, " pieces"]


class TokenizedDataset:
    """Pairs of pieces, without special ones. They stay in Arrow's memory-mapped file; only lengths are in memory.

    The rows have the integer lists `source` and `target`.

    Attributes:
        source_lengths: pieces of each source, its `EOS` counted.
        target_lengths: pieces of each target, its `EOS` counted.
    """

    def __init__(self, sources: "RaggedArray", targets: "RaggedArray") -> None:
        self._sources, self._targets = sources, targets
        self.source_lengths = self._sources.lengths + 1
        self.target_lengths = self._targets.lengths + 1

    @classmethod
    def from_rows(cls, sources: Sequence[Row], targets: Sequence[Row]) -> "TokenizedDataset":
        """Pairs that are in memory: their sources and their targets, row by row."""
        return cls(RaggedArray.from_rows(sources), RaggedArray.from_rows(targets))

    def __len__(self) -> int:
        return len(self.source_lengths)

    def pair(self, index: int) -> tuple[list[int], list[int]]:
        """The pieces of one pair."""
        sources, targets = self.rows(np.array([index]))
        return sources[0].tolist(), targets[0].tolist()

    def rows(self, indices: Int[np.ndarray, " chosen"]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The pieces of the chosen sources and of the chosen targets, in that order; nothing is copied."""
        return self._sources.rows(indices), self._targets.rows(indices)

    def within(self, max_length: int) -> tuple[Int[np.ndarray, " kept"], int]:
        """The pairs with no side longer than this, `EOS` counted, and the number of the others."""
        kept = np.flatnonzero(np.maximum(self.source_lengths, self.target_lengths) <= max_length)
        return kept, len(self) - len(kept)

    def source_token_ids(self) -> Int[np.ndarray, " different"]:
        """The numbers of the pieces that occur in sources."""
        return self._sources.source_token_ids()

    def arrays(self) -> Iterator[np.ndarray]:
        """All that is in it, as contiguous arrays: joined end to end, they depend on the pairs alone."""
        yield self.source_lengths
        yield self.target_lengths
        yield from self._sources.values
        yield from self._targets.values


class TokenizedTexts(Protocol):
    """Texts as pieces, without special ones."""

    @property
    def lengths(self) -> Int[np.ndarray, " texts"]:
        """Pieces of each text."""
        ...

    def rows(self, indices: Int[np.ndarray, " chosen"], /) -> list[np.ndarray]:
        """The pieces of the chosen texts, in that order."""
        ...


class RaggedArray:
    """Integer lists, as Arrow keeps a column of them, in chunks, with the length of each list.

    A row is found by arithmetic, since Arrow's own objects take a microsecond for each.
    """

    def __init__(self, chunks: Sequence[tuple[Int[np.ndarray, " values"], Int[np.ndarray, " rows+1"]]]) -> None:
        """Of chunks: values, and the places among them where rows begin, with the end of the last."""
        offsets = [places for _, places in chunks]
        # a chunk's own offsets say which of the values behind it are its own
        self.values = [values[places[0] : places[-1]] for values, places in chunks]
        self.lengths = np.concatenate([np.empty(0, np.int32), *(np.diff(o) for o in offsets)])
        self._starts = np.concatenate([np.empty(0, np.int32), *(o[:-1] - o[0] for o in offsets)])
        self._first_rows = np.cumsum([0, *(len(o) - 1 for o in offsets)])

    @classmethod
    def from_rows(cls, rows: Sequence[Row]) -> "RaggedArray":
        """Lists that are in memory."""
        values = np.concatenate([np.empty(0, np.int32), *rows], dtype=np.int32, casting="unsafe")
        return cls([(values, np.cumsum([0, *map(len, rows)], dtype=np.int32))])

    @classmethod
    def from_column(cls, column: "pyarrow.ChunkedArray") -> "RaggedArray":
        """A column of a table; nothing is copied."""
        return cls([(chunk.values.to_numpy(), chunk.offsets.to_numpy()) for chunk in column.chunks])

    def rows(self, indices: np.ndarray) -> list[np.ndarray]:
        """The lists of the chosen rows, in that order; nothing is copied."""
        starts = self._starts[indices]
        ends = starts + self.lengths[indices]
        # counted from the end as lists do: a negative index means what it means in the arrays above
        chunks = np.searchsorted(self._first_rows, np.asarray(indices) % len(self.lengths), side="right") - 1
        found = zip(chunks.tolist(), starts.tolist(), ends.tolist(), strict=True)
        return [self.values[chunk][start:end] for chunk, start, end in found]

    def source_token_ids(self) -> Int[np.ndarray, " different"]:
        """The numbers that occur in them: texts that are learned from alone are all sources."""
        return np.unique(np.concatenate([np.empty(0, np.int32), *map(np.unique, self.values)]))

    def arrays(self) -> Iterator[np.ndarray]:
        """All that is in it, as contiguous arrays: joined end to end, they depend on the lists alone."""
        yield self.lengths
        yield from self.values


def encode_corpus(dataset: "datasets.Dataset", source: Tokenizer, target: Tokenizer) -> TokenizedDataset:
    """Cuts both sides of a corpus, the texts `source` and `target`, into pieces.

    A corpus that lies on disk is cut once: the next time, `datasets` finds the pieces in its cache, by a name made
    from the corpus and the tokenizers.
    """
    tokens = _tokenize_columns(dataset, {"source": source, "target": target}).data
    return TokenizedDataset(
        RaggedArray.from_column(tokens.column("source")), RaggedArray.from_column(tokens.column("target"))
    )


def encode_texts(dataset: "datasets.Dataset", tokenizer: Tokenizer) -> RaggedArray:
    """Cuts the texts of the column `text` into pieces, once, as `encode_corpus` does."""
    return RaggedArray.from_column(_tokenize_columns(dataset, {"text": tokenizer}).data.column("text"))


def _tokenize_columns(dataset: "datasets.Dataset", tokenizers: Mapping[str, Tokenizer]) -> "datasets.Dataset":
    import datasets

    def pieces_of(texts: Mapping[str, list[str]]) -> dict[str, list[list[int]]]:
        return {column: tokenizer.encode_batch(texts[column]) for column, tokenizer in tokenizers.items()}

    tokens = datasets.List(datasets.Value("int32"))
    with _progress_on_a_terminal_only():
        return dataset.map(
            pieces_of,
            batched=True,
            batch_size=10_000,
            writer_batch_size=10_000,
            remove_columns=dataset.column_names,
            features=datasets.Features(dict.fromkeys(tokenizers, tokens)),
            # left alone, datasets would pickle the tokenizers to name the result
            new_fingerprint=_fingerprint(dataset, tokenizers),
            desc="Cutting into pieces",
        )


def _fingerprint(dataset: "datasets.Dataset", tokenizers: Mapping[str, Tokenizer]) -> str:
    versions = (version("s2s"), version("sentencepiece"), unicodedata.unidata_version)
    parts = (dataset._fingerprint, *(tokenizer.digest for tokenizer in tokenizers.values()), *versions)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _progress_on_a_terminal_only() -> Iterator[None]:
    import datasets

    hide = not (sys.stderr.isatty() or datasets.are_progress_bars_disabled())
    if hide:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if hide:
            datasets.enable_progress_bars()


@dataclass(frozen=True)
class PreparedTexts(Generic[Part]):
    """Everything about texts that training needs: as text, and as pieces."""

    corpus: Corpus[Part]
    tokenizer: Tokenizer
    train: RaggedArray
    validation: RaggedArray

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """The only one."""
        return (self.tokenizer,)

    def learned(self) -> Iterator[np.ndarray]:
        """All that training learns from."""
        yield from self.train.arrays()

    def hashes(self) -> dict[str, str]:
        """What identifies the data and the tokenizer, whatever their files are called."""
        return {"training_data": digest_of_arrays(self.learned()), "tokenizer": self.tokenizer.digest}


def tokenize_splits(
    train_texts: "datasets.Dataset",
    validation: "datasets.Dataset",
    settings: PieceSettings,
    tokenizer: Tokenizer | None,
) -> tuple[Tokenizer, RaggedArray, RaggedArray]:
    """A tokenizer, trained unless there is one, and training and validation texts, the column `text`, as pieces."""
    tokenizer = tokenizer or learned(train_texts["text"], settings)
    return tokenizer, encode_texts(train_texts, tokenizer), encode_texts(validation, tokenizer)


def learned(texts: Sequence[str], settings: PieceSettings) -> Tokenizer:
    """A tokenizer of texts; of many, evenly taken, as hold about ten million characters: more change little."""
    characters = sum(len(text) for text in texts)
    return train(texts[:: max(1, round(characters / _CHARACTERS))], settings, TEXT_TOKENIZER)
