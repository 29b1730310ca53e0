"""Checks of answers: values within a tolerance, and functions by their results on several inputs."""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from s2s.errors import UserError
from s2s.recipe.wording import suggestion

LABS = ("attention", "gradients", "translation", "own_data")
"""Notebooks with exercises, which are modules of this package."""
_TOLERANCE = 1e-3
_LONGEST_SHOWN = 60  # characters of an argument or a result in a message


@dataclass(frozen=True)
class Exercise:
    """An exercise of a lab.

    Attributes:
        solution: Function whose result is the right answer; with `tried_on`, the right answer itself.
        hint: Sentence shown beside a wrong answer.
        tried_on: Arguments with which an answer that is a function is called.
        accepts: Check of a result beside the arguments, for exercises with several right answers; None: results must
            equal those of the solution.
    """

    solution: Callable[..., object]
    hint: str
    tried_on: Sequence[tuple[object, ...]] = ()
    accepts: Callable[..., bool] | None = None

    def mistake(self, answer: object) -> str:
        """Describe the first difference between an answer and the solution; empty if the answer is right."""
        if not self.tried_on:
            return "" if are_equal(answer, self.solution()) else f"Your answer is {_shown(answer)}."
        if not callable(answer):
            return "The answer is a function: give its name, without calling it."
        for arguments in self.tried_on:
            call = f"{self.solution.__name__}({', '.join(map(_shown, arguments))})"
            try:
                # An answer may change what it is given.
                found = answer(*copy.deepcopy(arguments))
            except Exception as error:  # of the student's code
                return f"{call} raises {type(error).__name__}: {error}."
            if found is None and self.solution(*arguments) is not None:
                return f"{call} returns None."
            if self.accepts is not None:
                if not self.accepts(*arguments, found):
                    return f"{call} returns {_shown(found)}."
            elif not are_equal(found, wanted := self.solution(*arguments)):
                return f"{call} returns {_shown(found)} instead of {_shown(wanted)}."
        return ""


def are_equal(found: object, wanted: object) -> bool:
    """Compare an answer with the right one: numbers and arrays within 0.1 %, everything else exactly.

    Example:
        >>> are_equal([0.33333, 1], (1 / 3, 1.0)), are_equal("Yes", "yes")
        (True, False)
    """
    if isinstance(wanted, Mapping):
        return (
            isinstance(found, Mapping)
            and found.keys() == wanted.keys()
            and all(are_equal(found[key], value) for key, value in wanted.items())
        )
    try:
        numbers, right = (np.asarray(each, dtype=float) for each in (found, wanted))
    except (TypeError, ValueError):
        return type(found) is type(wanted) and found == wanted
    return numbers.shape == right.shape and np.allclose(numbers, right, _TOLERANCE, _TOLERANCE * 1e-3, equal_nan=True)


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        value = value.round(4).tolist()
    text = repr(round(value, 4) if isinstance(value, float) else value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


_checked: dict[str, bool] = {}


def find(name: str) -> Exercise:
    """Return an exercise by its name, such as `attention.1`.

    Raises:
        UserError: There is no such exercise.
    """
    lab, _, number = name.partition(".")
    if lab in LABS:
        exercises: Sequence[Exercise] = import_module(f"s2s.labs.{lab}").EXERCISES
        if number.isdecimal() and 1 <= int(number) <= len(exercises):
            return exercises[int(number) - 1]
        remedy = f"{lab} has the exercises {lab}.1 to {lab}.{len(exercises)}"
    else:
        remedy = suggestion(lab, list(LABS))
    raise UserError(f"there is no exercise {name!r}", remedy=remedy)


def check(name: str, answer: object) -> None:
    """Print whether an answer is right, and a hint if it is not.

    Args:
        name: Exercise, such as `attention.1`.
        answer: A value, or a function, which is called with several inputs.

    Raises:
        UserError: There is no such exercise.
    """
    exercise = find(name)
    mistake = exercise.mistake(answer)
    _checked[name] = not mistake
    print(f"{name}: not yet. {mistake} Hint: {exercise.hint}" if mistake else f"{name}: right.")


def answer(name: str) -> Callable[..., object]:
    """Return the function of a solution, with which a notebook goes on where the exercise was left out.

    Args:
        name: Exercise, such as `attention.2`.

    Raises:
        UserError: There is no such exercise.

    Example:
        >>> answer("attention.2")([0.0, 0.0]).tolist()
        [0.5, 0.5]
    """
    return find(name).solution


def solution(name: str) -> None:
    """Print the code of a solution.

    Args:
        name: Exercise, such as `attention.1`.

    Raises:
        UserError: There is no such exercise.
    """
    print(inspect.getsource(find(name).solution))


def summary(lab: str) -> None:
    """Print how many exercises of a lab were answered right in this session, and the others.

    Args:
        lab: Name of the notebook, such as `attention`.

    Raises:
        UserError: There is no such lab.
    """
    find(f"{lab}.1")
    exercises: Sequence[Exercise] = import_module(f"s2s.labs.{lab}").EXERCISES
    names = [f"{lab}.{number}" for number, _ in enumerate(exercises, start=1)]
    left = [name for name in names if not _checked.get(name)]
    print(f"{len(names) - len(left)} of {len(names)} exercises solved" + (f"; open: {', '.join(left)}" if left else ""))
