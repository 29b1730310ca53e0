"""Every command that the page on export shows."""

import shutil

import pytest

from tests.export.showing import run_page

pytest.importorskip("ctranslate2")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.mark.slow
def test_every_command_of_the_page_on_export_works(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small, tmp_path / "runs" / "translate")
    (tmp_path / "lines.txt").write_text("The small dog sees a cat.\nMy sister sleeps.\n", encoding="utf-8")
    assert run_page("export") == 9
    written = {path.name for path in tmp_path.iterdir()}
    assert {"translate-ct2", "translate-int8", "translate-onnx", "translate-hub"} <= written
