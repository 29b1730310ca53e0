"""Trainings, comparisons and translations in one process, for one level of CPU instructions.

    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 python -m tests.devices.isa_checks FOLDER

`test_isa.py` runs it at each level. The precision benchmark runs as it does for a user; pictures, which depend on no
level, are not drawn. Every check prints one line; the exit status is the number of failures.
"""

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.comparison.report import drawing
from s2s.recipe.installed import models
from s2s.training import figures

ROOT = Path(__file__).parents[2]
# five updates; what an untrained model writes does not end by itself
_BRIEF = "training.updates=5 training.warmup=2 validation.every=5"
_TEXT = f"{_BRIEF} validation.sentences=3 decoding.max_ratio=0.5 decoding.max_extra=1"
_PAIRS = "data.train=200 data.validation=8 data.test=8 batches.tokens=400"
_SHALLOW = "model.width=32 model.encoder_layers=1 model.decoder_layers=1"
_FEW = " ".join(
    f"data.corpora.{task}.{split}"
    for task in ("en-de", "de-en", "plural", "cases", "acceptable")
    for split in ("train=200", "validation=8", "test=8")
)
_RECIPES = {
    "translate": f"{_TEXT} {_PAIRS} tokenizer.size=450",
    "bank": f"{_TEXT} {_PAIRS} tokenizer.size=200",
    "cases": f"{_TEXT} {_PAIRS}",
    "captioning": f"{_BRIEF} data.train=120 data.validation=8 data.test=8 validation.images=3 batches.captions=24",
    "lm_builtin": f"{_BRIEF} data.train=200 data.validation=20 data.test=20 tokenizer.size=450 batches.tokens=400",
    "text_to_text": f"{_TEXT} batches.tokens=400 tokenizer.size=600 {_FEW}",
}


def _run(command: str) -> str:
    """Run an s2s command in this process, and return what it printed."""
    done = CliRunner().invoke(commands, command.split(), standalone_mode=False)
    if done.exception is not None:
        raise RuntimeError(f"{command}\n{done.output}") from done.exception
    return done.output


def _train_recipe(name: str) -> None:
    _run(f"train {name} run.dir=recipe-{name} {_RECIPES[name]}")


def _train_model(kind: str, precision: str) -> None:
    recipe = "cases" if kind == "rnn-tagger" else "translate"
    small = f"{_SHALLOW} model.kind={kind}" if recipe == "translate" else ""
    _run(f"train {recipe} run.dir={kind}-{precision} device.precision={precision} {_RECIPES[recipe]} {small}")


def _translate(kind: str, precision: str) -> None:
    Path("lines.txt").write_text("The old man buys a red car.\nThe child sleeps.\n", encoding="utf-8")
    written = _run(f"translate {kind}-auto --input lines.txt --output {kind}.txt --precision {precision}")
    lines = Path(f"{kind}.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2, written


def _resume(kind: str) -> None:
    said = _run(f"train {kind}-auto --resume training.updates=7")
    assert "resuming after update 5" in said, said


def _compare(words: str, name: str) -> None:
    _run(f"compare {words} --out compare-{name}")


def _checks() -> dict[str, Callable[[], None]]:
    kinds = sorted(models())
    found: dict[str, Callable[[], None]] = {}
    for name in _RECIPES:
        found[f"recipe {name}"] = lambda name=name: _train_recipe(name)
    for kind in kinds:
        for precision in ("auto", "fp32", "bf16"):
            found[f"train {kind} {precision}"] = lambda kind=kind, p=precision: _train_model(kind, p)
    for kind in ("transformer", "lstm", "lstm-attention", "gru"):
        for precision in ("fp32", "bf16"):
            found[f"translate {kind} {precision}"] = lambda kind=kind, p=precision: _translate(kind, p)
        found[f"resume {kind}"] = lambda kind=kind: _resume(kind)
    small = f"{_TEXT} {_PAIRS} tokenizer.size=450 model.width=32"
    found["compare memory"] = lambda: _compare(f"lstm transformer --experiment memory --seeds 1 {small}", "memory")
    for precision in ("auto", "bf16"):
        words = f"lstm transformer --experiment quality --seeds 1 device.precision={precision} {small}"
        found[f"compare quality {precision}"] = lambda words=words, p=precision: _compare(words, f"quality-{p}")
    found["captioning lstm-attention"] = lambda: _run(
        f"train captioning run.dir=lstm-captioning model.kind=lstm-attention {_RECIPES['captioning']}"
    )
    found["new recipe for rules"] = _new_recipe
    return found


def _new_recipe() -> None:
    rows = [f"w{number}\tv{number}\n" for number in range(300)]
    Path("rules.tsv").write_text("".join(rows), encoding="utf-8")
    _run("new translate --data rules.tsv --output rules.yaml")
    _run("train rules.yaml training.updates=5 training.warmup=2 validation.every=5 batches.tokens=400")


def main() -> int:
    """Run all checks in a folder, which becomes the working directory."""
    import os

    os.chdir(sys.argv[1])
    # a PNG file's head, from which the size is read
    figures.render_png = lambda figure: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1"
    drawing.draw = lambda folder: folder / drawing.PAGE
    torch.set_num_threads(1)
    print(f"cpu capability: {torch.backends.cpu.get_cpu_capability()}")
    failures = 0
    for name, check in _checks().items():
        try:
            check()
        except Exception:
            failures += 1
            print(f"{name}: failed\n{traceback.format_exc(limit=-4)}")
        else:
            print(f"{name}: passed")
    return failures


if __name__ == "__main__":
    sys.exit(main())
