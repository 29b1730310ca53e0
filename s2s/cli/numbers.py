"""Numbers of options."""

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A number within bounds; what is endless, or no number, is none of any option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a `UsageError`."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return found
