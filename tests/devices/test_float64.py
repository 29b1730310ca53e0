"""No float64 is created on devices without it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(p for room in ("s2s", "baselines") for p in (ROOT / room).rglob("*.py"))
WIDE = ("float64", "double")


def _widened(tree: ast.AST) -> Iterator[ast.AST]:
    """Tensors made float64 without being moved to the processor first, or made so where a device is named."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        named = [*node.args, *(k.value for k in node.keywords)]
        wide = any(isinstance(n, ast.Attribute) and n.attr in WIDE and _is_torch(n.value) for n in named)
        if isinstance(node.func, ast.Attribute):
            converts = node.func.attr == "double" or (node.func.attr in ("to", "type") and wide)
            if converts and not (_calls(node.func.value, "cpu")):
                yield node
        if wide and any(k.arg == "device" for k in node.keywords):
            yield node


def _is_torch(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "torch"


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def test_no_tensor_is_made_float64_before_it_is_on_the_processor():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in _widened(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("x.double()", 1),
        ("x.to(torch.float64)", 1),
        ("x.sum().double().cpu()", 1),
        ("torch.zeros(1, dtype=torch.float64, device=x.device)", 1),
        ("x.to(dtype=torch.double)", 1),
        ("x.cpu().double()", 0),
        ("x.cpu().to(torch.float64)", 0),
        ("torch.zeros(1, dtype=torch.float64)", 0),
        ("x.astype(np.float64)", 0),
    ],
)
def test_float64_rule_knows_what_it_forbids(line, count):
    assert len(list(_widened(ast.parse(line)))) == count
