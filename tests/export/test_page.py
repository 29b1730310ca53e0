"""Commands and Python code of docs/export.md."""

import re
import runpy
import shutil

import pytest

from s2s.run.folder import open_run
from s2s.run.inference import line_translator
from tests.export.showing import ROOT, run_page

pytest.importorskip("ctranslate2")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.mark.slow
def test_export_page_commands_and_code_run(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small, tmp_path / "runs" / "translate")
    (tmp_path / "lines.txt").write_text("The small dog sees a cat.\nMy sister sleeps.\n", encoding="utf-8")
    assert run_page("export") == 7
    written = {path.name for path in tmp_path.iterdir()}
    assert {"translate-ct2", "translate-int8", "translate-onnx", "translate-hub"} <= written

    translator, _ = line_translator(
        open_run(small, ["decoding.beam=1", "decoding.max_ratio=0.001", "decoding.max_extra=19"]), 1
    )
    (ours,) = translator.translate(["The small dog sees a cat."])
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "export.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        (tmp_path / f"{number}.py").write_text(block, encoding="utf-8")
        found = runpy.run_path(str(tmp_path / f"{number}.py"))["tokens"]
        assert [token for token in found if token != 2] == list(ours.candidates[0].hypothesis.tokens)
