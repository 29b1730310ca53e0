"""Checks that evaluations are comparable: same examples, same scoring."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from s2s.errors import UserError
from s2s.tasks.base import Evaluation

E = TypeVar("E", bound=Evaluation)


def check_comparable(
    evaluations: Sequence[E],
    asked: Callable[[E], object],
    remedy: str = "compare runs on the same data, e.g. by data.corpus, data.root and data.test overrides",
) -> None:
    """Refuse evaluations of different examples.

    Args:
        asked: Returns the examples of an evaluation, as a comparable object.
        remedy: Remedy for the error message.

    Raises:
        UserError: An evaluation has other examples than the first.
    """
    first = evaluations[0]
    for other in evaluations[1:]:
        if asked(other) != asked(first):
            raise UserError(f"{first.run} and {other.run} have different {first.split} sets", remedy=remedy)


def check_case(lowercase: Sequence[bool]) -> None:
    """Refuse to compare cased with case-insensitive scores.

    Args:
        lowercase: True for each evaluation without regard to case.

    Raises:
        UserError: The values differ.
    """
    if len(set(lowercase)) > 1:
        what = "some of the runs write small letters alone and are scored without regard to case, others are not"
        raise UserError(what, remedy="add --lowercase, which scores all of them so")


def check_tokenizers(tokenizers: Sequence[str]) -> None:
    """Refuse to compare BLEU scores of different tokenizers.

    Args:
        tokenizers: sacreBLEU tokenizer of each evaluation.

    Raises:
        UserError: The tokenizers differ.
    """
    if len(set(tokenizers)) > 1:
        what = f"the runs are scored with different tokenizers: {', '.join(dict.fromkeys(tokenizers))}"
        raise UserError(what, remedy="add --tokenize, which scores all of them with one")
