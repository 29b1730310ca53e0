"""Modules that a training loads, and the size of the interface of a task."""

import subprocess
import sys
from pathlib import Path

from s2s.tasks.base import Task

TRAIN = """
import sys
from s2s.cli.main import commands
commands(sys.argv[1:], standalone_mode=False)
print("loaded", *sorted(name for name in sys.modules if name.startswith("s2s.")))
"""
# optional features: each is loaded by the command that needs it
OPTIONAL = ("inspection", "diagnosis", "comparison", "serving", "export", "evaluation.signs", "evaluation.gates")


def test_training_imports_no_optional_feature(tmp_path):
    words = [
        *("train", "translate", f"run.dir={tmp_path / 'run'}", "data.train=60", "data.validation=1", "data.test=1"),
        *(
            "tokenizer.kind=bytes",
            "decoding.max_ratio=0.1",
            "decoding.max_extra=1",
            "model.width=16",
            "model.feedforward=16",
            "training.updates=2",
            "training.warmup=1",
        ),
        *("validation.every=2", "device.kind=cpu", "device.threads=1", "device.precision=fp32"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, *words], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True
    )
    (loaded,) = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("loaded ")]
    assert "s2s.training.trainer" in loaded
    assert [name for name in loaded if name.startswith(tuple(f"s2s.{feature}" for feature in OPTIONAL))] == []
    assert [name for name in loaded if name.startswith("s2s.tasks.") and name.endswith("diagnosis")] == []


def test_task_has_at_most_ten_methods():
    assert len([name for name, value in vars(Task).items() if callable(value) and not name.startswith("_")]) <= 10
