"""Subword regularization: random tokenizations of a text, for training.

`UnigramSampler` draws from all tokenizations of a unigram model (Kudo 2018), `BpeSampler` applies BPE-dropout
(Provilkov et al. 2020). Both draw from given random numbers alone, because SentencePiece's own sampling differs between
processes for the same seed.

No token spans words and no user-defined symbol is split, so each word is drawn independently. Lattices and
deterministic tokenizations of short words are cached.
"""

import re
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, chain, islice, repeat
from math import exp, inf, log
from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2

_PROTO: Any = sentencepiece_model_pb2  # its classes are made at run time

# Words of a text with `▁` for each space, which is a token's first character or none.
_WORD = re.compile("▁[^▁]*|[^▁]+")
# SentencePiece scores an unknown character this much below the least likely token.
_UNKNOWN_PENALTY = 10.0
_CACHED_WORDS = 1 << 16
_LONGEST_CACHED = 32
_CHUNK = 64

# For the tokens that end at one position of a word: cumulative probabilities without the last, which is 1, and starts.
_Node = tuple[list[float], list[int]]


def random_numbers(seed: int, row: int) -> Iterator[float]:
    """Yield endless random numbers in [0, 1), as a function of seed and row."""
    generator = np.random.default_rng([seed, row])
    return chain.from_iterable(iter(lambda: generator.random(_CHUNK).tolist(), None))


class SubwordSampler(ABC):
    """Base class of the samplers.

    Args:
        serialized: SentencePiece model, without normalization.
    """

    def __init__(self, serialized: bytes) -> None:
        model, kind = _PROTO.ModelProto.FromString(serialized), _PROTO.ModelProto.SentencePiece
        in_text = (kind.NORMAL, kind.USER_DEFINED)
        self._ids = {piece.piece: i for i, piece in enumerate(model.pieces) if piece.type in in_text}
        self._scores = {piece.piece: piece.score for piece in model.pieces if piece.type == kind.NORMAL}
        self._bytes = [i for i, piece in enumerate(model.pieces) if piece.type == kind.BYTE]
        self._unknown = model.trainer_spec.unk_id
        symbols = [piece.piece for piece in model.pieces if piece.type == kind.USER_DEFINED]
        symbols.sort(key=len, reverse=True)
        self._symbols = re.compile(f"({'|'.join(map(re.escape, symbols))})") if symbols else None

    def sample(self, text: str, numbers: Iterator[float]) -> list[int]:
        """Draw the token ids of a text.

        Args:
            text: Text with `▁` for each space.
            numbers: Random numbers in [0, 1).
        """
        found = list[int]()
        for place, part in enumerate(self._symbols.split(text) if self._symbols else (text,)):
            if place % 2:
                found.append(self._ids[part])
            else:
                for word in _WORD.findall(part):
                    found += self._draw(word, numbers)
        if self._unknown in found:
            # Like SentencePiece, several unknown characters in a row are one token.
            found = [i for i, before in zip(found, [-1, *found], strict=False) if not i == before == self._unknown]
        return found

    @abstractmethod
    def _draw(self, word: str, numbers: Iterator[float]) -> list[int]:
        """Draw the token ids of a word."""

    def _spell(self, pieces: Iterable[str]) -> list[int]:
        """Return the ids of tokens; an unknown character becomes its bytes, if the model has byte tokens."""
        ids = list[int]()
        for piece in pieces:
            if (known := self._ids.get(piece)) is not None:
                ids.append(known)
            else:
                ids += [self._bytes[byte] for byte in piece.encode()] if self._bytes else [self._unknown]
        return ids


class UnigramSampler(SubwordSampler):
    """Sampler of a unigram model: tokenizations have probability p^alpha, normalized.

    Exact sampling from the lattice of all tokenizations: forward filtering, backward sampling.

    Args:
        serialized: SentencePiece model of type unigram, without normalization.
        alpha: Exponent; 0 makes all tokenizations equally likely, a large one leaves only the best.
    """

    def __init__(self, serialized: bytes, alpha: float) -> None:
        super().__init__(serialized)
        self._alpha = alpha
        self._longest = max(map(len, self._scores))
        self._unknown_score = min(self._scores.values()) - _UNKNOWN_PENALTY
        self._cached_lattice = lru_cache(_CACHED_WORDS)(self._lattice)

    def _lattice(self, word: str) -> list[_Node]:
        totals = [0.0]  # log of the summed weights of all tokenizations of each prefix
        nodes: list[_Node] = [([], [])]
        for end in range(1, len(word) + 1):
            starts, weights = list[int](), list[float]()
            for start in range(max(0, end - self._longest), end):
                score = self._scores.get(word[start:end], self._unknown_score if start == end - 1 else None)
                if score is not None:
                    starts.append(start)
                    weights.append(totals[start] + self._alpha * score)
            best = max(weights)
            sums = list(accumulate(exp(weight - best) for weight in weights))
            totals.append(best + log(sums[-1]))
            # The last token takes the rest, whatever rounding leaves of it.
            nodes.append(([one / sums[-1] for one in sums[:-1]], starts))
        return nodes

    def _draw(self, word: str, numbers: Iterator[float]) -> list[int]:
        nodes = (self._cached_lattice if len(word) <= _LONGEST_CACHED else self._lattice)(word)
        end, backwards = len(word), list[str]()
        while end:
            shares, starts = nodes[end]
            start = starts[bisect(shares, next(numbers))]
            backwards.append(word[start:end])
            end = start
        return self._spell(reversed(backwards))


class BpeSampler(SubwordSampler):
    """Sampler of a BPE model: at each step, each possible merge is left out with a probability (BPE-dropout).

    Args:
        serialized: SentencePiece model of type BPE, without normalization.
        dropout: Probability of leaving out a merge; 0 gives the deterministic tokenization.
    """

    def __init__(self, serialized: bytes, dropout: float) -> None:
        super().__init__(serialized)
        self._dropout = dropout
        self._ranks = {piece: -score for piece, score in self._scores.items()}
        self._cached_best = lru_cache(_CACHED_WORDS)(self._best)

    def _best(self, word: str) -> tuple[int, list[int]]:
        """Return the number of merges, and the token ids, of a word if no merge is left out."""
        pieces = self._merge(word, repeat(1.0))
        return len(word) - len(pieces), self._spell(pieces)

    def _draw(self, word: str, numbers: Iterator[float]) -> list[int]:
        merges, ids = (self._cached_best if len(word) <= _LONGEST_CACHED else self._best)(word)
        drawn = list(islice(numbers, merges))
        if min(drawn, default=1.0) >= self._dropout:
            return ids
        return self._spell(self._merge(word, chain(drawn, numbers)))

    def _merge(self, word: str, numbers: Iterator[float]) -> list[str]:
        """Merge the characters of a word to tokens; a number below the dropout rate leaves a merge out of one step."""
        pieces, rank_of = list(word), self._ranks.get
        ranks = [rank_of(pair, inf) for pair in map(str.__add__, pieces, pieces[1:])]
        while ranks and (rank := min(ranks)) < inf:
            place = ranks.index(rank)
            if next(numbers) < self._dropout:
                others = sorted(range(len(ranks)), key=ranks.__getitem__)[1:]
                possible = (place for place in others if ranks[place] < inf and next(numbers) >= self._dropout)
                place = next(possible, -1)
                if place < 0:
                    break
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
            del ranks[place]
            if place > 0:
                ranks[place - 1] = rank_of(pieces[place - 1] + pieces[place], inf)
            if place < len(ranks):
                ranks[place] = rank_of(pieces[place] + pieces[place + 1], inf)
        return pieces
