"""Recipe sections for images: size, color channels and pixel normalization."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe.schema import Pixels, PositiveFloat, Section


class PixelSettings(Section):
    """Image preprocessing."""

    size: Pixels = 32
    """Height and width in pixels; images of another size are resized."""
    channels: Literal[1, 3] = 3
    """Number of color channels: 1 is grayscale, 3 is RGB."""
    mean: tuple[Annotated[float, Field(ge=-1000, le=1000)], ...] | None = None
    """Mean of each channel, where white is 1, which is subtracted from all pixels; null: the mean of the training
    images."""
    deviation: tuple[PositiveFloat, ...] | None = None
    """Standard deviation of each channel, by which the centered pixels are divided; null: that of the training
    images."""

    @model_validator(mode="after")
    def _channels_have_statistics(self) -> Self:
        for key, values in (("mean", self.mean), ("deviation", self.deviation)):
            if values is not None and len(values) != self.channels:
                raise ValueError(
                    f"{key} has {len(values)} numbers, but channels is {self.channels}; write one for each channel"
                )
        return self
