"""A bad line of a batch gives an empty answer, a message with its number, and exit status 1."""

import re
import sys

import pytest

from s2s.cli.main import main
from s2s.decoding.generate import one_line
from tests.faults.world import make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("good") / "world", "tcil")


@pytest.fixture
def s2s(world, monkeypatch, capfd):
    """Runs a command in the world; gives its status, its lines and what it wrote to standard error."""
    monkeypatch.chdir(world)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["s2s", *words])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code
        said = capfd.readouterr()
        return status, said.out.removesuffix("\n").split("\n"), said.err

    return run


LONG = "ab " * 3_000


def test_bad_images_are_reported_and_the_others_classified(world, s2s):
    (world / "half.png").write_bytes((world / "i" / "dark" / "1.png").read_bytes()[:40])
    (world / "list").write_text("i/light/0.png\nhalf.png\n\ni/dark/1.png\ngone.png\n")
    status, out, err = s2s("classify", "runs/i", "--input", "list")
    assert status == 1
    assert [bool(line) for line in out] == [True, False, False, True, False]
    assert "line 2: half.png: cannot be read" in err
    assert "line 5: gone.png" in err
    assert err.splitlines()[-1] == "2 lines with errors"


@pytest.mark.parametrize(
    ("words", "empty"),
    [
        (("translate", "runs/t"), ""),
        (("translate", "runs/t", "--nbest", "2", "--beam", "2"), "2\t\t"),
        (("inspect", "runs/t", "--align"), ""),
        (("generate", "runs/l", "--max-tokens", "3"), ""),
    ],
)
def test_too_long_lines_are_reported_and_the_others_answered(world, s2s, words, empty):
    (world / "lines").write_text(f"hello\n{LONG}\nhello\n")
    status, _, err = s2s(*words, "--input", "lines", "--output", "out")
    assert status == 1
    assert "line 2: " in err
    assert re.search("tokens|pieces", err)
    found = (world / "out").read_text(encoding="utf-8").split("\n")
    assert empty in found
    assert len(found) == (4 if empty == "" else 6)


def test_lines_that_are_not_utf_8_are_numbered_and_utf_16_is_refused(world, s2s):
    (world / "lines").write_bytes(b"hello\nb\xffd\nhello\n")
    status, out, err = s2s("classify", "runs/c", "--input", "lines")
    assert (status, len(out)) == (1, 3)
    assert "line 2: not UTF-8; replaced the invalid bytes" in err
    (world / "lines").write_bytes("hello\n".encode("utf-16"))
    status, _, err = s2s("classify", "runs/c", "--input", "lines")
    assert status == 2
    assert "iconv -f UTF-16 -t UTF-8 lines" in err


def test_many_bad_lines_are_counted(world, s2s):
    (world / "list").write_text("gone.png\n" * 50)
    status, out, err = s2s("classify", "runs/i", "--input", "list")
    assert (status, out) == (1, [""] * 50)
    assert err.count("gone.png") == 20
    assert err.splitlines()[-1] == "50 lines with errors, 30 of them not shown"


def test_text_with_line_ends_is_one_line():
    assert one_line("a shape\nhere\r\n!") == "a shape here !"


@pytest.mark.parametrize(
    "words",
    [
        ("translate", "runs/t", "--prefix", LONG),
        ("inspect", "runs/t", LONG),
        ("inspect", "runs/t", "a", "--translation", LONG),
        ("generate", "runs/l", LONG),
    ],
)
def test_bad_line_texts_beyond_what_is_read_are_refused_before_anything_is_computed(s2s, words):
    status, _, err = s2s(*words)
    assert status == 2
    assert re.search("tokens|pieces", err)
    assert "shorten it" in err
