"""Command `s2s`: a lazy group, so that help and usage errors import little."""

import codecs
import difflib
import importlib
import io
import os
import sys
from pathlib import Path

import click

import s2s
from s2s.cli.options import REPLACED, Command
from s2s.errors import Stopped, UserError, format_message
from s2s.files import explain_os_error
from s2s.launch import check_single_process, detect_torchrun

# Help of each command, in groups. Its module in this package has the same name, except for report.
_GROUPS = {
    "Train": {
        "train": "Train a model from a recipe, or resume a run.",
        "new": "Write a recipe for your own files.",
        "average": "Average the weights of a run's last checkpoints.",
        "data": "Check a corpus before training.",
        "recipe": "Validate, show, list and copy recipes; list models.",
    },
    "Use": {
        "translate": "Translate lines of text.",
        "classify": "Classify lines of text, or images.",
        "caption": "Caption images.",
        "generate": "Continue a text with a language model.",
        "fill": "Fill a blank with a masked-language model.",
        "serve": "Serve trained models over HTTP.",
        "export": "Export a run to CTranslate2, ONNX or the Hugging Face hub.",
    },
    "Measure": {
        "runs": "List runs with their scores, and means over seeds.",
        "evaluate": "Score runs on their test sets, or score files of translations.",
        "compare": "Compare models with every question of the classroom table.",
        "report": "Render the report of a comparison again.",
        "reproduce": "Reproduce a published result.",
    },
    "Understand": {
        "inspect": "Show attention, queries, keys, values, saliency and alignments.",
        "diagnose": "Run numerical self-tests and look for signs of a bad run.",
    },
}
_COMMANDS = {name: text for group in _GROUPS.values() for name, text in group.items()}
_MODULES = {"report": "compare"}


_SMALLER = (
    "free memory, or use smaller batches: decoding.batch sentences with --beam or decoding.beam hypotheses each in a "
    "search, batches.tokens tokens in a validation"
)


# Messages of the dynamic linker if there is no memory for a library.
_NO_ROOM_FOR_LIBRARIES = ("failed to map segment", "annot allocate memory")


class Group(click.Group):
    """A group that suggests a command for an unknown name."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names, or raise a `UsageError`."""
        known = self.list_commands(ctx)
        word = click.utils.make_str(args[0])
        if word not in known and not word.startswith("-"):
            near = difflib.get_close_matches(word, known, n=1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
            instead = REPLACED.get(word) if ctx.parent is None else None
            ctx.fail(
                f"No such command {word[:60]!r}; {meant}"
                if instead is None
                else f"No such command {word!r}.\n{instead}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the whole first sentence of their help, which click would cut."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(10_000)) for name, each in found.items() if each])


class LazyGroup(Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all commands, in the order of the help page."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name != "train":
            check_single_process(cmd_name)
        return getattr(importlib.import_module(f"s2s.cli.{_MODULES.get(cmd_name, cmd_name)}"), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group, without importing them."""
        width = max(map(len, _COMMANDS))
        for title, listed in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in listed.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(s2s.__version__, prog_name="s2s")
def commands() -> None:
    """Train, evaluate and compare sequence-to-sequence models."""


def main() -> None:
    """Run the command line. A user error prints one message and exits with status 2."""
    # Set before torch loads OpenMP: waiting threads should sleep soon instead of spinning. If another program uses
    # one of two cores, training measures 2 to 10 times as fast with this setting; alone, as fast as without.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    _prepare_streams()
    try:
        _check_current_folder()
        commands(prog_name="s2s", standalone_mode=False)
        sys.stdout.flush()
    except Stopped as stop:
        _tell(str(stop))
        sys.exit(128 + stop.signal)
    except UserError as error:
        _tell(str(error))
        sys.exit(2)
    except click.ClickException as error:
        _tell_of_usage(error)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _tell("stopped")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has closed it, so no message can reach it.
        sys.exit(1)
    except OSError as error:
        if error.errno is None:
            raise
        _tell(str(explain_os_error(error)))
        sys.exit(2)
    except ImportError as error:
        if not any(words in str(error) for words in _NO_ROOM_FOR_LIBRARIES):
            raise
        what = f"no memory to load a library: {str(error).strip().splitlines()[-1]}"
        _tell(str(UserError(what, remedy="free memory, or raise the limit of this process (ulimit -v)")))
        sys.exit(2)
    except (RuntimeError, MemoryError) as error:
        # torch is already imported, unless a bug raised the error earlier.
        from s2s.training.device import is_out_of_memory, strip_source_locations

        if not is_out_of_memory(error):
            raise
        _tell(str(UserError(f"no memory: {strip_source_locations(error)}", remedy=_SMALLER)))
        sys.exit(2)
    finally:
        _let_go_of_output()


def _prepare_streams() -> None:
    # Open standard streams on /dev/null that the caller (a scheduler) has closed.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  it stays open
    # Escape characters that the encoding of stdout lacks, instead of failing.
    if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")


def _check_current_folder() -> None:
    """Refuse a removed working directory, where libraries fail with unclear errors."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UserError("the current folder was deleted", remedy="change to an existing one, e.g. cd ~") from None


def _tell(message: str) -> None:
    """Print an error; of several torchrun processes that end together, one prints it."""
    try:
        launch = detect_torchrun()
    except UserError:
        launch = None
    if launch is None or launch.claim_error_report():
        click.echo(format_message(message), err=True)


def _tell_of_usage(error: click.ClickException) -> None:
    """Print a mistake in the command line as other errors; the help of a command without arguments whole."""
    shown = io.StringIO()
    error.show(shown)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(shown.getvalue(), err=True, nl=False)
    else:
        _tell(shown.getvalue().removesuffix("\n"))


def _let_go_of_output() -> None:
    """Avoid a second error at exit if standard output cannot be written any more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
