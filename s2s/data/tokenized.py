"""Tokenized corpora: compact, memory-mapped token ids with their lengths.

`encode_corpus` and `encode_texts` tokenize a `datasets.Dataset` once and cache the result; `TokenizedDataset` and
`RaggedArray` give access to it.
"""

import hashlib
import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol

import numpy as np
from jaxtyping import Int

from s2s.data.caching import map_cached
from s2s.data.sources import Corpus, Part, digest_of_arrays
from s2s.data.tokenizers import Tokenizer, train
from s2s.errors import UserError
from s2s.process import package_version
from s2s.recipe.schema import PieceSettings

if TYPE_CHECKING:
    import datasets
    import pyarrow

"""Name under which the tokenizer of single texts is saved."""
_CHARACTERS = 10_000_000
Row = Sequence[int] | Int[np.ndarray, " tokens"]


class TokenizedDataset:
    """Sentence pairs as token ids, without special tokens.

    Token ids stay in Arrow's memory-mapped file; only the lengths are in memory.

    Attributes:
        source_lengths: Tokens of each source including `EOS`, shape `(pairs,)`.
        target_lengths: Tokens of each target including `EOS`, shape `(pairs,)`.

    Example:
        >>> data = TokenizedDataset.from_rows([[7, 8], [9]], [[5], [6, 4]])
        >>> len(data), data.source_lengths.tolist(), data.pair(0)
        (2, [3, 2], ([7, 8], [5]))
    """

    def __init__(self, sources: "RaggedArray", targets: "RaggedArray") -> None:
        self._sources, self._targets = sources, targets
        self.source_lengths = self._sources.lengths + 1
        self.target_lengths = self._targets.lengths + 1

    @classmethod
    def from_rows(cls, sources: Sequence[Row], targets: Sequence[Row]) -> "TokenizedDataset":
        """Build from token ids in memory."""
        return cls(RaggedArray.from_rows(sources), RaggedArray.from_rows(targets))

    def __len__(self) -> int:
        return len(self.source_lengths)

    def pair(self, index: int) -> tuple[list[int], list[int]]:
        """Return the token ids of the source and the target of one pair."""
        sources, targets = self.rows(np.array([index]))
        return sources[0].tolist(), targets[0].tolist()

    def rows(self, indices: Int[np.ndarray, " chosen"]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the token ids of the chosen sources and targets, in that order, as views."""
        return self._sources.rows(indices), self._targets.rows(indices)

    def draw(self, indices: Int[np.ndarray, " chosen"], seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the token ids of the chosen pairs for training; random choices depend on seed and row only.

        Here nothing is random; see `SampledDataset`.
        """
        return self.rows(indices)

    def within(self, max_length: int) -> tuple[Int[np.ndarray, " kept"], int]:
        """Return the rows with no side above `max_length` (`EOS` included), and the number of others."""
        kept = np.flatnonzero(np.maximum(self.source_lengths, self.target_lengths) <= max_length)
        return kept, len(self) - len(kept)

    def source_token_ids(self) -> Int[np.ndarray, " different"]:
        """Return the distinct token ids of the sources, sorted."""
        return self._sources.source_token_ids()

    def arrays(self) -> Iterator[np.ndarray]:
        """Yield the content as contiguous arrays, for digests.

        Joined end to end, the arrays depend on the pairs alone, not on how they are chunked.
        """
        yield self.source_lengths
        yield self.target_lengths
        yield from self._sources.values
        yield from self._targets.values


class SampledDataset(TokenizedDataset):
    """Sentence pairs whose training texts are tokenized at random in each epoch (subword regularization).

    Lengths, and `rows`, are those of the deterministic tokenization.

    Args:
        data: The pairs with deterministic tokens.
        corpus: The same pairs as text, with columns `source` and `target`.
        tokenizers: Tokenizers of source and target.
        rate: Rate of the sampling, see `Tokenizer.sampler`.
        max_length: A text that has more sampled tokens, `EOS` included, keeps its deterministic tokens.

    Raises:
        UserError: Neither tokenizer can sample with this rate.
    """

    def __init__(
        self,
        data: TokenizedDataset,
        corpus: "datasets.Dataset",
        tokenizers: tuple[Tokenizer, Tokenizer],
        rate: float,
        max_length: int,
    ) -> None:
        super().__init__(data._sources, data._targets)
        self._corpus, self._max_length = corpus, max_length
        source, target = tokenizers
        sampler = source.sampler(rate)
        self._samplers = sampler, sampler if target is source else target.sampler(rate)
        if not any(self._samplers):
            what = f"has no effect: a tokenizer of kind {source.kind} has one tokenization of each text"
            raise UserError(what, "tokenizer.sampling", "leave it out, or train a tokenizer of kind unigram or bpe")

    def draw(self, indices: Int[np.ndarray, " chosen"], seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Draw tokenizations of the chosen pairs, as a function of seed and row."""
        from s2s.data.subword_sampling import random_numbers

        found, texts = self.rows(indices), self._corpus[indices.tolist()]
        for place, row in enumerate(indices.tolist()):
            numbers = random_numbers(seed, row)
            for rows, side, sample in zip(found, ("source", "target"), self._samplers, strict=True):
                tokens = sample(texts[side][place], numbers) if sample else []
                if 0 < len(tokens) < self._max_length:
                    rows[place] = np.array(tokens, dtype=np.int32)
        return found


class TokenizedTexts(Protocol):
    """Protocol of tokenized texts, without special tokens."""

    @property
    def lengths(self) -> Int[np.ndarray, " texts"]:
        """Tokens of each text, shape `(texts,)`."""
        ...

    def rows(self, indices: Int[np.ndarray, " chosen"], /) -> list[np.ndarray]:
        """Return the token ids of these rows, in that order."""
        ...


class RaggedArray:
    """Integer lists of different lengths, stored as Arrow does (values and offsets).

    A row is found by index arithmetic, because creating an Arrow object takes a microsecond for each row.

    Args:
        chunks: For each chunk, its values and the offsets at which rows begin, followed by the end of the last row.

    Example:
        >>> lists = RaggedArray.from_rows([[4, 5, 6], [], [7]])
        >>> lists.lengths.tolist(), lists.rows(np.array([2]))[0].tolist()
        ([3, 0, 1], [7])
    """

    def __init__(self, chunks: Sequence[tuple[Int[np.ndarray, " values"], Int[np.ndarray, " rows+1"]]]) -> None:
        offsets = [places for _, places in chunks]
        # A sliced chunk keeps the values of its neighbours; its offsets say which are its own.
        self.values = [values[places[0] : places[-1]] for values, places in chunks]
        self.lengths = np.concatenate([np.empty(0, np.int32), *(np.diff(o) for o in offsets)])
        self._starts = np.concatenate([np.empty(0, np.int32), *(o[:-1] - o[0] for o in offsets)])
        self._first_rows = np.cumsum([0, *(len(o) - 1 for o in offsets)])

    @classmethod
    def from_rows(cls, rows: Sequence[Row]) -> "RaggedArray":
        """Build from lists in memory."""
        values = np.concatenate([np.empty(0, np.int32), *rows], dtype=np.int32, casting="unsafe")
        return cls([(values, np.cumsum([0, *map(len, rows)], dtype=np.int32))])

    @classmethod
    def from_column(cls, column: "pyarrow.ChunkedArray") -> "RaggedArray":
        """Build from a list column of an Arrow table, without a copy."""
        return cls([(chunk.values.to_numpy(), chunk.offsets.to_numpy()) for chunk in column.chunks])

    def rows(self, indices: np.ndarray) -> list[np.ndarray]:
        """Return the lists of these rows as views; negative rows count from the end."""
        starts = self._starts[indices]
        ends = starts + self.lengths[indices]
        # The modulo maps a negative index to the row that it means in the arrays above.
        chunks = np.searchsorted(self._first_rows, np.asarray(indices) % len(self.lengths), side="right") - 1
        found = zip(chunks.tolist(), starts.tolist(), ends.tolist(), strict=True)
        return [self.values[chunk][start:end] for chunk, start, end in found]

    def source_token_ids(self) -> Int[np.ndarray, " different"]:
        """Return the distinct values, sorted; texts without targets count as sources."""
        return np.unique(np.concatenate([np.empty(0, np.int32), *map(np.unique, self.values)]))

    def arrays(self) -> Iterator[np.ndarray]:
        """Yield the content as contiguous arrays, for digests.

        Joined end to end, the arrays depend on the lists alone, not on how they are chunked.
        """
        yield self.lengths
        yield from self.values


def encode_corpus(dataset: "datasets.Dataset", source: Tokenizer, target: Tokenizer) -> TokenizedDataset:
    """Tokenize both sides of a corpus.

    A corpus on disk is tokenized once. Later calls find the token ids in the cache of `datasets`, under a name made
    from the corpus and the tokenizers.
    """
    tokens = _tokenize_columns(dataset, {"source": source, "target": target}).data
    return TokenizedDataset(
        RaggedArray.from_column(tokens.column("source")), RaggedArray.from_column(tokens.column("target"))
    )


def encode_texts(dataset: "datasets.Dataset", tokenizer: Tokenizer) -> RaggedArray:
    """Tokenize the column `text`, cached as in `encode_corpus`."""
    return RaggedArray.from_column(_tokenize_columns(dataset, {"text": tokenizer}).data.column("text"))


def _tokenize_columns(dataset: "datasets.Dataset", tokenizers: Mapping[str, Tokenizer]) -> "datasets.Dataset":
    import datasets

    def tokenize(texts: Mapping[str, list[str]]) -> dict[str, list[list[int]]]:
        return {column: tokenizer.encode_batch(texts[column]) for column, tokenizer in tokenizers.items()}

    versions = (package_version("s2s"), package_version("sentencepiece"), unicodedata.unidata_version)
    parts = (dataset._fingerprint, *(tokenizer.digest for tokenizer in tokenizers.values()), *versions)
    return map_cached(
        dataset,
        tokenize,
        hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32],
        datasets.Features(dict.fromkeys(tokenizers, datasets.List(datasets.Value("int32")))),
        remove=dataset.column_names,
        batch=10_000,
        description="Tokenizing",
    )


@dataclass(frozen=True)
class PreparedTexts(Generic[Part]):
    """Texts ready for training: the splits as text, and the training and validation texts as token ids."""

    corpus: Corpus[Part]
    tokenizer: Tokenizer
    train: RaggedArray
    validation: RaggedArray

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """All tokenizers, here a single one."""
        return (self.tokenizer,)

    @property
    def chance_loss(self) -> float:
        """Cross-entropy of a uniform guess among the tokens, in nats."""
        return math.log(self.tokenizer.size)

    def learned(self) -> Iterator[np.ndarray]:
        """Yield the training data as arrays, for digests."""
        yield from self.train.arrays()

    def hashes(self) -> dict[str, str]:
        """Return digests of the training data and the tokenizer, independent of file names."""
        return {"training_data": digest_of_arrays(self.learned()), "tokenizer": self.tokenizer.digest}


def tokenize_corpus(
    corpus: "Corpus[datasets.Dataset]", settings: PieceSettings, tokenizers: Sequence[Tokenizer]
) -> "PreparedTexts[datasets.Dataset]":
    """Tokenize the splits of a corpus of texts.

    Args:
        corpus: Rows with the column `text`.
        settings: Settings of a new tokenizer.
        tokenizers: Tokenizer to use; empty trains one on the training texts.
    """
    known = tokenizers[0] if tokenizers else None
    return PreparedTexts(corpus, *tokenize_splits(corpus.train, corpus.validation, settings, known))


def tokenize_splits(
    train_texts: "datasets.Dataset",
    validation: "datasets.Dataset",
    settings: PieceSettings,
    tokenizer: Tokenizer | None,
) -> tuple[Tokenizer, RaggedArray, RaggedArray]:
    """Tokenize training and validation texts, and train a tokenizer if there is none."""
    tokenizer = tokenizer or learned(train_texts["text"], settings)
    return tokenizer, encode_texts(train_texts, tokenizer), encode_texts(validation, tokenizer)


def learned(texts: Sequence[str], settings: PieceSettings) -> Tokenizer:
    """Train a tokenizer on texts.

    Of many texts, an evenly spaced sample of about ten million characters is used, because more change little.
    """
    characters = sum(len(text) for text in texts)
    return train(texts[:: max(1, round(characters / _CHARACTERS))], settings, "text")
