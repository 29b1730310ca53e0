"""A group of commands that answers a mistyped one with the nearest."""

import difflib

import click


class Group(click.Group):
    """A group whose unknown commands are told with what was probably meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names.

        Raises:
            UsageError: there is none of that name.
        """
        known = self.list_commands(ctx)
        word = click.utils.make_str(args[0])
        if word not in known and not word.startswith("-"):
            near = difflib.get_close_matches(word, known, n=1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
            ctx.fail(f"No such command {word[:60]!r}; {meant}")
        return super().resolve_command(ctx, args)
