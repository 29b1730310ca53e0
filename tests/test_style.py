"""Style rules that no linter checks."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("s2s", "baselines")
FILES = sorted(p for room in (*OURS, "tests", "benchmarks") for p in (ROOT / room).rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


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
        for node in _nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert [f"{path}:{node.lineno}" for path, node in functions if node.args.kwarg] == []


def test_style_no_file_is_named_after_nothing():
    assert [p for p in FILES if p.stem in ("utils", "util", "helpers", "helper", "common", "misc")] == []


def _explained(classes: list[ast.ClassDef], name: str, method: str) -> bool:
    """Return True if a class of that name, or one of its bases, documents the method."""
    named = [node for node in classes if node.name == name]
    own = [n for node in named for n in node.body if isinstance(n, Function) and n.name == method]
    bases = [ast.unparse(base).partition("[")[0] for node in named for base in node.bases]
    return any(ast.get_docstring(n) for n in own) or any(_explained(classes, base, method) for base in bases)


def test_style_every_public_name_has_a_docstring():
    trees = {p: _nodes(p)[0] for p in FILES if p.relative_to(ROOT).parts[0] in OURS}
    kinds = (*Function.__args__, ast.ClassDef)
    classes = [n for path in trees for n in _nodes(path) if isinstance(n, ast.ClassDef)]
    # documented in a base class
    methods = [(c.name, m) for c in classes for m in c.body if isinstance(m, Function)]
    # so does a protocol, which a class need not name
    protocols = [c for c in classes if any(ast.unparse(base).startswith("Protocol") for base in c.bases)]
    described = {m.name for c in protocols for m in c.body if isinstance(m, Function) and ast.get_docstring(m)}
    said = {m for name, m in methods if m.name in described or _explained(classes, name, m.name)}
    bare = []
    for path, tree in trees.items():
        nested = {m for n in _nodes(path) if isinstance(n, Function) for m in ast.walk(n) if m is not n}
        private = {m for n in _nodes(path) if isinstance(n, kinds) and n.name.startswith("_") for m in ast.walk(n)}
        named = [n for n in _nodes(path) if isinstance(n, kinds) and not n.name.startswith("_")]
        needed = [n for n in named if n not in nested | private | said]
        bare += [f"{path.name}:{n.name}" for n in needed if not ast.get_docstring(n)]
        bare += [] if ast.get_docstring(tree) else [path.name]
    assert bare == []


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
    aside |= {f"export/{name}.py" for name in ("folder", "hub", "onnx", "sentencepiece")}
    found = {
        path.relative_to(ROOT / "s2s").as_posix()
        for path in (ROOT / "s2s").rglob("*.py")
        if re.search(r"\.(write_bytes|write_text|savefig)\(", path.read_text(encoding="utf-8"))
    }
    assert found == aside
