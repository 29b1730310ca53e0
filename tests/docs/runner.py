"""Execute the fenced code of a documentation page, in order, with settings that make it short."""

import contextlib
import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from s2s.cli.main import commands

ROOT = Path(__file__).parents[2]
# fenced blocks without commands: output, files, data, and directives of Sphinx
DATA = ("", "yaml", "toml", "text", "{toctree}", "{eval-rst}")
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Code:
    """One command, script or Python block of a page.

    Attributes:
        language: `sh` for one command line, `bash` for a script, `python`.
        text: the code, without prompt and trailing comment.
        output: what the page shows as the whole output, if it shows any.
    """

    language: str
    text: str
    output: str | None = None


def page_path(name: str) -> Path:
    """Returns the file of a page: `README` or the stem of a file in docs."""
    return ROOT / "README.md" if name == "README" else ROOT / "docs" / f"{name}.md"


def page_names() -> list[str]:
    """Returns all pages that have fenced code."""
    docs = ROOT / "docs"
    found = [*docs.glob("*.md"), *docs.glob("labs/*.md")]
    names = ["README", *sorted(str(path.relative_to(docs).with_suffix("")) for path in found)]
    return [name for name in names if codes(page_path(name).read_text(encoding="utf-8"))]


def blocks(text: str, language: str) -> list[str]:
    """Returns the contents of the fenced blocks of one language."""
    return [body for kind, body, _ in BLOCK.findall(text) if kind == language]


def codes(text: str) -> list[Code]:
    """Returns everything in a page that can be executed.

    A `text` block has a command where a line begins with `$ ` or `s2s `; the lines below `$ ` are its output, and so
    is a `text` block below a `sh` block of one line.
    """
    found: list[Code] = []
    for kind, body, output in BLOCK.findall(text):
        if kind in ("python", "bash"):
            found.append(Code(kind, body))
        elif kind == "sh":
            lines = [line for line in body.replace("\\\n", "").split("\n") if line.strip()]
            parts = [part for line in lines for part in re.sub(r"\s+# .*", "", line).split(" && ")]
            found += [Code("sh", part.strip(), (output or None) if len(parts) == 1 else None) for part in parts]
        elif kind in DATA:
            joined = body.replace("\\\n", "")
            for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", joined, flags=re.MULTILINE):
                found.append(Code("sh", command, shown or None))
            found += [Code("sh", command) for command in re.findall(r"^(s2s .*)$", joined, flags=re.MULTILINE)]
        else:
            raise ValueError(f"fenced block of unknown language {kind!r}:\n{body}")
    return found


@dataclass
class Session:
    """The execution of one page in the current folder.

    Attributes:
        page: its name.
        monkeypatch: undone after the page.
        stack: closed after the page.
        small_run: a translator that has learned a little.
        outputs: of each executed code, in order.
        names: the global variables of the Python blocks.
    """

    page: str
    monkeypatch: pytest.MonkeyPatch
    stack: contextlib.ExitStack
    small_run: Path
    outputs: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)

    def output(self, beginning: str) -> str:
        """Returns the output of the first code that begins so."""
        return next(output for text, output in self.outputs.items() if text.startswith(beginning))


@dataclass(frozen=True)
class Page:
    """Settings by which a page is executed; every pattern is a regular expression searched for in a command or block.

    Attributes:
        prepare: lays out the files that the page takes for granted.
        settings: words appended to commands by pattern, unless the command gives them; those of `SIZES` replace its.
        replace: replacements in commands and blocks, by pattern.
        before: called before the code of a pattern.
        execute: executes the code of a pattern in place of the runner; returns the output.
        not_executed: reason by pattern.
        not_compared: reason by pattern, for outputs that are not those of a test.
        slow: pattern of the code that only `pytest -m slow` executes.
        needs: optional packages without which the page is skipped.
        check: looks at files and outputs after the page.
    """

    prepare: Callable[[Session], None] = lambda session: None
    settings: Mapping[str, str] = field(default_factory=dict)
    replace: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Callable[[Session], None]] = field(default_factory=dict)
    execute: Mapping[str, Callable[[Session, str], str]] = field(default_factory=dict)
    not_executed: Mapping[str, str] = field(default_factory=dict)
    not_compared: Mapping[str, str] = field(default_factory=dict)
    slow: str = "(?!)"
    needs: tuple[str, ...] = ()
    check: Callable[[Session], None] = lambda session: None


# reasons on every page, as `Page.not_executed`
NOT_EXECUTED = {
    r"^pip install -c constraints.txt -e '.\[(cluster|export|serve)": "optional packages; the page needs them",
    r"^pip install -c constraints": "executed by .ci/run in a new environment",
    r"^(git clone|cd s2s|python3 -m venv|\. \.venv|pip install torch)": "needs a network; .ci/run does the same",
    r"^pytest$": "executes this test",
    r"^python (-m benchmarks\.(?!language_models)|benchmarks/)": "measures for minutes, on real corpora",
}
# settings whose value on the page is too large for a test
SIZES = ("data.train", "data.root", "training.updates", "data.corpora")


def shorten(command: str, page: Page) -> str:
    """Returns a command with the settings and replacements of its page."""
    for pattern, replacement in page.replace.items():
        command = re.sub(pattern, replacement, command)
    for words in (words for pattern, words in page.settings.items() if re.search(pattern, command)):
        for word in shlex.split(words):
            key, has_value, _ = word.partition("=")
            given = rf"(?<=\s)'?{re.escape(key)}=(?:[^\s'\"]\S*|.*?')(?=\s|$)"
            if has_value and key in SIZES:
                command = re.sub(rf"\s{given}", "", command)
            if not has_value or not re.search(given, command):
                command += f" {shlex.quote(word)}"
    return command


def executed(name: str, page: Page, slow: bool) -> list[Code]:
    """Returns what is executed of a page: all but `not_executed`; without `slow`, all but that, too."""
    found = codes(page_path(name).read_text(encoding="utf-8"))
    found = [code for code in found if not _first(NOT_EXECUTED | page.not_executed, code.text)]
    return [code for code in found if slow or not re.search(page.slow, code.text)]


def execute_page(name: str, page: Page, session: Session, slow: bool) -> None:
    """Executes a page from top to bottom and compares the outputs that it shows."""
    page.prepare(session)
    for code in executed(name, page, slow):
        if _first(page.not_compared, code.text):
            code = replace(code, output=None)
        for pattern, call in page.before.items():
            if re.search(pattern, code.text):
                call(session)
        execute = _first(page.execute, code.text)
        output = execute(session, code.text) if execute else execute_code(session, code, page)
        session.outputs[code.text] = output
        if code.output is not None:
            assert output.strip() == code.output.strip(), f"{name}: {code.text}\n{output}"
    page.check(session)


def _first(table: Mapping[str, Any], text: str) -> Any:
    return next((value for pattern, value in table.items() if re.search(pattern, text)), None)


def execute_code(session: Session, code: Code, page: Page) -> str:
    """Executes one command, script or block; returns what it prints. A failure fails the test."""
    if code.language == "python":
        return _python(session, _replaced(code.text, page))
    command = shorten(code.text, page) if code.language == "sh" else _replaced(code.text, page)
    if code.language == "sh" and (echoed := re.fullmatch(r"echo (['\"])(.*)\1 \| (s2s .*)", command)):
        Path("echoed.txt").write_text(f"{echoed[2]}\n", encoding="utf-8")
        command = f"{echoed[3]} --input echoed.txt"
    in_process = code.language == "sh" and command.startswith("s2s ") and code.output is None
    if in_process and not re.search(r"[|<>&;$]", re.sub("'.*?'", "", command)):
        done = CliRunner().invoke(commands, shlex.split(command)[1:], standalone_mode=False)
        assert done.exception is None, f"{session.page}: {command}\n{done.output[-2000:]}\n{done.exception!r}"
        words = shlex.split(command)
        written = Path(words[words.index("--output") + 1]).exists() if "--output" in words else False
        assert done.output or written, command
        return done.output
    done = subprocess.run(
        ["bash", "-ec", command], env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    # an output that is shown may be an error
    failed = done.returncode and code.output is None
    assert not failed, f"{session.page}: {command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert done.stdout.strip() or done.stderr.strip(), command
    return done.stdout + done.stderr


def without_s2s(block: str) -> str:
    """Executes a Python block in a process of its own that cannot import s2s; returns what it prints."""
    program = f"import sys\nsys.modules.update(s2s=None, baselines=None, torch=None)\n{block}"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout


def environment() -> dict[str, str]:
    """Returns the variables of a shell that finds the programs of `bin/` and of this environment first."""
    path = f"{Path('bin').absolute()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def _replaced(text: str, page: Page) -> str:
    for pattern, replacement in page.replace.items():
        text = re.sub(pattern, replacement, text)
    return text


def _python(session: Session, text: str) -> str:
    printed = []
    if ">>>" in text:
        test = doctest.DocTestParser().get_doctest(text, session.names, session.page, None, 0)
        result = doctest.DocTestRunner().run(test, out=printed.append, clear_globs=False)
        session.names.update(test.globs)
        assert not result.failed, "".join(printed)
    else:
        exec(compile(text, f"{session.page}.md", "exec"), session.names)
    return "".join(printed)


def execute_section(name: str, section: str) -> int:
    """Executes one section of a page as it is, for tests with large fixtures; returns how many codes it has."""
    found = codes(page_path(name).read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0])
    with pytest.MonkeyPatch.context() as monkeypatch, contextlib.ExitStack() as stack:
        for code in found:
            execute_code(Session(name, monkeypatch, stack, Path()), code, Page())
    return len(found)
