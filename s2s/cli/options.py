"""Arguments and options that several commands have."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from s2s.errors import UserError

FILE = click.Path(path_type=Path)

_REMOVED = {
    ("translate", "--engine"): "s2s computes with torch; docs/export.md shows how to run an export elsewhere",
}
"""Options that are gone, and what to use instead, by command and option."""


class Command(click.Command):
    """A command that refuses an option given twice, of which click would silently forget the first value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the words of the command line.

        Raises:
            UserError: an option that takes one value, or none, is given more than once.
        """
        try:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
        except click.NoSuchOption as error:
            if instead := _REMOVED.get((str(self.name), error.option_name)):
                raise click.UsageError(f"{error.format_message()}\n{instead}", ctx) from None
            raise
        for option in given:
            several = given.count(option)
            if several > 1 and isinstance(option, click.Option) and not (option.multiple or option.is_eager):
                name = max(option.opts, key=len)
                raise UserError(f"is given {several} times, and only the last would count", name, "give it once")
        return super().parse_args(ctx, args)


command = partial(click.command, cls=Command)


class _Text(click.ParamType):
    """Text of a person: what a terminal gives that is not UTF-8 is none, unless it names a file."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            if not Path(value).exists():
                spelt = value.encode("utf-8", "backslashreplace").decode()
                self.fail(f"{spelt[:60]!r} is not UTF-8 from character {error.start + 1} on", param, ctx)
        return value


def paths_and_overrides(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Words that name files or folders, and those that are `section.key=value`: what is there is a path."""
    # `Path.exists` raises where a word is too long for a name
    paths = [word for word in words if "=" not in word or os.access(word, os.F_OK)]
    return list(map(Path, paths)), [word for word in words if word not in paths]


TEXT = _Text()
run = click.argument("run", type=FILE)
overrides = click.argument("overrides", nargs=-1, metavar="[section.key=value]...")
checkpoint = click.option(
    "--checkpoint", help="best, last, average or a number; the average if there is one, else the best."
)
source = partial(click.option, "--input", "source", type=click.File("rb"), default="-")
output = click.option("--output", type=FILE, help="File to write; standard output if absent.")
beam = click.option("--beam", type=click.IntRange(1), help="Hypotheses kept at each step; the recipe's by default.")
json = click.option("--json", "file", type=FILE, help="Write everything to this file, too.")
