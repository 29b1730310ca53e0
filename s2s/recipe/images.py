"""What recipes say of images, whatever is learned of them: their size, their colours, and how these are scaled."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe.schema import Pixels, PositiveFloat, Section


class PixelSettings(Section):
    """What images are made before a model reads them."""

    size: Pixels = 32
    """Height and width in pixels; images of another size are scaled."""
    channels: Literal[1, 3] = 3
    """1: grey; 3: red, green, blue."""
    mean: tuple[Annotated[float, Field(ge=-1000, le=1000)], ...] | None = None
    """Mean of each channel, as a share of white, which is subtracted from all pixels; that of the training images when
    null."""
    deviation: tuple[PositiveFloat, ...] | None = None
    """Standard deviation of each channel, by which what is left is divided; that of the training images when null."""

    @model_validator(mode="after")
    def _channels_have_statistics(self) -> Self:
        for key, values in (("mean", self.mean), ("deviation", self.deviation)):
            if values is not None and len(values) != self.channels:
                raise ValueError(
                    f"{key} has {len(values)} numbers, but channels is {self.channels}; write one for each channel"
                )
        return self
