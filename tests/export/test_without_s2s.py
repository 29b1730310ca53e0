"""The programs of docs/export.md, which cannot import s2s, translate as `s2s translate`."""

from pathlib import Path

import pytest

from s2s.export.folder import export
from s2s.run.folder import open_run
from s2s.run.inference import line_translator
from tests.docs.runner import blocks, page_path, without_s2s

pytest.importorskip("ctranslate2")
pytest.importorskip("onnxscript")

TEXTS = [
    "The small dog sees a cat.",
    "a",
    "  The  big\tcats ",
    "Our man could complain.",
    "①ﬁve é e\u0301▁😀",
    "Two ▅ \u2028 girls?",
]
LEARNING = ("training.updates=120", "validation.every=120", "training.label_smoothing=0")
TOKENIZERS = {
    "shared": (),
    "two": (
        "tokenizer.shared=false",
        "tokenizer.source={kind: bpe, size: 400}",
        "tokenizer.target={kind: char, normalization: identity}",
    ),
    "bytes": ("tokenizer.kind=bytes",),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name == "shared" else pytest.mark.slow) for name in TOKENIZERS],
)
def run(request, trained) -> Path:
    return trained(request.param, *LEARNING, *TOKENIZERS[request.param])


@pytest.mark.parametrize(
    ("to", "folder"),
    [("ctranslate2", "translate-ct2"), pytest.param("onnx", "translate-onnx", marks=pytest.mark.slow)],
)
def test_exports_without_s2s_translate_like_the_run(run, to, folder, tmp_path):
    assert export(open_run(run), to, tmp_path / folder).endswith("MiB")
    assert not (tmp_path / folder / "tokenizer").exists()
    translator, _ = line_translator(
        open_run(run, ["decoding.beam=1", "decoding.max_ratio=0.001", "decoding.max_extra=19"]), 1
    )
    ours = [translation.text for translation in translator.translate(TEXTS)]
    (block,) = (body for body in blocks(page_path("export").read_text("utf-8"), "python") if f'"{folder}"' in body)
    block = block.replace(f'"{folder}"', repr(str(tmp_path / folder))).replace(
        '["The small dog sees a cat."]', ascii(TEXTS)
    )
    assert without_s2s(f"{block}") == "".join(f"{text}\n" for text in ours)
    assert len({*ours}) > 1
