"""Arguments, options and checks that commands share."""

import math
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from s2s.arguments import check_unique
from s2s.errors import UserError

if TYPE_CHECKING:
    from s2s.recipe.schema import TrainRecipe

FILE = click.Path(path_type=Path)

REPLACED = {
    "align": "use `s2s inspect RUN --align`",
    "doctor": "use `s2s diagnose RUN`",
    "explain": "use `s2s diagnose RUN`",
    "help": "use `s2s --help` or `s2s COMMAND --help`",
    "models": "use `s2s recipe models`",
    "probe": "use `s2s evaluate RUN --bias FILE`, `s2s evaluate RUN --induction LENGTH` or `s2s fill RUN TEXT --words`",
    "score": "use `s2s evaluate --hypotheses FILE --reference FILE`",
    "version": "use `s2s --version`",
    "translate --engine": "s2s computes with torch; docs/export.md shows how to run an export elsewhere",
}
"""Commands and options that s2s does not have (any more), and what to use instead."""


class Command(click.Command):
    """A command that refuses a repeated option, where click silently uses the last value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line."""
        try:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
        except click.NoSuchOption as error:
            if instead := REPLACED.get(f"{self.name} {error.option_name}"):
                raise click.UsageError(f"{error.format_message()}\n{instead}", ctx) from None
            key = error.option_name.lstrip("-")
            if "." not in key:
                key = self._recipe_key(key)
            if key:
                raise click.UsageError(_without_dashes(error.option_name, key, args), ctx) from None
            raise
        for option in given:
            several = given.count(option)
            if several > 1 and isinstance(option, click.Option) and not (option.multiple or option.is_eager):
                name = max(option.opts, key=len)
                raise UserError(f"is given {several} times", name, "give it once")
        return super().parse_args(ctx, args)

    def _recipe_key(self, option: str) -> str:
        """Return the only recipe key with the name of an unknown option.

        It is empty if there is none or several, or if the command takes no keys.
        """
        if not any(param.name == "overrides" for param in self.params):
            return ""
        from s2s.recipe.messages import keys_named
        from s2s.run.tasks import schemas

        try:
            keys = keys_named(option.replace("-", "_"), schemas())
        except UserError:
            # A package of a task or a model is broken; that is not the mistake of this command line.
            return ""
        return keys[0] if len(keys) == 1 else ""


def _without_dashes(option: str, key: str, args: Sequence[str]) -> str:
    """Return the message for a key of a recipe that is written as an option, `--training.updates 5`."""
    given = next((word for word in args if word.partition("=")[0] == option), option)
    after = [*args[args.index(given) + 1 :], "VALUE"][0] if given in args else "VALUE"
    value = given.partition("=")[2] if "=" in given else after
    return f"No such option: {option}\nwrite {key}={value}, without dashes"


def printer(quiet: bool, err: bool = False) -> Callable[[str], None]:
    """Return a function that prints a line; with `quiet`, it prints nothing.

    Args:
        err: Print to standard error.
    """
    return (lambda line: None) if quiet else partial(click.echo, err=err)


def verbose(text: str) -> Callable[[Any], Any]:
    """Return the option `-v`, with what it does in this command."""
    return click.option("-v", "--verbose", is_flag=True, help=text)


command = partial(click.command, cls=Command)


def examples(*lines: str) -> str:
    """Format the epilog of a command: example command lines, which tests execute."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class Number(click.FloatRange):
    """A finite number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or raise a `UsageError`."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


# An override, `section.key=value`, of a single word; the group is the key.
_KEY = re.compile(r"[a-z]+\.(?:\w+\.)*([a-z_0-9]+)=\S*")


class _Text(click.ParamType):
    """Text in UTF-8, or the name of an existing file in any encoding."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            # `Path.exists` raises an error if a text is too long for a file name.
            if not os.access(value, os.F_OK):
                spelt = value.encode("utf-8", "backslashreplace").decode()
                self.fail(f"{spelt[:60]!r} is not UTF-8 at character {error.start + 1}", param, ctx)
        key = _KEY.fullmatch(value)
        if isinstance(param, click.Argument) and ctx and key and not os.access(value, os.F_OK):
            option = "--" + key[1].replace("_", "-")
            known = any(option in each.opts for each in ctx.command.params)
            instead = f"write {option}" if known else f"`s2s {ctx.command.name}` changes no keys"
            what = f"{value[:60]!r} is a key of a recipe; {instead}"
            self.fail(f"{what} (if it is a text, begin it with a space)", param, ctx)
        return value


def _overrides(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    check_unique(value)
    return value


def paths_and_overrides(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Split arguments into paths and overrides (`section.key=value`)."""
    # `Path.exists` raises an error if a word is too long for a file name.
    paths = [word for word in words if "=" not in word or os.access(word, os.F_OK)]
    overrides = [word for word in words if word not in paths]
    check_unique(overrides)
    return list(map(Path, paths)), overrides


TEXT = _Text()
run = click.argument("run", type=FILE)
overrides = click.argument("overrides", nargs=-1, metavar="[section.key=value]...", callback=_overrides)
checkpoint = click.option(
    "--checkpoint", help="Checkpoint: best, last, average or a number; default: average if there is one, else best."
)
source = partial(click.option, "--input", "source", type=click.File("rb"), default="-")
texts = click.argument("texts", nargs=-1, type=TEXT, metavar="[TEXT]...")


def check_texts(texts: Sequence[str]) -> None:
    """Refuse texts of the command line together with --input."""
    if texts and click.get_current_context().get_parameter_source("source") is not click.core.ParameterSource.DEFAULT:
        raise UserError("TEXT and --input exclude each other", "--input", "leave one of them out")


def check_beam(recipe: "TrainRecipe", beam: int | None) -> None:
    """Refuse a beam size for a recipe that samples."""
    from s2s.recipe.schema import SearchRecipe

    if beam and isinstance(recipe, SearchRecipe) and recipe.decoding.sample:
        remedy = "leave it out, or search instead of sampling: decoding.sample=false"
        raise UserError("has no effect on sampling", f"--beam {beam}", remedy)


quiet = click.option("-q", "--quiet", is_flag=True, help="Print no progress and no warnings.")
output = click.option("--output", type=FILE, help="Write to this file; default: standard output.")
beam = click.option("--beam", type=click.IntRange(1), help="Beam size, in hypotheses; default: the recipe's.")
json = click.option("--json", "file", type=FILE, help="Also write the full results to this file, as JSON.")
