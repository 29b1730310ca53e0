"""Published weights, read by us, give the numbers that transformers gives."""

import copy
import io
import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
import torch
from click.testing import CliRunner
from rich.console import Console

from s2s.cli.main import commands
from s2s.data.phrasebook import phrases
from s2s.data.tokenizers import BOS, EOS, UNK
from s2s.errors import UserError
from s2s.run.folder import open_run
from s2s.run.inference import load
from s2s.run.tasks import read
from s2s.run.training import train
from s2s.tasks.seq2seq import build_translator
from tests.docs.runner import execute_section

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PHRASES = [(phrase.source, phrase.target) for phrase in phrases("train", 200, seed=4)]


def _spm(lines: list[str], size: int) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=size, minloglevel=2, bos_id=-1
    )
    return model.getvalue()


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def marian(tmp_path_factory) -> Path:
    """A folder as Helsinki-NLP publishes them: a small model of random numbers, two sentencepiece models, one table."""
    folder = tmp_path_factory.mktemp("marian") / "opus"
    folder.mkdir()
    models = {"source": _spm([s for s, _ in PHRASES], 130), "target": _spm([t for _, t in PHRASES], 140)}
    pieces: dict[str, None] = {}
    for side, model in models.items():
        (folder / f"{side}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces |= dict.fromkeys(processor.id_to_piece(i) for i in range(3, processor.get_piece_size()))
    # as theirs: the end, the unknown, all others, and last the padding; one that is missing is unknown
    names = ["</s>", "<unk>", ">>deu<<", *list(pieces)[:-1], "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}), encoding="utf-8")
    torch.manual_seed(3)
    config = transformers.MarianConfig(
        **{"vocab_size": len(names), "d_model": 32, "encoder_layers": 2, "decoder_layers": 3},
        **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
        **{"activation_function": "swish", "scale_embedding": True, "max_position_embeddings": 128, "init_std": 0.1},
        **{"pad_token_id": len(names) - 1, "decoder_start_token_id": len(names) - 1, "eos_token_id": 0},
        **{"forced_eos_token_id": None, "bad_words_ids": [[len(names) - 1]]},
    )
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn_like(p)
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, 0] += 3.0
    model.save_pretrained(folder)
    # as its configuration says on the hub, where it has more keys than are used
    found = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(found | {"num_beams": 4, "normalize_before": False}))
    return folder


@pytest.fixture(scope="module")
def theirs(marian):
    return transformers.MarianMTModel.from_pretrained(marian).eval()


def _theirs(tokenizer, config, ids):
    """Our numbers of pieces as theirs."""
    vocabulary = json.loads((Path(config) / "vocab.json").read_text())
    own = {0: len(vocabulary) - 1, BOS: len(vocabulary) - 1, EOS: 0, UNK: 1}
    return [own[i] if i in own else vocabulary[tokenizer.tokens([i])[0]] for i in ids]


TEXTS = [source for source, _ in PHRASES[:6]]


def test_marian_tokenizer_equals_that_of_transformers(marian):
    ours = load(marian).tokenizers
    reference = transformers.MarianTokenizer.from_pretrained(marian)
    for text in [*TEXTS, ">>deu<< A dog.", "Ünknown ☃ snow", "  two   spaces "]:
        ids = ours[0].encode(text)
        assert [*_theirs(ours[0], marian, ids), 0] == reference(text).input_ids
    for _, text in PHRASES[:6]:
        ids = ours[1].encode(text)
        assert [*_theirs(ours[1], marian, ids), 0] == reference(text_target=text).input_ids
        written = reference.decode(reference(text_target=text).input_ids, skip_special_tokens=True)
        # what is unknown is shown here, and left out there
        assert ours[1].decode(ids).replace("⁇", "") == written


def test_marian_logits_equal_those_of_transformers(marian, theirs):
    run, theirs = load(marian), copy.deepcopy(theirs).double()
    run.model.double()
    source, target = run.tokenizers
    for text, answer in PHRASES[:6]:
        read, written = source.encode(text), target.encode(answer)
        ids, before = torch.tensor([[*read, EOS]]), torch.tensor([[BOS, *written]])
        with torch.no_grad():
            ours = run.model.logits(ids, torch.ones_like(ids, dtype=torch.bool), before)
            found = theirs(
                input_ids=torch.tensor([_theirs(source, marian, ids[0].tolist())]),
                decoder_input_ids=torch.tensor([_theirs(target, marian, before[0].tolist())]),
            ).logits
        order = _theirs(target, marian, range(1, target.size))
        torch.testing.assert_close(ours[..., 1:], found[..., order], atol=1e-5, rtol=1e-5)
        # padding is no answer: all probability is where theirs is
        assert float(ours[..., 0].max()) < -50


def test_marian_beam_search_equals_that_of_transformers(marian, theirs):
    run = load(marian, overrides=["decoding.beam=4", "decoding.length_penalty=0", "decoding.max_ratio=3.0"])
    translator = build_translator(run, 1)
    compared = 0
    for text in TEXTS:
        best = translator.translate_chunk([text])[0].candidates[0].hypothesis
        ids = torch.tensor([[*_theirs(run.tokenizers[0], marian, run.tokenizers[0].encode(text)), 0]])
        found = theirs.generate(ids, num_beams=4, length_penalty=0.0, max_new_tokens=120, early_stopping=True)
        if not best.cut:
            compared += 1
            assert [*_theirs(run.tokenizers[1], marian, best.tokens), 0] == found[0].tolist()[1:]
    assert compared >= 3


def _s2s(*words: object) -> str:
    done = CliRunner().invoke(commands, [str(word) for word in words], standalone_mode=False, catch_exceptions=False)
    return done.stdout


def test_marian_works_with_every_command(marian, tmp_path):
    for side, texts in zip("st", zip(*PHRASES[:8], strict=True), strict=True):
        (tmp_path / side).write_text("\n".join(texts) + "\n", encoding="utf-8")
    assert len(_s2s("translate", marian, "--input", tmp_path / "s", "--beam", 2).splitlines()) == 8
    assert "BLEU" in _s2s("evaluate", marian, "--source", tmp_path / "s", "--reference", tmp_path / "t")
    _s2s("inspect", marian, TEXTS[0], "--output", tmp_path / "page.html")
    assert (tmp_path / "page.html").exists()
    _s2s("export", marian, "--to", "hub", "--output", tmp_path / "hub")
    assert _s2s("translate", tmp_path / "hub", "--input", tmp_path / "s", "--beam", 2) == _s2s(
        "translate", marian, "--input", tmp_path / "s", "--beam", 2
    )


FINE_TUNED = """
name: tuned
data: {corpus: built-in, train: 60, validation: 10, test: 5}
batches: {tokens: 800}
model: {kind: transformer, width: 32, heads: 4, feedforward: 48, encoder_layers: 2, decoder_layers: 3, norm: post,
        activation: swish, output_bias: true, tie: all, dropout: 0.1}
training: {updates: 12, warmup: 2, learning_rate: 0.002, label_smoothing: 0.1}
validation: {every: 12, metric: loss}
device: {kind: cpu, threads: 1, precision: fp32}
"""


def test_marian_weights_can_be_fine_tuned(marian, tmp_path):
    (tmp_path / "tuned.yaml").write_text(FINE_TUNED, encoding="utf-8")
    given = [f"init_from={marian}", "init.parts=all", f"run.dir={tmp_path / 'tuned'}"]
    folder = train(read(tmp_path / "tuned.yaml", given), Console(quiet=True))
    taken = json.loads((folder / "init_from.json").read_text())
    assert (taken["new"], taken["left_out"], taken["partly"]) == ([], [], {})
    before, after = load(marian), load(folder)
    assert [t.digest for t in after.tokenizers] == [t.digest for t in before.tokenizers]
    # it has begun there, and learned
    sizes = [
        (a - b).norm() / b.norm() for a, b in zip(after.model.parameters(), before.model.parameters(), strict=True)
    ]
    assert 0 < max(sizes) < 1


@pytest.mark.slow
def test_commands_of_pretrained_weights_page_work_on_marian(marian, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(marian, tmp_path / "opus-mt")
    (tmp_path / "tuned.yaml").write_text(FINE_TUNED, encoding="utf-8")
    (tmp_path / "lines.txt").write_text("The small dog sees a cat.\nMy sister sleeps.\n", encoding="utf-8")
    assert execute_section("pretrained-weights", "Marian's translators") == 5
    assert (tmp_path / "runs" / "tuned" / "init_from.json").exists()


def test_published_model_of_unknown_type_is_refused(marian, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bloom"}))
    with pytest.raises(UserError, match="unsupported type 'bloom'"):
        open_run(tmp_path)
    for name in ("vocab.json", "source.spm", "target.spm", "model.safetensors"):
        shutil.copy(marian / name, tmp_path)
    config = json.loads((marian / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({key: config[key] for key in config if key != "d_model"}))
    with pytest.raises(UserError, match=r"config\.json: d_model: field required"):
        open_run(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "config.json").write_text((marian / "config.json").read_text())
    with pytest.raises(UserError, match="has no weights"):
        open_run(tmp_path)
