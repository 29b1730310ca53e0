"""Checks that evaluations can be compared: the same examples, scored in the same way."""

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
    """Refuses evaluations in which not all were asked what the first was.

    Raises:
        UserError: one was asked something else.
    """
    first = evaluations[0]
    for other in evaluations[1:]:
        if asked(other) != asked(first):
            raise UserError(f"{first.run} and {other.run} have different {first.split} sets", remedy=remedy)


def check_case(lowercase: Sequence[bool]) -> None:
    """Refuses to compare evaluations of which some are without regard to case and others are not.

    Raises:
        UserError: they are.
    """
    if len(set(lowercase)) > 1:
        what = "some of the runs write small letters alone and are scored without regard to case, others are not"
        raise UserError(what, remedy="add --lowercase, which scores all of them so")


def check_tokenizers(tokenizers: Sequence[str]) -> None:
    """Refuses to compare evaluations whose BLEU was computed with different tokenizers.

    Raises:
        UserError: they were.
    """
    if len(set(tokenizers)) > 1:
        what = f"the runs are scored with different tokenizers: {', '.join(dict.fromkeys(tokenizers))}"
        raise UserError(what, remedy="add --tokenize, which scores all of them with one")
