"""The kinds of numbers and texts in a recipe, each with the largest that research has a use for.

What lies beyond is a slip of the keyboard: it is told with the key, not by the machine that runs out of memory.
"""

from typing import Annotated

from pydantic import AfterValidator, Field

Probability = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Part = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e38)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=1e3)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]

# of a model
Width = Annotated[int, Field(gt=0, le=65_536)]
Inner = Annotated[int, Field(gt=0, le=262_144)]
Layers = Annotated[int, Field(gt=0, le=1_000)]
Length = Annotated[int, Field(gt=0, le=1_000_000)]

# of data
Pieces = Annotated[int, Field(gt=0, le=1_000_000)]
Examples = Annotated[int, Field(gt=0, le=10_000_000)]
Tokens = Annotated[int, Field(gt=0, le=100_000_000)]
Pixels = Annotated[int, Field(gt=0, le=4_096)]

# of a training and of a search
Updates = Annotated[int, Field(gt=0, le=1_000_000_000)]
Count = Annotated[int, Field(gt=0, le=10_000)]
Beam = Annotated[int, Field(gt=0, le=1_000)]
Threads = Annotated[int, Field(gt=0, le=4_096)]

Word = Annotated[str, Field(min_length=1, max_length=4_096)]
# a file system takes 255 bytes, and an unfinished folder's name is longer than the run's
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"has {', '.join(twice)} twice; name each class once")
    return names


Classes = Annotated[tuple[Word, ...], Field(min_length=2), AfterValidator(_different)]
Split = Examples | Word | tuple[Word, Word]
