"""Every command that README and docs show is executed here, on small data."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import classification, comparison, results, tasks
from benchmarks.keeping import written
from s2s.cli.main import commands
from s2s.comparison import tuning
from s2s.comparison.plans import ROWS
from s2s.data.phrasebook import phrases

ROOT = Path(__file__).parents[1]
OWN_TESTS = ("adding-a-model", "classification", "masked-lm", "bias-probe", "images", "captioning", "adding-a-task")
OWN_TESTS += ("language-models", "text-to-text", "training", "variants", "distributed", "python", "serving")
OWN_TESTS += ("export", "pretrained-weights", "cluster", "several-corpora")
PAGES = [ROOT / "README.md", *(p for p in sorted((ROOT / "docs").glob("*.md")) if p.stem not in OWN_TESTS)]

# executed by .ci/run in a fresh environment, or by this very test run, or not ours
ELSEWHERE = ("pip ", "pytest", "pre-commit", ".ci/run", "python benchmarks/", "python -m benchmarks.", "kill")
# each layer has its pictures
SHALLOW = "model.width=32 model.encoder_layers=1 model.decoder_layers=1"
SMALL = {
    "recipes/translate.yaml": f"data.train=300 data.validation=8 data.test=8 tokenizer.size=450 {SHALLOW}",
    "recipes/multi30k.yaml": f"tokenizer.size=450 data.filters.max_words=50 {SHALLOW}",
    "recipes/multi30k_lstm_attention.yaml": "tokenizer.size=450 data.filters.max_words=50",
    "recipes/cases.yaml": "data.train=300 data.validation=8 data.test=8",
    "recipes/bank.yaml": f"data.train=300 data.validation=8 data.test=8 tokenizer.size=200 {SHALLOW}",
    "mine.yaml": "tokenizer.size=450 model.encoder_layers=1 model.decoder_layers=1 model.dropout=0.0",
}

BRIEF = "training.updates=6 training.warmup=2 validation.every=6 validation.sentences=3 batches.tokens=600"
# oneDNN compiles a kernel for each new shape of bf16, and an untrained model does not know where to stop
BRIEF += " device.precision=fp32 decoding.max_ratio=0.5 decoding.max_extra=1"


COMPARED = "--experiment quality --seeds 1 data.train=300 data.validation=8 data.test=8 tokenizer.size=450"


CLASSIFIED = "--seeds 1 data.validation=20 tokenizer.kind=word batches.tokens=600 model.width=32"
CLASSIFIED += " model.encoder_layers=1 training.updates=4 training.warmup=2 validation.every=4"


def _commands(page: Path) -> Iterator[str]:
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        for line in block.strip().split("\n"):
            command = re.sub(r"\s+#.*", "", line).strip()
            if command:
                yield command


def _small(command: str) -> str:
    """The command as shown, without its comment, and with sizes for a test."""
    command = command.partition("  # ")[0]
    command = command.replace("tensorboard --logdir", "tensorboard --inspect --logdir").replace("DIR", "files")
    command = command.replace("--resume training.updates=4000", "--resume training.updates=8")
    if command.startswith("s2s train ") and "--resume" not in command:
        recipe = command.split()[2]
        given = {word.partition("=")[0] for word in command.split()}
        sizes = [
            w for w in f"{SMALL[recipe]} {BRIEF}".split() if w.partition("=")[0] not in given - {"training.updates"}
        ]
        command = re.sub(r" training\.updates=\S+", "", command)
        command = f"{command} {' '.join(sizes)}"
        if "--overfit" in command:
            command = command.replace("decoding.max_ratio=0.5", "")
    if command == "s2s data check recipes/translate.yaml":
        command = f"{command} data.train=300"
    if command.startswith("s2s compare ") and "--task" in command:
        command = f"{command.replace('data.root=files', 'data.root=labelled')} {CLASSIFIED}"
    elif command.startswith("s2s compare ") and not {"--resume", "--cost"} & {*command.split()}:
        # one experiment shows that the command works; each has tests of its own
        command = re.sub(r"--(experiment|seeds) \S+", "", command)
        small = COMPARED if "data.root" not in command else "--experiment quality --seeds 1 tokenizer.size=450"
        command = f"{command} {small} {BRIEF}"
    return command


def _done(command: str) -> tuple[int, str]:
    """What became of a command: one of ours is done here, without a shell, since a new process would load torch."""
    if ours := re.fullmatch(r"s2s ([^|<>&;*$]*)", command):
        done = CliRunner().invoke(commands, shlex.split(ours[1]), standalone_mode=False)
        return int(done.exception is not None), f"{done.output}{done.exception or ''}"
    if ours := re.fullmatch(r'echo "([^"$]*)" \| s2s translate (\S+)', command):
        (Path() / "echoed.txt").write_text(f"{ours[1]}\n", encoding="utf-8")
        return _done(f"s2s translate {ours[2]} --input echoed.txt")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path) -> Path:
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    # of the kept comparison two experiments: each has tests of its own
    kept = Path("docs/comparison-lecture")
    for experiment in ("parallelism", "memory"):
        shutil.copytree(ROOT / kept / experiment, tmp_path / kept / experiment)
    shutil.copy(ROOT / kept / "comparison.json", tmp_path / kept)
    found = phrases("train", 300, seed=5)
    (tmp_path / "files").mkdir()
    for stem in ("files/train", "files/val", "files/test_2016_flickr", "a"):
        for side, texts in (("en", [p.source for p in found]), ("de", [p.target for p in found])):
            (tmp_path / f"{stem}.{side}").write_text(
                "\n".join(texts[: 300 if "train" in stem or stem == "a" else 8]) + "\n"
            )
    (tmp_path / "labelled").mkdir()
    words = ("peace vote treaty", "goal match team", "bank stock oil", "space web chip")
    for name, count in (("train", 160), ("test", 40)):
        rows = [f"{n % 4 + 1}\tTitle {n}\tThe {words[n % 4]} of {n % 7}\n" for n in range(count)]
        (tmp_path / "labelled" / f"{name}.tsv").write_text("".join(rows))
    (tmp_path / "lines.txt").write_text("A dog runs.\n\nThe old man sleeps.\n")
    return tmp_path


def test_the_commands_of_the_first_page_are_the_two_of_ci():
    installs = [c for c in _commands(ROOT / "README.md") if c.startswith("pip install -c constraints.txt -e")]
    assert len(installs) == 2
    assert "README.md" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize(
    "page",
    # the commands of the page on comparing take half a minute
    [
        pytest.param(p, marks=[pytest.mark.slow] if p.stem == "compare" else [], id=p.name)
        for p in PAGES
        if any(not c.startswith(ELSEWHERE) for c in _commands(p))
    ],
)
def test_every_command_shown_works(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    # other processes measure the same, and each would load torch; the search for a rate has tests of its own
    monkeypatch.setattr("s2s.comparison.engine.number_for", lambda device_context: 1)
    for name, value in (("RATES", (0.004,)), ("LOWEST", 0.004), ("HIGHEST", 0.004)):
        monkeypatch.setattr(f"s2s.comparison.tuning_search.{name}", value)
    for scale, sizes in tuning.SIZES.items():
        monkeypatch.setitem(tuning.SIZES, scale, replace(sizes, whole=0))
    monkeypatch.setattr("s2s.comparison.engine.tuning.depths_of", lambda recipe, own: ())
    for command in _commands(page):
        if command.startswith("pip install -c") and "&&" in command:
            command = command.split("&& ", 1)[1]
        if command.startswith(ELSEWHERE):
            continue
        status, told = _done(_small(command))
        assert status == 0, f"{page.name}: {command}\n{told[-2000:]}"
        assert told or "--output" in command


def test_the_tables_of_results_are_what_the_kept_runs_say():
    for name, content, rows in (("README.md", results.table(), 3), ("docs/ladder.md", results.ladder(), 1)):
        page = (ROOT / name).read_text(encoding="utf-8")
        assert written(page, content, "results") == page
        assert content.count("| `") >= rows


def test_the_table_of_classifiers_is_what_the_kept_runs_say():
    for name in ("README.md", "docs/classification.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        assert written(page, classification.table(), "classification") == page
    assert classification.table().count("| `") >= 2


def test_the_table_of_tasks_is_what_the_kept_runs_say():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert written(page, tasks.table(), "tasks") == page
    assert tasks.table().count("| `") >= 4


def test_what_the_kept_comparison_found_is_what_the_pages_say():
    for name, content in (("README.md", comparison.table()), ("docs/comparison.md", comparison.verdicts())):
        page = (ROOT / name).read_text(encoding="utf-8")
        assert written(page, content, "comparison") == page
        assert all(row in content.lower() for row in ROWS)
