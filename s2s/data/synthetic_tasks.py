"""Synthetic tasks that separate architectures: copying, associative recall, state tracking.

Each task has a size, such as the number of symbols to copy. A batch has examples of one size, drawn from a generator,
so a training sees fresh examples in each update, and no batch needs padding.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from s2s.data.tokenizers import BOS, EOS, SPECIAL_TOKENS

FIRST = len(SPECIAL_TOKENS)
"""Lowest token id of a symbol; lower ids are the special tokens of every tokenizer."""
NO_LABEL = -100
"""Label of positions that have none; the default `ignore_index` of `torch.nn.functional.cross_entropy`."""


@dataclass(frozen=True)
class TaskBatch:
    """Examples of one size.

    Attributes:
        source: Token ids that the encoder reads.
        labels: Classes that a linear head predicts at the encoder states, or `NO_LABEL`; None without head.
        written: Token ids that the decoder reads (teacher forcing); None if the decoder is not used.
        target: Token ids that the decoder predicts.
    """

    source: Int[Tensor, "rows source"]
    labels: Int[Tensor, "rows source"] | None = None
    written: Int[Tensor, "rows steps"] | None = None
    target: Int[Tensor, "rows steps"] | None = None

    @property
    def wanted(self) -> Int[Tensor, "rows places"]:
        """Correct answers: the target, or the labels if the decoder is not used.

        Raises:
            ValueError: The batch has neither.
        """
        wanted = self.labels if self.target is None else self.target
        if wanted is None:
            raise ValueError("the examples have no answers")
        return wanted

    def to(self, device: torch.device) -> "TaskBatch":
        """Move all tensors to a device."""
        parts = (None if part is None else part.to(device) for part in (self.labels, self.written, self.target))
        return TaskBatch(self.source.to(device), *parts)


class SyntheticTask(ABC):
    """Base class of a synthetic task.

    Attributes:
        name: Name in lowercase letters, digits and hyphens.
        title: Short description.
        unit: Unit of the size.
        vocabulary_size: Size of the vocabulary of both sides, including special tokens.
        classes: Number of classes of the linear head on the encoder states; 0 for none.
        trained: Sizes that batches are drawn from, with equal probability.
        tested: Sizes to test, ascending; those above `max(trained)` are longer than trained on.
        answers_per_batch: Approximate number of answers of a batch; the number of rows falls with the size.
        shortcut: Description of the shortcut baseline: predicate of a sentence about it.
    """

    name: str
    title: str
    unit: str
    vocabulary_size: int
    classes: int = 0
    trained: Sequence[int]
    tested: Sequence[int]
    answers_per_batch: int
    shortcut: str

    @abstractmethod
    def draw(self, size: int, rows: int, chance: torch.Generator) -> TaskBatch:
        """Draw examples of one size."""

    @abstractmethod
    def right(self, batch: TaskBatch, scores: Float[Tensor, "rows steps kinds"]) -> Bool[Tensor, "rows answers"]:
        """Return which answers are correct.

        Args:
            batch: Examples.
            scores: Scores of the decoder, or those of the linear head if the task does not use the decoder.
        """

    @abstractmethod
    def shortcut_accuracy(self, size: int) -> float:
        """Return the accuracy, in [0, 1], of the shortcut baseline: the best strategy that does not do the task."""

    def rows(self, size: int) -> int:
        """Return the number of rows of a training batch."""
        return max(8, min(64, self.answers_per_batch // size))


class Copying(SyntheticTask):
    """Copy a string of random symbols (Jelassi et al. 2024).

    An answer is the whole string, which needs all its bits from the source, or each of its symbols.

    Args:
        symbols: Number of different symbols.
        trained: Lengths to train on.
        tested: Lengths to test.
        whole: True if an answer is the whole string, False if it is one of its symbols or its end.

    Example:
        >>> batch = Copying(26, (3,), (3,)).draw(size=3, rows=1, chance=torch.Generator().manual_seed(1))
        >>> batch.source.tolist(), batch.written.tolist(), batch.target.tolist()
        ([[23, 13, 20, 2]], [[1, 23, 13, 20]], [[23, 13, 20, 2]])
    """

    name, title, unit = "copying", "copying a string", "symbols"
    answers_per_batch = 1600
    shortcut = "knows the symbols and their counts, but not their order"

    def __init__(self, symbols: int, trained: Sequence[int], tested: Sequence[int], whole: bool = True) -> None:
        self.symbols, self.trained, self.tested, self.whole = symbols, trained, tested, whole
        self.vocabulary_size = FIRST + symbols

    def draw(self, size: int, rows: int, chance: torch.Generator) -> TaskBatch:
        string = self._strings(size, rows, chance)
        return _written(string, self._answer(string))

    def _strings(self, size: int, rows: int, chance: torch.Generator) -> Tensor:
        return FIRST + torch.randint(self.symbols, (rows, size), generator=chance)

    def _answer(self, string: Tensor) -> Tensor:
        return string

    def right(self, batch: TaskBatch, scores: Tensor) -> Bool[Tensor, "rows answers"]:
        right = torch.eq(scores.argmax(dim=2), batch.wanted)
        return right.all(dim=1, keepdim=True) if self.whole else right

    def shortcut_accuracy(self, size: int) -> float:
        """Return the accuracy of writing, at each position, the most frequent of the symbols that are left.

        Any order of the symbols is equally probable: so whole strings are right once for each multiset, and where n
        symbols are left, they are any n symbols. The end of the string is always correct.
        """
        if not self.whole:
            right = sum(most_frequent_share(left, self.symbols) for left in range(1, size + 1))
            return (right + 1) / (size + 1)
        return math.comb(self.symbols + size - 1, size) / self.symbols**size


class Reversal(Copying):
    """Reverse a string of random symbols.

    Example:
        >>> batch = Reversal(26, (3,), (3,)).draw(size=3, rows=1, chance=torch.Generator().manual_seed(1))
        >>> batch.source.tolist(), batch.target.tolist()
        ([[23, 13, 20, 2]], [[20, 13, 23, 2]])
    """

    name, title = "reversal", "reversing a string"

    def _answer(self, string: Tensor) -> Tensor:
        return string.flip(1)


class Addition(Copying):
    """Add two decimal numbers with equally many digits, the lowest first; the source has the digits in pairs.

    Args:
        trained: Numbers of digits to train on.
        tested: Numbers of digits to test.
        whole: True if an answer is the whole sum, False if it is one of its digits or its end.

    Example:
        45 + 89 = 134, and EOS:

        >>> batch = Addition((2,), (2,)).draw(size=2, rows=1, chance=torch.Generator().manual_seed(1))
        >>> (batch.source - FIRST).tolist(), (batch.target - FIRST).tolist()
        ([[5, 9, 4, 8, -2]], [[4, 3, 1, -2]])
    """

    name, title, unit = "addition", "adding two numbers", "digits"
    shortcut = "adds the digits of each pair without carries"

    def __init__(self, trained: Sequence[int], tested: Sequence[int], whole: bool = True) -> None:
        super().__init__(10, trained, tested, whole)

    def _strings(self, size: int, rows: int, chance: torch.Generator) -> Tensor:
        return super()._strings(2 * size, rows, chance)

    def _answer(self, string: Tensor) -> Tensor:
        sums, carry = (string - FIRST).unflatten(1, (-1, 2)).sum(dim=2), torch.zeros(len(string), dtype=torch.long)
        digits = []
        for column in sums.T:
            carry, digit = torch.div(column + carry, 10, rounding_mode="floor"), (column + carry) % 10
            digits.append(digit)
        return FIRST + torch.stack([*digits, carry], dim=1)

    def shortcut_accuracy(self, size: int) -> float:
        """Return the share of sums without a carry, or of digits without one; 55 of 100 pairs of digits carry none.

        The end of the sum is always correct.
        """
        if self.whole:
            return 0.55**size
        # digits from the lowest: a carry comes from a pair with a sum above 9, or of 9 with a carry before
        carries = list(itertools.accumulate(range(size), lambda carry, _: 0.45 + 0.1 * carry, initial=0.0))
        return (sum(1 - carry for carry in carries) + 1) / (size + 2)


def _written(source: Tensor, answer: Tensor) -> TaskBatch:
    """Return examples of a source with EOS, whose answer the decoder predicts from BOS to EOS."""
    begin, end = torch.full((len(source), 1), BOS), torch.full((len(source), 1), EOS)
    return TaskBatch(
        torch.cat((source, end), dim=1),
        written=torch.cat((begin, answer), dim=1),
        target=torch.cat((answer, end), dim=1),
    )


class AssociativeRecall(SyntheticTask):
    """Recall the values of keys (multi-query associative recall, Arora et al. 2023).

    The source has pairs of a key and a value, two tokens each, in random order. The decoder reads each of the keys, in
    another order, and answers with the key's value. A linear head on the encoder state of each value predicts the key
    before it (auxiliary loss): without it, no model that must learn to join the two tokens did so within the budget.

    Args:
        trained: Numbers of pairs to train on.
        tested: Numbers of pairs to test.
        joined: True to train the linear head.
        kinds: Number of different keys, and of different values.
    """

    name, title, unit = "recall", "associative recall", "pairs"
    answers_per_batch = 1024
    shortcut = "answers with the most frequent value of the source"

    def __init__(self, trained: Sequence[int], tested: Sequence[int], joined: bool = True, kinds: int = 128) -> None:
        self.trained, self.tested, self.kinds = trained, tested, kinds
        self.vocabulary_size = FIRST + 2 * kinds
        self.classes = kinds if joined else 0

    def rows(self, size: int) -> int:
        return self.answers_per_batch // size

    def draw(self, size: int, rows: int, chance: torch.Generator) -> TaskBatch:
        keys = torch.rand(rows, self.kinds, generator=chance).argsort(dim=1)[:, :size]
        values = torch.randint(self.kinds, (rows, size), generator=chance)
        order = torch.rand(rows, size, generator=chance).argsort(dim=1)
        # (rows, pairs, 2) -> (rows, 2 · pairs): a key, its value, the next key …
        source = torch.stack((FIRST + keys, FIRST + self.kinds + values), dim=2).flatten(1)
        labels = None
        if self.classes:
            labels = torch.full_like(source, NO_LABEL)
            labels[:, 1::2] = keys
        asked, wanted = keys.gather(1, order), values.gather(1, order)
        return TaskBatch(source, labels, FIRST + asked, FIRST + self.kinds + wanted)

    def right(self, batch: TaskBatch, scores: Tensor) -> Bool[Tensor, "rows pairs"]:
        return torch.eq(scores.argmax(dim=2), batch.wanted)

    def shortcut_accuracy(self, size: int) -> float:
        return most_frequent_share(size, self.kinds)


@cache
def most_frequent_share(draws: int, kinds: int) -> float:
    """Return the expected share of the most frequent of `kinds` values in independent uniform draws.

    P(no value more than m times) = draws! / kindsᵈʳᵃʷˢ times the coefficient of xᵈʳᵃʷˢ in (Σ_{j ≤ m} xʲ/j!)ᵏⁱⁿᵈˢ.
    """
    at_most = [0.0]
    scale = math.lgamma(draws + 1) - draws * math.log(kinds)
    for most in range(1, draws + 1):
        once = np.zeros(draws + 1)
        once[: most + 1] = [1 / math.factorial(j) for j in range(most + 1)]
        power, base, left = np.eye(1, draws + 1)[0], once, kinds
        while left:
            if left % 2:
                power = np.convolve(power, base)[: draws + 1]
            base, left = np.convolve(base, base)[: draws + 1], left // 2
        at_most.append(float(power[draws]) * math.exp(scale))
        if at_most[-1] > 1 - 1e-12:
            break
    # E[max] = Σ P(max > m)
    return sum(1 - p for p in at_most) / draws


class StateTracking(SyntheticTask):
    """Track the state of a finite automaton: a linear head predicts it after each symbol (Delétang et al. 2023).

    Every symbol permutes the states, so no symbol can be ignored. An answer is the state after the last symbol; the
    other states are labels in training, too.

    Args:
        name: Name of the automaton, a key of `AUTOMATA`.
        trained: Lengths to train on.
        tested: Lengths to test.

    Example:
        >>> batch = StateTracking("parity", (4,), (4,)).draw(4, 1, torch.Generator().manual_seed(1))
        >>> batch.source.tolist(), batch.labels.tolist()
        ([[5, 5, 4, 4]], [[1, 0, 0, 0]])
    """

    unit = "symbols"
    answers_per_batch = 64 * 40
    shortcut = "does not know one of the symbols"

    def __init__(self, name: str, trained: Sequence[int], tested: Sequence[int]) -> None:
        self.name, self.trained, self.tested = name, trained, tested
        self.title, table = AUTOMATA[name]
        self._next = torch.tensor(table)
        self.classes, self.symbols = self._next.shape
        self.vocabulary_size = FIRST + self.symbols

    def rows(self, size: int) -> int:
        return 64

    def draw(self, size: int, rows: int, chance: torch.Generator) -> TaskBatch:
        symbols = torch.randint(self.symbols, (rows, size), generator=chance)
        state, states = torch.zeros(rows, dtype=torch.long), []
        for step in symbols.T:
            state = self._next[state, step]
            states.append(state)
        return TaskBatch(FIRST + symbols, torch.stack(states, dim=1))

    def right(self, batch: TaskBatch, scores: Tensor) -> Bool[Tensor, "rows 1"]:
        return torch.eq(scores[:, -1:].argmax(dim=2), batch.wanted[:, -1:])

    def shortcut_accuracy(self, size: int) -> float:
        """Return the accuracy if one symbol is unknown: the one that is easiest to guess.

        Symbols after it permute the states, so they leave the uncertainty as it is. In `arithmetic`, the first symbol
        is the easiest to guess: five of nine symbols lead from state 0 to state 0.
        """
        steps = np.stack([np.bincount(row, minlength=self.classes) for row in self._next.numpy()]) / self.symbols
        before, found = np.eye(self.classes)[0], 0.0
        for _ in range(size):
            found = max(found, float(before @ steps.max(axis=1)))
            before = before @ steps
        return found


class FirstSymbol(SyntheticTask):
    """Recall the first symbol of a text (Bengio et al. 1994); a linear head predicts it at the last position.

    Args:
        trained: Numbers of symbols after the first one, to train on.
        tested: Numbers to test.
        keys: Number of different first symbols; as many others follow.
    """

    name, title, unit = "first", "recall of the first symbol", "symbols between"
    answers_per_batch = 64
    shortcut = "does not know the first symbol"

    def __init__(self, trained: Sequence[int], tested: Sequence[int], keys: int = 32) -> None:
        self.trained, self.tested, self.classes = trained, tested, keys
        self.vocabulary_size = FIRST + 2 * keys

    def rows(self, size: int) -> int:
        return 64

    def draw(self, size: int, rows: int, chance: torch.Generator) -> TaskBatch:
        key = torch.randint(self.classes, (rows, 1), generator=chance)
        noise = torch.randint(self.classes, (rows, size), generator=chance)
        labels = torch.full((rows, size + 1), NO_LABEL)
        labels[:, -1:] = key
        return TaskBatch(torch.cat((FIRST + key, FIRST + self.classes + noise), dim=1), labels)

    def right(self, batch: TaskBatch, scores: Tensor) -> Bool[Tensor, "rows 1"]:
        return torch.eq(scores[:, -1:].argmax(dim=2), batch.wanted[:, -1:])

    def shortcut_accuracy(self, size: int) -> float:
        return 1 / self.classes


def _affine(modulus: int) -> list[list[int]]:
    """Return the table of x + a for all a, then x · a for all a but 0, modulo a prime."""
    return [
        [(x + a) % modulus for a in range(modulus)] + [(x * a) % modulus for a in range(1, modulus)]
        for x in range(modulus)
    ]


def _permutations(count: int, even: bool) -> list[list[int]]:
    """Return the multiplication table of the permutations of `count` things, or of the even ones.

    State and symbols are permutations in lexicographic order, the identity first; a symbol is applied after the state.
    """
    group = [
        p
        for p in itertools.permutations(range(count))
        if not even or sum(a > b for a, b in itertools.combinations(p, 2)) % 2 == 0
    ]
    index = {p: i for i, p in enumerate(group)}
    return [[index[tuple(symbol[i] for i in state)] for symbol in group] for state in group]


AUTOMATA: dict[str, tuple[str, list[list[int]]]] = {
    "parity": ("parity of ones", [[0, 1], [1, 0]]),
    "cycle": ("position on a cycle of five", [[x, (x + 1) % 5, (x - 1) % 5] for x in range(5)]),
    "arithmetic": ("arithmetic modulo 5", _affine(5)),
    "s3": ("permutations of three things", _permutations(3, even=False)),
    "a5": ("even permutations of five things", _permutations(5, even=True)),
}
"""Titles and transition tables `next[state][symbol]` of automata, by name; state 0 is the first.

All are groups. A₅ is not solvable, and its word problem is complete for NC¹ (Barrington 1989; Liu et al. 2023)."""
