"""Help of every command: options, wording, and examples, which are executed."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from s2s.cli.main import commands
from tests.faults.world import make_world

# of the comparison: their examples would measure for minutes
WITHOUT_EXAMPLES = ("compare", "report", "reproduce", "new images", "new text")
# tests/serving, tests/run/test_captioning.py, tests/run/test_overfitting.py, tests/docs/pages.py
ELSEWHERE = re.compile("s2s serve|s2s caption|--overfit|s2s fill")
BRIEF = ["training.updates=2", "training.warmup=1", "validation.every=2", "data.train=300", "data.validation=8",
         "data.test=8", "tokenizer.size=450", "model.width=16", "model.heads=2", "model.feedforward=16",
         "decoding.max_ratio=0.5", "device.precision=fp32", "validation.sentences=2"]  # fmt: skip
NOT_GRU = ("model.heads", "model.feedforward")


def _leaves(group: click.Group, *names: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command
        if isinstance(command, click.Group):
            yield from _leaves(command, *names, name)
        else:
            yield " ".join([*names, name]), command


COMMANDS = dict(_leaves(commands))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_documents_every_option_and_starts_with_a_verb(name):
    command = COMMANDS[name]
    assert [p.name for p in command.params if isinstance(p, click.Option) and not p.help] == []
    verb = (command.help or "").split(maxsplit=1)[0]
    assert re.fullmatch("[A-Z][a-z]+", verb)
    assert not verb.endswith("s")
    assert name in WITHOUT_EXAMPLES or "Examples:" in (command.epilog or "")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with what the examples name."""
    folder = tmp_path_factory.mktemp("help")
    world = make_world(folder / "world", "tcml")
    (folder / "runs").mkdir()
    for name, run in {"translate": "t", "other": "t", "classes": "c", "masked": "m", "language": "l"}.items():
        shutil.copytree(world / "runs" / run, folder / "runs" / name)
    for kind in ("gru", "transformer"):
        brief = [word for word in BRIEF if kind == "transformer" or word.partition("=")[0] not in NOT_GRU]
        words = ["train", "translate", f"model.kind={kind}", f"run.dir={folder / 'runs' / kind}", "--seeds", "2"]
        commands([*words, *brief, "--quiet"], standalone_mode=False)
    several = ["training.average_last=2", "training.updates=2", "validation.every=1", "training.warmup=1"]
    averaged = ["train", str(world / "t.yaml"), f"run.dir={folder / 'runs/translate'}", "--overwrite", *several]
    commands([*averaged, "--quiet"], standalone_mode=False)
    for name in ("lines", "reference", "one", "other"):
        (folder / f"{name}.txt").write_text(f"A dog sleeps.\nThe {name} cat.\n")
    rows = [f"a {n} b\tc {n}\t{'even' if n % 2 else 'odd'}" for n in range(200)]
    (folder / "pairs.tsv").write_text("en\tde\tkind\n" + "\n".join(rows) + "\n")
    shutil.copy(folder / "pairs.tsv", folder / "labelled.tsv")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        line.strip()
        for command in COMMANDS.values()
        for line in (command.epilog or "").splitlines()
        if line.startswith("  s2s ") and not ELSEWHERE.search(line)
    ],
)
def test_help_example_runs(line, world, monkeypatch):
    monkeypatch.chdir(world)
    _, *words = shlex.split(line)
    if words[0] == "train" and "--resume" not in words:
        given = {word.partition("=")[0] for word in words} | ({*NOT_GRU} if "gru" in line else set())
        words += [word for word in BRIEF if word.partition("=")[0] not in given]
    done = CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_help_groups_all_commands_and_has_a_short_option():
    short, long = (CliRunner().invoke(commands, [option]).output for option in ("-h", "--help"))
    assert short == long
    assert re.findall(r"^(\w+):$", short, re.M) == ["Options", "Train", "Use", "Measure", "Understand"]
    named = re.findall(r"^  ([a-z]+) ", short, re.M)
    assert named == commands.list_commands(click.Context(commands))
    for group in ("recipe", "data", "new"):
        assert "..." not in CliRunner().invoke(commands, [group, "-h"]).output.partition("Commands:")[2]


@pytest.mark.parametrize(
    "words", [["--training.updates", "5"], ["--training.updates=5"], ["--updates", "5"], ["--updates=5"]]
)
def test_setting_with_dashes_is_answered_with_the_setting_without(words):
    done = CliRunner().invoke(commands, ["train", "translate", *words])
    assert done.exit_code == 2
    assert "write training.updates=5, without dashes" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tokens-per-update", "9"], "write training.tokens_per_update=9, without dashes"),
        (["--feedforward", "9"], "write model.feedforward=9, without dashes"),
    ],
)
def test_setting_with_dashes_and_without_its_section_is_answered_with_its_key(words, message):
    assert message in CliRunner().invoke(commands, ["train", "translate", *words]).output


@pytest.mark.parametrize(
    "words", [["train", "a", "--dropout", "0"], ["train", "a", "--lr", "3"], ["runs", "--updates"]]
)
def test_option_that_is_no_single_key_is_answered_as_an_unknown_option(words):
    done = CliRunner().invoke(commands, words)
    assert (done.exit_code, "No such option" in done.output) == (2, True)
    assert "without dashes" not in done.output
