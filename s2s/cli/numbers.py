"""Numbers of options."""

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A range that refuses nan, too: it is neither below nor above anything, so ends alone let it through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a `BadParameter`."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found
