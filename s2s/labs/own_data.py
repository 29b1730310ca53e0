"""Solutions of the lab on one's own data (docs/labs/own_data.ipynb)."""

import random
from collections.abc import Mapping, Sequence

import numpy as np

from s2s.labs.exercise import Exercise

Pair = tuple[str, str]
# fmt: off
_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
# fmt: on
_PAIRS: list[Pair] = [("two", "2"), ("one", "1"), ("two", "2"), ("six", "6"), ("two", "3"), ("ten", "10")]


def number_pairs(count: int, seed: int = 1) -> list[Pair]:
    """Numbers below a million in words and in digits, some of them more than once: the data of the lab.

    Example:
        >>> number_pairs(1)
        [('one hundred forty thousand eight hundred ninety-one', '140891')]
    """
    generator = random.Random(seed)
    return [(in_words(number), str(number)) for number in (generator.randrange(1_000_000) for _ in range(count))]


def in_words(number: int) -> str:
    """Write a number below a million in English words.

    Example:
        >>> in_words(20_317)
        'twenty thousand three hundred seventeen'
    """
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = f" {in_words(number % size)}" if number % size else ""
            return f"{in_words(number // size)} {name}{rest}"
    if number < len(_ONES):
        return _ONES[number]
    ones = f"-{_ONES[number % 10]}" if number % 10 else ""
    return f"{_TENS[number // 10 - 2]}{ones}"


def count_duplicates(pairs: Sequence[Pair]) -> int:
    """Number of pairs that occurred before."""
    return len(pairs) - len(set(pairs))


def contradictions(pairs: Sequence[Pair]) -> list[str]:
    """Sources with more than one target, sorted."""
    targets: dict[str, set[str]] = {}
    for source, target in pairs:
        targets.setdefault(source, set()).add(target)
    return sorted(source for source, found in targets.items() if len(found) > 1)


def split(pairs: Sequence[Pair], held_out: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Training and test pairs in random order: `held_out` different test sources, none of which is trained on."""
    sources = sorted({source for source, _ in pairs})
    chosen = set(random.Random(seed).sample(sources, held_out))
    test = {source: (source, target) for source, target in pairs if source in chosen}
    return [pair for pair in pairs if pair[0] not in chosen], list(test.values())


def _splits_well(pairs: Sequence[Pair], held_out: int, seed: int, found: object) -> bool:
    del seed  # any random choice will do
    if not isinstance(found, tuple) or len(found) != 2:
        return False
    train, test = ([tuple(pair) for pair in part] for part in found)
    trained, tested = {source for source, _ in train}, {source for source, _ in test}
    return (
        len(test) == len(tested) == held_out
        and not trained & tested
        and set(train) | set(test) <= set(pairs)
        and trained | tested == {source for source, _ in pairs}
    )


def leaks(train: Sequence[Pair], test: Sequence[Pair]) -> float:
    """Share of the test sources that are training sources, too."""
    known = {source for source, _ in train}
    return sum(source in known for source, _ in test) / len(test)


def length_limit(texts: Sequence[str], share: float) -> int:
    """Smallest number of words that a share of the texts does not exceed."""
    lengths = sorted(len(text.split()) for text in texts)
    return lengths[max(0, int(np.ceil(share * len(lengths))) - 1)]


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Percentage of outputs that equal their reference."""
    return 100 * sum(map(str.__eq__, outputs, references)) / len(outputs)


def found_signs(report: Mapping[str, list[str]]) -> list[str]:
    """Names of the signs of a bad run that `s2s diagnose --json` found."""
    return list(report["found"])


_TEXTS = ["a b c", "a", "a b", "a b c d e f"]
EXERCISES = (
    Exercise(count_duplicates, "a set has each pair once.", [(_PAIRS,)]),
    Exercise(contradictions, "collect the set of targets of each source.", [(_PAIRS,)]),
    Exercise(
        split,
        "choose sources, not pairs: no test source may be trained on, and all pairs are of the data.",
        [(_PAIRS, 2, 1), (_PAIRS, 3, 2)],
        _splits_well,
    ),
    Exercise(leaks, "put the training sources into a set.", [(_PAIRS[:2], _PAIRS[2:])]),
    Exercise(
        length_limit, "sort the lengths; the share × number-th of them, rounded up.", [(_TEXTS, 0.75), (_TEXTS, 1.0)]
    ),
    Exercise(exact_match, "count equal texts, in percent.", [(["1", "2"], ["1", "3"])]),
    Exercise(found_signs, 'the key "found" has their names.', [({"found": ["over-fitted"]},)]),
)
