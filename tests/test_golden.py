"""benchmarks/golden.py reports changes and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.golden import differences

ROOT = Path(__file__).parents[1]
HASHES = ("a" * 64, "b" * 64)


def _golden(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.golden", *words, "--jobs", "trainings/classification/alone"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_golden_compare_reports_a_changed_seed_and_nothing_else(tmp_path: Path):
    file = str(tmp_path / "golden.json")
    assert _golden("record", file).returncode == 0
    same = _golden("compare", file)
    assert (same.returncode, "1 jobs compared, 0 differences" in same.stdout) == (0, True), same.stdout + same.stderr
    changed = _golden("compare", file, "--report", "--override", "seeds.data=2")
    assert changed.returncode == 1
    assert "value: metrics.jsonl" in changed.stdout
    assert "apart)" in changed.stdout


def test_golden_compare_without_a_common_job_fails(tmp_path: Path):
    (tmp_path / "golden.json").write_text('{"machine": {}, "jobs": {}}')
    done = _golden("compare", str(tmp_path / "golden.json"), "--only", "schema")
    assert done.returncode == 2
    assert "no job" in done.stderr


def test_golden_differences_tell_values_prose_and_renamed_tensors_apart():
    old = {"a": HASHES[0], "loss": 1.0, "x/message": "Old text.", "same": 3, "gone": 2, "nan": float("nan")}
    new = {"b": HASHES[0], "loss": 1.5, "x/message": "New text.", "same": 3, "nan": float("nan")}
    assert sorted(differences("errors/files", old, new)) == [
        ("prose", "x/message", "Old text.", "New text."),
        ("renamed", "a", "a", "b"),
        ("value", "gone", 2, "(absent)"),
        ("value", "loss", 1.0, 1.5),
    ]
    # translations are values
    assert [kind for kind, *_ in differences("translations/x", {"beam 1/0": "Ein Hund."}, {"beam 1/0": "Hund."})] == [
        "value"
    ]
    assert [kind for kind, *_ in differences("trainings/x", {"a": HASHES[0]}, {"a": HASHES[1]})] == ["value"]
