"""Every example that the page on Python shows, in its order, on small data."""

import re
import runpy
from pathlib import Path

import matplotlib
import pytest

import s2s

ROOT = Path(__file__).parents[1]
SMALL = {
    **{"data.train": 300, "data.validation": 8, "data.test": 8, "tokenizer.size": 450, "model.width": 16},
    **{"model.feedforward": 16, "training.updates": 50, "training.warmup": 2, "validation.every": 50},
    **{
        "batches.tokens": 100,
        "decoding.max_ratio": 0.5,
        "decoding.beam": 2,
        "device.precision": "fp32",
        "validation.sentences": 3,
    },
}


def _blocks() -> list[str]:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)


def _done(blocks: list[str], folder: Path) -> dict:
    path = folder / "page.py"
    path.write_text("\n".join(blocks), encoding="utf-8")
    return runpy.run_path(str(path))


def test_the_examples_of_the_page_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    for _ in s2s.train("translate", SMALL | {"training.updates": 8}):
        pass
    examples = [block for block in _blocks() if "compar" not in block.lower()]
    assert len(examples) == 9
    small = f'**{SMALL}, "name": "mine"'
    text = [re.sub(r'"training.updates": .*"name": "mine"', lambda _: small, block) for block in examples]
    found = _done(text, tmp_path)
    assert found["updates"] == list(range(1, 51))
    assert found["looks"].kind == "cross"
    assert found["scores"].split == "test"
    assert found["mine"].loaded.path == Path("runs/mine")


@pytest.mark.slow
def test_the_comparison_of_the_page_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("s2s.comparison.engine.number_for", lambda device_context: 1)
    found = _done(["import s2s", *(block for block in _blocks() if "compar" in block.lower())], tmp_path)
    table = found["found"].table()
    assert set(table.model) == {"rnn", "transformer"}
    assert table[table.row == "memory"].value.notna().all()
    assert Path("runs/compare-rnn-transformer/report.html").is_file()
