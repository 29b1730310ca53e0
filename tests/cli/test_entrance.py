"""Start and end of the program: interruptions during imports, closed streams and full disks."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner

from s2s.cli import main, options
from s2s.cli.lines import lines_to
from s2s.errors import UserError


def _s2s(*words: str, output=subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "s2s", *words]
    return subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, text=True, env=os.environ | environment, timeout=60
    )


def test_main_ctrl_c_within_the_imports_is_one_line_whatever_libraries_make_of_it(tmp_path):
    (tmp_path / "click.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt:\n    raise ImportError('numpy is broken')\n"
    )
    done = _s2s("recipe", "models", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (130, "stopped\n")


def test_main_without_arguments_shows_the_whole_help():
    done = _s2s()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == _s2s("--help").stdout


def _commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found
            yield from _commands(found)


def test_main_every_command_refuses_an_option_given_twice_and_takes_a_list():
    commands = [command for command in _commands(main.commands) if not isinstance(command, click.Group)]
    assert len(commands) > 25
    assert [command.name for command in commands if not isinstance(command, options.Command)] == []

    @options.command()
    @click.option("--one")
    @click.option("--several", multiple=True)
    def said(one: str, several: tuple[str, ...]) -> None:
        click.echo((one, several))

    assert CliRunner().invoke(said, ["--one", "a", "--several", "b", "--several", "c"]).output == "('a', ('b', 'c'))\n"
    with pytest.raises(UserError, match="--one: is given 3 times"):
        CliRunner().invoke(said, ["--one", "a", "--one", "b", "--one=a"], catch_exceptions=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_main_output_that_takes_no_more_is_one_line_and_status_2():
    with Path("/dev/full").open("w") as full:
        done = _s2s("recipe", "list", output=full)
    assert done.returncode == 2
    assert "cannot be written: No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_main_output_that_takes_no_more_is_named():
    def write(path: Path) -> None:
        with lines_to(path) as write_line:
            write_line("a line")

    with pytest.raises(OSError, match="No space left") as raised:
        write(Path("/dev/full"))
    assert raised.value.filename == "/dev/full"


def test_main_line_end_in_a_name_does_not_break_a_message_in_two():
    assert str(UserError("is damaged", where="a\nb", remedy="mend it")) == "a\\nb: is damaged\n  → mend it"


def test_main_current_folder_that_was_removed_is_one_message(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    monkeypatch.setattr(sys, "argv", ["s2s", "recipe", "models"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "the current folder was deleted\n  → change to an existing one, e.g. cd ~\n"


def test_main_library_that_finds_no_memory_is_one_message(monkeypatch, capsys):
    def load(**_: object) -> None:
        raise ImportError("IMPORTANT\nlibtorch_cpu.so: failed to map segment from shared object")

    monkeypatch.setattr(main, "commands", load)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("no memory to load a library: libtorch_cpu.so: failed to map segment")
    assert "ulimit -v" in said


@pytest.mark.parametrize("asked", ["torch.empty(2**60)", "bytearray(2**60)"])
def test_out_of_memory_anywhere_is_a_two_line_error(monkeypatch, capsys, asked):
    monkeypatch.setattr(main, "commands", lambda **_: eval(asked, {"torch": torch}))
    with pytest.raises(SystemExit) as ended:
        main.main()
    said = capsys.readouterr().err.splitlines()
    assert (ended.value.code, len(said)) == (2, 2)
    assert said[0].startswith("no memory")
    assert "decoding.batch" in said[1]


@pytest.mark.parametrize(
    "words",
    [
        ["fill", "RUN", "a\udcff"],
        ["generate", "RUN", "a\udcff"],
        ["inspect", "RUN", "a\udcff"],
        ["inspect", "RUN", "a", "--translation", "a\udcff"],
        ["translate", "RUN", "--prefix", "a\udcff"],
    ],
)
def test_main_refuses_text_that_is_not_utf_8_before_loading(words):
    done = CliRunner().invoke(main.commands, words)
    assert done.exit_code == 2
    assert "'a\\\\udcff' is not UTF-8 at character 2" in done.output


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["translate", "RUN", "decoding.beam_groups=3"], "write --beam-groups"),
        (["generate", "RUN", "decoding.top_k=3"], "write --top-k"),
        (["classify", "RUN", "A text.", "device.threads=1"], "`s2s classify` changes no keys"),
        (["fill", "RUN", "model.positions.kind=3"], "`s2s fill` changes no keys"),
        (["inspect", "RUN", "decoding.nbest=3"], "`s2s inspect` changes no keys"),
    ],
)
def test_main_refuses_keys_where_texts_belong(words, instead):
    done = CliRunner().invoke(main.commands, words)
    assert (done.exit_code, f"{words[-1]!r} is a key of a recipe; {instead} " in done.output) == (2, True)
    for text in (f" {words[-1]}", f"{words[-1]} is a text"):
        other = CliRunner().invoke(main.commands, [*words[:-1], text])
        assert "is a key of a recipe" not in other.output


def test_main_error_of_ours_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(main, "commands", lambda **_: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size"):
        main.main()


def test_main_streams_that_are_closed_are_empty_and_take_everything():
    closed = (
        "import os; [os.close(n) for n in (0, 1)]; os.execv(os.sys.executable, [os.sys.executable, *os.sys.argv[1:]])"
    )
    there = (
        "import sys; sys.argv[1:] = ['recipe', 'models']; from s2s.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert sys.stdin.buffer.read() == b''"
    )
    for words in (["-m", "s2s", "recipe", "models"], ["-c", there]):
        done = subprocess.run([sys.executable, "-c", closed, *words], stderr=subprocess.PIPE, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "RUN", "--resume", "--overwrite"], "--resume and --overwrite exclude each other"),
        (["generate", "RUN", "a", "--input", "LINES"], "PROMPT and --input exclude each other"),
    ],
)
def test_main_refuses_options_that_exclude_each_other(words, said, tmp_path):
    (tmp_path / "LINES").write_text("a\n")
    asked = [str(tmp_path / word) if word == "LINES" else word for word in words]
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(main.commands, asked, standalone_mode=False, catch_exceptions=False)


def _bytes(*words: str, encoding: str) -> bytes:
    asked = os.environ | {"PYTHONIOENCODING": encoding}
    return subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, env=asked, timeout=60, check=True).stdout


@pytest.mark.slow
def test_main_characters_that_output_lacks_are_spelt_and_end_no_training(small_world, tmp_path):
    shutil.copytree(small_world / "runs" / "t", tmp_path / "t")
    told = _bytes("-m", "s2s", "train", str(tmp_path / "t"), "--resume", encoding="latin-1").decode("latin-1")
    assert f"resuming {tmp_path / 't'}: loading \\u2026\n" in told
    assert "curves: " in told


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-16", "utf-8"])
def test_main_texts_for_others_are_utf_8_wherever_they_go(tmp_path, encoding):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("name: a\ndescription: Größe …\nmodel: {kind: lstm}\n", encoding="utf-8")
    shown = _bytes("-m", "s2s", "recipe", "show", str(recipe), encoding=encoding).decode("utf-8")
    assert "description: Größe …\n" in shown
    here = "with lines_to(None) as write: write('Größe …')"
    called = f"def called(**_):\n {here}\n\nmain.commands = called; main.main()"
    code = f"from s2s.cli import main; from s2s.cli.lines import lines_to\n{called}"
    assert _bytes("-c", code, encoding=encoding) == "Größe …\n".encode()
