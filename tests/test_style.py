"""Style rules that no linter checks."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("s2s", "baselines")
FILES = sorted(p for room in (*OURS, "tests", "benchmarks") for p in (ROOT / room).rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_style_architecture_page_lists_every_layer():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = [
        layer for contract in settings["tool"]["importlinter"]["contracts"] for layer in contract.get("layers", [])
    ]
    packages = {name.strip().rpartition(".")[2] for layer in layers for name in layer.split("|")}
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("```")[1]
    assert packages - set(re.findall(r"\w+", page)) == set()


def test_style_no_signature_swallows_keywords():
    functions = (
        (path, node)
        for path in FILES
        if "tests" not in path.relative_to(ROOT).parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert [f"{path}:{node.lineno}" for path, node in functions if node.args.kwarg] == []


def test_style_no_file_is_named_after_nothing():
    assert [p for p in FILES if p.stem in ("utils", "util", "helpers", "helper", "common", "misc")] == []


@pytest.mark.parametrize("module", ["s2s.cli.main", "s2s.run.folder", "s2s.errors", "s2s.models.transformer"])
def test_style_nothing_heavy_is_imported_before_it_is_needed(module):
    heavy = ["torch", "numpy", "datasets", "pyarrow", "sacrebleu", "sentencepiece", "tensorboard", "matplotlib"]
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_style_project_never_names_the_workplace():
    names = ("../shared", "/work/", ".library")
    texts = [
        p for p in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").glob("*.yaml"), *FILES)
    ]
    assert [
        p.name
        for p in texts
        if p.name not in ("test_style.py", "conftest.py") and any(n in p.read_text() for n in names)
    ] == []


def test_style_nothing_is_written_in_place():
    # these write into a folder that is put there whole, but for `launch`, whose note is in torchrun's own
    aside = {"files.py", "training/checkpoint.py", "data/tokenizers.py", "launch.py"}
    aside |= {"export/hub.py", "export/onnx.py"}
    found = {
        path.relative_to(ROOT / "s2s").as_posix()
        for path in (ROOT / "s2s").rglob("*.py")
        if re.search(r"\.(write_bytes|write_text|savefig)\(", path.read_text(encoding="utf-8"))
    }
    assert found == aside
