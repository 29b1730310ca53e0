"""What a recipe says of masked pieces."""

from typing import Annotated

from pydantic import Field, model_validator

from s2s.recipe.schema import Section, Seed, Share

Part = Annotated[float, Field(ge=0, le=1)]


class MaskingSettings(Section):
    """Which pieces a masked-language model must name (Devlin et al. 2019, section 3.1)."""

    share: Share = 0.15
    """Share of each text's pieces that are chosen, rounded to whole pieces, at least one."""
    masked: Part = 0.8
    """Share of the chosen ones that are read as the mask piece."""
    random: Part = 0.1
    """Share of the chosen ones that are read as a random piece; the others are read as they are."""
    begin: bool = False
    """Whether each text begins with the piece `<s>`, as it does for a classifier with `pooling: first`."""
    tie: bool = True
    """Whether the projection onto the pieces is the encoder's own table of them."""

    seed: Seed = 1
    """Which pieces are chosen; each epoch chooses others."""

    @model_validator(mode="after")
    def _parts_fit(self) -> "MaskingSettings":
        if self.masked + self.random > 1 + 1e-9:
            raise ValueError(f"masked ({self.masked}) and random ({self.random}) are more than the whole")
        return self
