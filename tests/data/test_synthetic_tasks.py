"""Synthetic tasks: answers, shortcuts, and reproducible examples."""

import itertools
from collections import Counter

import pytest
import torch

from s2s.data.synthetic_tasks import (
    AUTOMATA,
    FIRST,
    NO_LABEL,
    Addition,
    AssociativeRecall,
    Copying,
    Reversal,
    StateTracking,
)
from s2s.data.tokenizers import BOS, EOS


def _chance(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_copying_asks_for_the_source() -> None:
    batch = Copying(5, (6,), (6,)).draw(6, 3, _chance())
    assert batch.target is not None
    assert batch.written is not None
    assert torch.equal(batch.target, batch.source)
    assert batch.written[:, 0].eq(BOS).all()
    assert torch.equal(batch.written[:, 1:], batch.source[:, :-1])
    assert batch.source[:, -1].eq(EOS).all()


def test_copying_is_right_only_if_the_whole_string_is() -> None:
    task = Copying(5, (2,), (2,))
    batch = task.draw(2, 2, _chance())
    scores = torch.nn.functional.one_hot(batch.wanted, task.vocabulary_size).float()
    scores[1, 0] = scores[1, 0].roll(1)
    assert task.right(batch, scores).tolist() == [[True], [False]]


def test_recall_answers_follow_from_the_pairs() -> None:
    task = AssociativeRecall((4,), (4,), kinds=9)
    batch = task.draw(4, 20, _chance())
    assert batch.labels is not None
    assert batch.written is not None
    for source, labels, asked, wanted in zip(batch.source, batch.labels, batch.written, batch.wanted, strict=True):
        pairs = dict(zip(source[0::2].tolist(), source[1::2].tolist(), strict=True))
        assert sorted(asked.tolist()) == sorted(pairs)
        assert [pairs[key] for key in asked.tolist()] == wanted.tolist()
        assert labels[0::2].eq(NO_LABEL).all()
        assert (FIRST + labels[1::2]).tolist() == list(pairs)
    assert AssociativeRecall((4,), (4,), joined=False).draw(4, 2, _chance()).labels is None


def _parity(symbols: list[int]) -> int:
    return sum(symbols) % 2


def _cycle(symbols: list[int]) -> int:
    return (symbols.count(1) - symbols.count(2)) % 5


def _arithmetic(symbols: list[int]) -> int:
    x = 0
    for symbol in symbols:
        x = x + symbol if symbol < 5 else x * (symbol - 4)
    return x % 5


def _permuted(count: int, even: bool):
    def parity(order: tuple[int, ...]) -> int:
        matrix = torch.eye(count)[list(order)]
        return round(float(torch.linalg.det(matrix)))

    group = [each for each in itertools.permutations(range(count)) if not even or parity(each) == 1]

    def solve(symbols: list[int]) -> int:
        places = list(range(count))
        for symbol in symbols:
            places = [group[symbol][place] for place in places]
        return group.index(tuple(places))

    return solve


_SOLVERS = {
    "parity": _parity,
    "cycle": _cycle,
    "arithmetic": _arithmetic,
    "s3": _permuted(3, False),
    "a5": _permuted(5, True),
}


@pytest.mark.parametrize("name", AUTOMATA)
def test_state_tracking_equals_another_solver(name: str) -> None:
    task = StateTracking(name, (7,), (7,))
    batch = task.draw(7, 30, _chance())
    for source, states in zip((batch.source - FIRST).tolist(), batch.wanted.tolist(), strict=True):
        assert states == [_SOLVERS[name](source[: i + 1]) for i in range(7)]


@pytest.mark.parametrize("name", AUTOMATA)
def test_every_symbol_permutes_the_states(name: str) -> None:
    table = AUTOMATA[name][1]
    for column in zip(*table, strict=True):
        assert sorted(column) == list(range(len(table)))


def test_recall_shortcut_is_the_most_frequent_value() -> None:
    task = AssociativeRecall((4,), (4,), kinds=3)
    counts = [max(Counter(each).values()) for each in itertools.product(range(3), repeat=4)]
    assert task.shortcut_accuracy(4) == pytest.approx(sum(counts) / len(counts) / 4)
    assert AssociativeRecall((1,), (1,)).shortcut_accuracy(1) == pytest.approx(1.0)


def test_copying_shortcut_writes_one_order_of_each_multiset() -> None:
    task = Copying(3, (4,), (4,))
    texts = list(itertools.product(range(3), repeat=4))
    # one text of each multiset is written
    assert task.shortcut_accuracy(4) == pytest.approx(len({tuple(sorted(text)) for text in texts}) / len(texts))


@pytest.mark.parametrize("kind", [Copying, Reversal])
def test_copying_shortcut_writes_the_most_frequent_symbol_that_is_left(kind: type[Copying]) -> None:
    # with the true symbols before, as with teacher forcing
    def right(text: tuple[int, ...]) -> int:
        left = [max(sorted(set(text[i:])), key=text[i:].count) for i in range(len(text))]
        return sum(map(int.__eq__, left, text)) + 1

    texts = list(itertools.product(range(3), repeat=5))
    found = kind(3, (5,), (5,), whole=False).shortcut_accuracy(5)
    assert found == pytest.approx(sum(map(right, texts)) / len(texts) / 6)


@pytest.mark.parametrize(("name", "share"), [("parity", 1 / 2), ("cycle", 1 / 3), ("s3", 1 / 6), ("a5", 1 / 60)])
def test_state_shortcut_cannot_know_a_missed_symbol(name: str, share: float) -> None:
    assert StateTracking(name, (3,), (3,)).shortcut_accuracy(3) == pytest.approx(share)


@pytest.mark.parametrize("name", AUTOMATA)
@pytest.mark.parametrize("size", [1, 2])
def test_state_shortcut_is_the_best_guess_without_one_symbol(name: str, size: int) -> None:
    # by enumeration of all strings, with the symbol missing that is guessed best
    task = StateTracking(name, (size,), (size,))
    texts = list(itertools.product(range(task.symbols), repeat=size))
    found = []
    for missing in range(size):
        ends: dict[tuple[int, ...], list[int]] = {}
        for text in texts:
            ends.setdefault(text[:missing] + text[missing + 1 :], []).append(_SOLVERS[name](list(text)))
        found.append(sum(max(Counter(states).values()) for states in ends.values()) / len(texts))
    assert task.shortcut_accuracy(size) == pytest.approx(max(found))


@pytest.mark.parametrize(
    "task",
    [Copying(4, (5,), (5,)), AssociativeRecall((5,), (5,)), StateTracking("s3", (5,), (5,))],
    ids=lambda t: t.name,
)
def test_examples_depend_on_the_generator_alone(task) -> None:
    first, again, other = (task.draw(5, 8, _chance(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.source, again.source)
    assert torch.equal(first.wanted, again.wanted)
    assert not torch.equal(first.source, other.source)
    assert int(first.source.max()) < task.vocabulary_size


def test_addition_adds_the_numbers() -> None:
    batch = Addition((6,), (6,)).draw(6, 30, _chance())
    for source, wanted in zip(batch.source[:, :-1] - FIRST, batch.wanted[:, :-1] - FIRST, strict=True):
        one, two, total = (
            int("".join(map(str, digits.flip(0).tolist()))) for digits in (source[0::2], source[1::2], wanted)
        )
        assert one + two == total


def test_addition_shortcut_is_right_without_a_carry() -> None:
    batch = Addition((3,), (3,)).draw(3, 4000, _chance())
    sums = (batch.source[:, :-1] - FIRST).unflatten(1, (-1, 2)).sum(dim=2)
    answers = torch.cat((FIRST + sums % 10, torch.full((len(sums), 1), FIRST), torch.full((len(sums), 1), EOS)), dim=1)
    for whole in (True, False):
        task = Addition((3,), (3,), whole)
        right = task.right(batch, torch.nn.functional.one_hot(answers, task.vocabulary_size).float())
        assert float(right.float().mean()) == pytest.approx(task.shortcut_accuracy(3), abs=0.02)


def test_copying_scores_each_symbol_or_the_whole_string() -> None:
    task = Copying(5, (4,), (4,), whole=False)
    batch = task.draw(4, 4000, _chance())
    most = [batch.source[:, first:-1].mode(dim=1).values for first in range(4)]
    answers = torch.stack((*most, batch.source[:, -1]), dim=1)
    right = task.right(batch, torch.nn.functional.one_hot(answers, task.vocabulary_size).float())
    assert right.shape == batch.source.shape
    assert float(right.float().mean()) == pytest.approx(task.shortcut_accuracy(4), abs=0.02)


def test_reversal_asks_for_the_source_in_reverse() -> None:
    batch = Reversal(5, (6,), (6,)).draw(6, 3, _chance())
    assert torch.equal(batch.wanted[:, :-1].flip(1), batch.source[:, :-1])
    assert batch.written is not None
    assert torch.equal(batch.written[:, 1:], batch.wanted[:, :-1])
