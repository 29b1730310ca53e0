"""BERT's published weights, read by us, give the numbers that transformers gives."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch.nn.utils.rnn import pad_sequence

from s2s.cli.main import commands
from s2s.data.tokenizers import BOS, EOS, PAD, UNK, Tokenizer
from s2s.errors import UserError
from s2s.run.folder import open_run
from s2s.run.inference import evaluate, load
from s2s.run.init_from import initialize_from, open_pretrained
from s2s.run.published.bert import POOLER, Config, described
from s2s.run.published.description import write_recipe
from s2s.run.tasks import read, task_of
from s2s.run.training import resume, run_training, train
from s2s.training.tensor_files import read_tensors
from tests.docs.runner import execute_section

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

LETTERS = "abcdefghijklmnopqrstuvwxyzéßσςñ0123456789東京语"
WORDS = [
    "the",
    "dog",
    "cat",
    "small",
    "sees",
    "un",
    "##known",
    "##ing",
    "##s",
    "A",
    "Dog",
    "##ER",
    "é",
    "##é",
    "[unused1]",
]
VOCABULARY = ["[PAD]", "[unused0]", *".,!?;:'\"()[]#$_-`|~«»。、¿", *WORDS, "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = list(dict.fromkeys([*VOCABULARY, *LETTERS, *(f"##{letter}" for letter in LETTERS)]))
ODD = [
    "The small dog sees a cat.",
    "Éclair, café naïve e\u0301 ÑANDÚ Straße ẞ İstanbul ΟΔΟΣ ΣΣ sΣ",
    "東京は日本語 and 语言。㐀 \uf900 \U00020000 a\U0002b740b a\U0002b820b",
    "don't (stop)!? [MASK] [unused1] ##ing $5 ~|`_ «quoted» ¿qué? a.b,c",
    "unknownunknowning ☃ snow☃man 🙂 x" + "a" * 99 + " " + "a" * 100 + " " + "a" * 101,
    " \t two\u00a0spaces\u2003here\r\n\x00null\x1fb\x85c\x0bd\u200be\ufefff\u2028g\ufffdh\xadi ",
    "",
    "  ",
    "؟ ٪ ־ \u1fef \u037e \u0345 ﬁ ㎏ Ⅷ ½ ²",
]


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def _config():
    return transformers.BertConfig(
        **{"vocab_size": len(VOCABULARY), "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4},
        **{"intermediate_size": 48, "max_position_embeddings": 40, "initializer_range": 0.2},
    )


def _saved(model, folder: Path, uncased: bool = True) -> Path:
    """A folder as google-bert publishes them; biases and norms are not at their beginning."""
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": uncased}))
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    """The published layout: what was pre-trained, with both heads and the pooler."""
    torch.manual_seed(3)
    return _saved(transformers.BertForPreTraining(_config()), tmp_path_factory.mktemp("bert") / "bert")


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The encoder and its pooler, without a head."""
    torch.manual_seed(4)
    return _saved(transformers.BertModel(_config()), tmp_path_factory.mktemp("alone") / "encoder")


def _theirs(ids):
    """Our numbers of pieces as theirs."""
    own = {PAD: "[PAD]", BOS: "[CLS]", EOS: "[SEP]", UNK: "[UNK]"}
    others = [name for name in VOCABULARY if name not in ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")]
    names = [*own.values(), *others, "[MASK]"]
    return [VOCABULARY.index(names[i]) for i in ids]


def _cut_otherwise(ours: Tokenizer, reference, texts: list[str]) -> list[str]:
    """The texts that the two tokenizers cut into different pieces."""
    cut = {text: reference.encode(text, add_special_tokens=False, split_special_tokens=True) for text in texts}
    return [text for text, expected in cut.items() if _theirs(ours.encode(text)) != expected]


@pytest.mark.parametrize("changes", [{}, {"do_lower_case": False}, {"strip_accents": False}, {"strip_accents": True}])
def test_bert_tokenizer_equals_that_of_transformers(alone, tmp_path, changes):
    folder = Path(shutil.copytree(alone, tmp_path / "copy"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True} | changes))
    reference = transformers.BertTokenizer(vocab=str(folder / "vocab.txt"), **({"do_lower_case": True} | changes))
    ours = _tokenizer(folder)
    assert _cut_otherwise(ours, reference, ODD) == []
    assert ours.writes_lowercase is changes.get("do_lower_case", True)
    # and by its other file, which newer models have
    reference.save_pretrained(tmp_path / "saved")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / name, tmp_path / "saved")
    assert not (tmp_path / "saved" / "vocab.txt").exists()
    assert _tokenizer(tmp_path / "saved").digest == _tokenizer(folder).digest


def _tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(open_run(folder).path / "tokenizer", "text")


@pytest.mark.slow
def test_bert_tokenizer_equals_that_of_transformers_for_random_text(bert):
    ours, reference = _tokenizer(bert), transformers.BertTokenizer(vocab=str(bert / "vocab.txt"))
    generator = np.random.default_rng(1)
    # what both tables of Unicode have: to the library's, U+061D is no punctuation yet
    known = [chr(c) for c in range(0x0700) if c != 0x061D] + list("ᄀ각。、「」 \u3000ｆｕｌｌ—…“”’") + list(LETTERS)
    texts = ["".join(generator.choice(known, generator.integers(1, 40))) for _ in range(3000)]
    assert _cut_otherwise(ours, reference, texts) == []


def test_bert_tokenizer_round_trips_words(bert):
    ours = _tokenizer(bert)
    ids = ours.encode("Unknowning dogs, cats!")
    assert ours.tokens(ids) == ["▁un", "known", "ing", "▁dog", "s", "▁,", "▁cat", "s", "▁!"]
    assert ours.decode(ids) == "unknowning dogs , cats !"
    assert ours.tokens(ours.encode_continuation("ing dogs")) == ["ing", "▁dog", "s"]
    assert ours.tokens(ours.encode_continuation(" dogs")) == ["▁dog", "s"]
    assert ours.tokens(ours.encode_continuation(", 東s")) == ["▁,", "▁東", "▁s"]


TEXTS = ["the small dog sees a cat.", "cats", "un東known dog, dog!"]


def _batch(tokenizer: Tokenizer, mask: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [[BOS, *tokenizer.encode(text), EOS] for text in TEXTS]
    if mask:
        rows[0][2] = tokenizer.mask
    source = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
    return source, source != PAD


def test_bert_logits_and_states_equal_those_of_transformers(bert):
    run, theirs = load(bert), transformers.BertForPreTraining.from_pretrained(bert).eval().double()
    run.model.double()
    source, valid = _batch(run.tokenizers[0])
    given = torch.tensor([_theirs(row) for row in source.tolist()])
    with torch.no_grad():
        found = theirs(input_ids=given, attention_mask=valid.long(), output_hidden_states=True)
        ours = run.model.encoder.states_by_layer(run.model.encoder.embedding(source), valid)
        logits = run.model.scores(run.model.transform(run.model.encoder(source, valid).states))
    for mine, other in zip(ours, found.hidden_states, strict=True):
        torch.testing.assert_close(mine[valid], other[valid], atol=1e-5, rtol=1e-5)
    order = _theirs(range(run.tokenizers[0].size))
    torch.testing.assert_close(logits[valid], found.prediction_logits[..., order][valid], atol=1e-5, rtol=1e-5)


def test_bert_older_tensor_names_and_pickled_files_are_read(bert, tmp_path):
    tensors = load_file(bert / "model.safetensors")
    older = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    assert older.keys() != tensors.keys()
    expected = read_tensors(open_run(bert).path / "model.safetensors")
    for name, save in (("model.safetensors", save_file), ("pytorch_model.bin", torch.save)):
        folder = tmp_path / name.partition(".")[0]
        shutil.copytree(bert, folder, ignore=shutil.ignore_patterns("model.safetensors"))
        save(older, folder / name)
        found = read_tensors(open_run(folder).path / "model.safetensors")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[each], expected[each]) for each in expected)


CLASSIFIER = """
name: classifier
task: classification
init_from: {folder}
init: {{parts: all}}
data: {{corpus: files, root: {data}, train: train.tsv, validation: train.tsv, test: train.tsv,
       text: text, label: label}}
batches: {{tokens: 400, max_length: 40}}
model: {{kind: transformer, width: 32, heads: 4, feedforward: 48, encoder_layers: 3, encoder_positions: learned,
        max_positions: 40, norm: post, norm_epsilon: 1e-12, embedding_norm: true, scale_embeddings: false,
        activation: gelu, dropout: 0.1, attention_dropout: 0.1}}
head: {{pooling: pooler}}
training: {{updates: 12, warmup: 2, learning_rate: 0.002}}
validation: {{every: 6}}
device: {{kind: cpu, threads: 1, precision: fp32}}
"""


@pytest.fixture
def recipe(tmp_path):
    """A recipe of a classifier that begins with a folder."""
    rows = [f"{text}\t{label}" for text, label in zip(TEXTS * 8, ["dog", "cat"] * 12, strict=True)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")

    def written(folder: Path, *given: str):
        text = CLASSIFIER.format(folder=folder, data=tmp_path)
        (tmp_path / "classifier.yaml").write_text(text, encoding="utf-8")
        return read(tmp_path / "classifier.yaml", given)

    return written


@pytest.mark.parametrize("layout", ["bert", "alone"])
def test_bert_classifier_starts_with_its_states_and_pooler(layout, recipe, request):
    folder = request.getfixturevalue(layout)
    made = recipe(folder, "data.classes=[cat, dog]")
    source = open_pretrained(made)
    made = source.adapt_recipe(made)
    model = task_of(made).build(made, source.tokenizers)
    initialization, printed = initialize_from(model, made, source, None), []
    initialization.log_summary(printed.append)
    taken = initialization.load_report
    assert taken.new == ["head.weight", "head.bias"]
    assert list(taken.partly) == ["encoder.embedding.tokens.weight"]
    assert made.tokenizer.kind == "published"
    assert not any("differs" in line for line in printed)
    theirs = transformers.BertModel.from_pretrained(folder).eval().double()
    model.double().eval()
    ids, valid = _batch(source.tokenizers[0], mask=False)
    given = torch.tensor([_theirs(row) for row in ids.tolist()])
    with torch.no_grad():
        found = theirs(input_ids=given, attention_mask=valid.long())
        memory = model.encoder(ids, valid)
        pooled = model.pooling(memory.states, memory.valid, memory.summary)
    torch.testing.assert_close(memory.states[valid], found.last_hidden_state[valid], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(pooled, found.pooler_output, atol=1e-5, rtol=1e-5)


def test_bert_classifier_trains_resumes_and_is_evaluated(bert, recipe, tmp_path):
    quiet = Console(quiet=True)
    whole = train(recipe(bert, f"run.dir={tmp_path / 'whole'}"), quiet)
    under_way = run_training(recipe(bert, f"run.dir={tmp_path / 'parted'}"), quiet)
    while next(under_way).update < 8:
        pass
    under_way.close()
    resume(tmp_path / "parted", quiet)
    last = [read_tensors(f / "checkpoints" / "0000012" / "model.safetensors") for f in (whole, tmp_path / "parted")]
    assert all(torch.equal(last[0][name], last[1][name]) for name in last[0])
    before = read_tensors(open_run(bert).path / "model.safetensors")
    name = "encoder.layers.0.attention.query.weight"
    assert 0 < (last[0][name] - before[name]).norm() < before[name].norm()
    run = load(whole)
    assert task_of(run.recipe).parse_inputs(run, ["a dog"]).collate(np.array([0]), 0).source[0].tolist() == [
        *(BOS, *run.tokenizers[0].encode("a dog"), EOS)
    ]
    assert evaluate(open_run(whole)).headline_metrics()["accuracy"] > 30


def _s2s(*words: object) -> str:
    done = CliRunner().invoke(commands, [str(word) for word in words], standalone_mode=False, catch_exceptions=False)
    return done.stdout


def test_bert_hub_export_keeps_the_pooler(bert, recipe, tmp_path, monkeypatch):
    exported, fetched = tmp_path / "hub", []
    _s2s("export", bert, "--to", "hub", "--output", exported)
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download",
        lambda *_, allow_patterns, **given: fetched.extend(allow_patterns) or str(exported),
    )
    begun = []
    for run in (bert, "hf:somebody/bert"):
        made = recipe(run, "data.classes=[cat, dog]")
        source = open_pretrained(made)
        made = source.adapt_recipe(made)
        model = task_of(made).build(made, source.tokenizers)
        initialize_from(model, made, source, None)
        begun.append(model.pooling.state_dict())
    assert begun[0].keys() == begun[1].keys() != set()
    assert all(torch.equal(tensor, begun[1][name]) for name, tensor in begun[0].items())
    assert POOLER in fetched


def test_bert_fill_probabilities_equal_those_of_transformers(bert):
    theirs = transformers.BertForPreTraining.from_pretrained(bert).eval()
    reference = transformers.BertTokenizer(vocab=str(bert / "vocab.txt"))
    with torch.no_grad():
        given = reference("the small [MASK] sees a cat.", return_tensors="pt")
        scores = theirs(**given).prediction_logits[0, 3]
    # the mask piece is no answer here
    scores[VOCABULARY.index("[MASK]")] = -torch.inf
    words = [name for name in VOCABULARY if not name.startswith(("##", "[PAD", "[CLS", "[SEP", "[UNK", "[MASK"))]
    expected = {word: float(scores.softmax(0)[VOCABULARY.index(word)]) for word in words}
    best = max(expected, key=expected.__getitem__)
    first = _s2s("fill", bert, "the small ___ sees a cat.").splitlines()
    line = next(each for each in first if "%" in each)
    assert line.split() == [f"{100 * expected[best]:.2f}%", best]
    # what follows punctuation is no part of a word, and what follows a letter is one
    assert "…" not in _s2s("fill", bert, "a dog (___) sees")
    assert "…" in _s2s("fill", bert, "a dog___ sees")


def test_bert_masked_lm_training_can_be_continued(bert, tmp_path):
    (tmp_path / "texts.tsv").write_text("\n".join(["text", *TEXTS * 8]) + "\n", encoding="utf-8")
    text = CLASSIFIER.format(folder=bert, data=tmp_path).replace("classification", "masked-lm")
    text = text.replace("train.tsv", "texts.tsv").replace(", label: label", "").replace("head: {pooling: pooler}", "")
    (tmp_path / "mlm.yaml").write_text(text + "masking: {begin: true, output_bias: true}\n", encoding="utf-8")
    folder = train(read(tmp_path / "mlm.yaml", [f"run.dir={tmp_path / 'mlm'}"]), Console(quiet=True))
    taken = json.loads((folder / "init_from.json").read_text())
    assert (taken["new"], taken["partly"]) == ([], {})
    assert taken["left_out"] == ["pooling.dense.bias", "pooling.dense.weight"]
    # the output bias learns, too
    moved = load(folder).model.output_bias - load(bert).model.output_bias
    assert 0 < moved.abs().max() < 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "(?s)unsupported type 'roberta'.*marian and bert"),
        ({"model_type": "distilbert"}, "unsupported type 'distilbert'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new', and s2s reads 'gelu'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"num_hidden_layers": 4}, "has no tensor encoder.layer.3.attention.self.query.weight"),
        (None, "has no token \\[MASK\\]"),
    ],
)
def test_bert_variants_are_refused(bert, tmp_path, monkeypatch, change, message):
    folder = Path(shutil.copytree(bert, tmp_path / "copy"))
    if change is None:
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY).replace("[MASK]", "mask"), encoding="utf-8")
    else:
        found = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(found | change))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=message):
        open_run(folder)
    # nothing half-made is left
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_bert_without_a_head_is_refused_with_a_remedy(alone):
    with pytest.raises(UserError) as found:
        load(alone)
    assert "init_from" in str(found.value.remedy)


def test_bert_recipe_of_the_page_has_the_model_of_bert_base(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "pretrained-weights.md").read_text(encoding="utf-8")
    shown = next(block for block in page.split("```yaml\n")[1:] if "google-bert" in block).partition("```")[0]
    (tmp_path / "shown.yaml").write_text(shown, encoding="utf-8")
    given = described(Config.model_validate(transformers.BertConfig().to_dict()))
    (tmp_path / "bert").mkdir()
    write_recipe(given, tmp_path / "bert", tmp_path)
    assert read(tmp_path / "shown.yaml").model == read(tmp_path / "bert" / "recipe.yaml").model


@pytest.mark.slow
def test_commands_of_pretrained_weights_page_work_on_bert(bert, recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(bert, tmp_path / "bert")
    recipe(Path("bert"))
    (tmp_path / "texts.tsv").write_text("\n".join(["text", *TEXTS]) + "\n", encoding="utf-8")
    (tmp_path / "lines.txt").write_text("A small dog.\n", encoding="utf-8")
    assert execute_section("pretrained-weights", "BERT's encoders") == 6
    assert (tmp_path / "runs" / "classifier" / "init_from.json").exists()
