"""Translation from several corpora, by the real commands: drawn as asked."""

import json
import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.data.mixing import FixedPairs, MixedDataset, counts, rates
from s2s.data.tokenizers import train, train_pair
from s2s.errors import UserError
from s2s.inspection.words import links, pharaoh, words_of
from s2s.recipe.catalog import missing_files
from s2s.recipe.pairs import BatchSettings
from s2s.recipe.schema import PieceSettings, TokenizerSettings
from s2s.run.inference import load
from s2s.run.tasks import read, task_of
from s2s.tasks.seq2seq import build_translator, cross_attention_weights
from s2s.tasks.translation.diagnosis import align_lines
from s2s.tasks.translation.prepared import PreparedTranslation

RECIPE = """
name: {name}
data: {{corpus: files, source: {source}, target: {target}, train: {train}, validation: few.tsv, test: few.tsv{more}}}
tokenizer: {{kind: word, size: 200}}
batches: {{tokens: 200}}
model: {{kind: transformer, width: 16, heads: 2, feedforward: 16, encoder_layers: 1, decoder_layers: 1, dropout: 0.1}}
training: {{updates: 6, warmup: 2}}
validation: {{every: 3, metric: loss, sentences: 2}}
decoding: {{beam: 2, max_ratio: 0.5, max_extra: 1}}
device: {{kind: cpu, precision: fp32, threads: 1}}
"""


def _rows(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    numbers = [[chance.randrange(20) for _ in range(chance.randint(2, 6))] for _ in range(count)]
    return [" ".join(f"w{n}" for n in row) + "\t" + " ".join(f"v{n}" for n in row) for row in numbers]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    whole = _rows(120, 1)
    for name, rows in {"whole": whole, "one": whole[:70], "two": whole[70:], "few": _rows(8, 2)}.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join(["en\tde", *rows]) + "\n")
    (tmp_path / "mono.de").write_text("".join(row.split("\t")[1] + "\n" for row in _rows(30, 3)))
    return tmp_path


def _recipe(folder: Path, name: str, train: str, more: str = "", source: str = "en", target: str = "de") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(
        RECIPE.format(name=name, train=train, more=f", {more}" if more else "", source=source, target=target)
    )
    return path


def _s2s(*words: object) -> str:
    done = CliRunner().invoke(commands, [str(w) for w in words], standalone_mode=False, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def _translated(run: str, file: str) -> list[str]:
    done = CliRunner().invoke(commands, ["translate", run, "--input", file], standalone_mode=False)
    assert done.exit_code == 0, done.output
    return done.stdout.split("\n")[:-1]


def _weights(run: str) -> bytes:
    return (Path("runs") / run / "checkpoints" / "0000006" / "model.safetensors").read_bytes()


def _prepared(recipe: Path, *overrides: str) -> tuple[Any, PreparedTranslation, list[str]]:
    asked, said = cast(Any, read(recipe, overrides)), list[str]()
    return asked, task_of(asked).prepare(asked, (), said.append), said


def test_mixing_two_corpora_of_weight_1_equals_one_corpus(folder):
    whole = _recipe(folder, "whole", "whole.tsv")
    parts = _recipe(folder, "parts", "one.tsv", "weight: 1, more: {two: {train: two.tsv, weight: 1.0}}")
    _s2s("train", whole)
    told = _s2s("train", parts)
    assert _weights("whole") == _weights("parts")
    assert "  two: 50 examples, drawn 41.7% of the time, 1.00 passes per epoch" in told
    # what it is scored by is the first corpus' alone, and the other is not needed for that
    (folder / "two.tsv").unlink()
    assert _s2s("evaluate", "runs/parts").replace("parts", "whole") == _s2s("evaluate", "runs/whole")


@pytest.mark.parametrize(("mixing", "weights"), [("equal", (3, 1)), ("size", (1, 2.5)), (2.0, (1, 4))])
def test_mixing_draws_corpora_at_their_rates(folder, mixing, weights):
    more = f"mixing: {mixing}, weight: {weights[0]}, more: {{two: {{train: two.tsv, weight: {weights[1]}}}}}"
    recipe, data, _ = _prepared(_recipe(folder, "parts", "one.tsv", more))
    exponent = {"equal": 0, "size": 1}.get(str(mixing), 1 / 2)
    wanted = np.array(weights) * np.array([70, 50]) ** exponent
    wanted = wanted / wanted.sum()
    np.testing.assert_allclose(rates([70, 50], mixing, weights), wanted)
    task = task_of(recipe)
    examples = task.examples(recipe, data, task.build(recipe, data.tokenizers))
    drawn = np.concatenate([rows for epoch in range(40) for rows in examples.make_batches(1, epoch)]) % 120
    assert np.bincount(drawn >= 70) / len(drawn) == pytest.approx(wanted, abs=0.5 / 120)
    # each batch holds the pairs of these rows
    rows = examples.make_batches(1, 3)[0]
    batch = examples.collate(rows, 0)
    rows = rows % 120
    read_as = [row[valid].tolist()[:-1] for row, valid in zip(batch.source, batch.source_valid, strict=True)]
    assert read_as == [data.train.pair(int(row))[0] for row in rows]


def test_mixing_weights_of_1_change_no_rate():
    assert counts([9, 4, 2], 2.0, [1, 1, 1]).tolist() == counts([9, 4, 2], 2.0).tolist()


def test_prefix_unknown_to_the_tokenizer_is_refused(folder):
    _s2s("train", _recipe(folder, "first", "one.tsv"))
    more = 'more: {two: {train: two.tsv, prefix: "<2xx> "}}'
    with pytest.raises(UserError, match=r"data.more.two.prefix: .*does not know: '<2xx> '"):
        _s2s("train", _recipe(folder, "next", "one.tsv", more), "init_from=runs/first")
    # spelt in pieces that are known, it is told apart
    _s2s("train", _recipe(folder, "next", "one.tsv", more.replace("<2xx> ", "w1 ")), "init_from=runs/first")


@pytest.mark.slow
def test_prefix_is_added_to_every_line(folder):
    recipe = _recipe(folder, "many", "one.tsv", 'prefix: "<2de> ", more: {two: {train: two.tsv, prefix: "<2xx> "}}')
    _s2s("train", recipe)
    run = "runs/many"
    (folder / "in.en").write_text("w1 w2\n\nw3\n")
    usual = _s2s("translate", run, "--input", "in.en")
    assert usual == _s2s("translate", run, "--prefix", "<2de> ", "--input", "in.en")
    (folder / "marked.en").write_text("<2de> w1 w2\n\n<2de> w3\n")
    assert usual == _s2s("translate", run, "--prefix", "", "--input", "marked.en")
    # the files of a test set are scored as the test set is
    for side, column in (("en", 0), ("de", 1)):
        lines = (folder / "few.tsv").read_text().splitlines()[1:]
        (folder / f"few.{side}").write_text("".join(line.split("\t")[column] + "\n" for line in lines))
    _s2s("evaluate", run, "--json", "split.json")
    _s2s("evaluate", run, "--source", "few.en", "--reference", "few.de", "--json", "files.json")
    split, files = (json.loads((folder / f"{name}.json").read_text()) for name in ("split", "files"))
    split, files = split["evaluations"][0], files["evaluations"][0]
    assert all(split[key] == files[key] for key in ("translations", "sources", "buckets", "words"))
    # words are counted without it, and lines are the same to a run that has none
    assert split["sources"] == (folder / "few.en").read_text().splitlines()
    _s2s("train", _recipe(folder, "bare", "one.tsv"))
    both = _s2s("evaluate", run, "runs/bare", "--source", "few.en", "--reference", "few.de")
    assert "against the first" in both
    _s2s("train", _recipe(folder, "small", "one.tsv"), "tokenizer.lowercase=true")
    with pytest.raises(UserError, match=r"without regard to case, others are not(.|\n)*--lowercase"):
        _s2s("evaluate", "runs/bare", "runs/small")
    assert "against the first" in _s2s("evaluate", "runs/bare", "runs/small", "--lowercase")
    assert not (folder / "runs/small/evaluation-test-lowercase.json").exists()
    links = _s2s("inspect", run, "--align", "--input", "in.en").split("\n")
    assert {link.split("-")[0] for link in links[0].split()} <= {"0", "1"}


def test_prefix_may_be_overridden_for_held_out_pairs(folder):
    recipe = _recipe(folder, "held", "one.tsv", 'prefix: "<2de> ", more: {two: {train: two.tsv, prefix: "<2xx> "}}')
    _s2s("train", recipe, "data.test=5")
    _s2s("evaluate", "runs/held", "--json", "own.json")
    _s2s("evaluate", "runs/held", "data.prefix='<2xx> '", "--json", "other.json")
    own, other = (json.loads((folder / f"{name}.json").read_text())["evaluations"][0] for name in ("own", "other"))
    assert own["sources"] == other["sources"]
    run = load(Path("runs/held"), overrides=["data.prefix='<2xx> '"])
    asked = [f"<2xx> {source}" for source in own["sources"]]
    assert other["translations"] == [found.text for found in build_translator(run).translate(asked)]
    with pytest.raises(UserError, match="drawn from the training data"):
        _s2s("evaluate", "runs/held", "data.prefix='<2xx> '", "data.seed=7")


@pytest.mark.slow
@pytest.mark.parametrize(("prefix", "before"), [("<2de> ", 1), ("<2de>", 0), ("to <2de>", 1)])
def test_alignment_links_do_not_count_the_prefix(folder, prefix, before):
    _s2s("train", _recipe(folder, "chars", "one.tsv", 'prefix: "<2de> "'), "tokenizer.kind=char")
    run, line = load(Path("runs/chars"), overrides=[f'data.prefix="{prefix}"']), "w1 w2 w3"
    (found,) = align_lines(run, [[line]], print, ["v1 v2"])
    cut = run.tokenizers[0]
    read, pieces = cut.encode(prefix + line), cut.encode("v1 v2")
    looked = (
        cross_attention_weights(run.model, read, pieces, run.device_context.device)[-1].mean(dim=0).double().numpy()
    )
    words = words_of(cut, read)
    assert [word.text for word in words[before:]][1:] == ["w2", "w3"]
    assert found == pharaoh(links(looked, words[before:], words_of(cut, pieces)))


def test_held_out_sentences_are_removed_from_all_corpora(folder):
    rows, few = (folder / "two.tsv").read_text(), (folder / "few.tsv").read_text().splitlines()[1:]
    source, target = few[0].split("\t")
    (folder / "two.tsv").write_text(f"{rows}{source}\tother\nother\t{target}\nw1\tv1\n")
    recipe = _recipe(folder, "parts", "one.tsv", 'prefix: "<2de> ", more: {two: {train: two.tsv}}')
    _, data, said = _prepared(recipe)
    assert data.sizes == {"data": 70, "two": 51}
    assert "other" not in {*data.corpus.train["source"], *data.corpus.train["target"]}
    assert any("2 of them are in the validation or test set: left out" in line for line in said)


def test_data_check_reports_each_corpus_and_its_rate(folder):
    (folder / "two.tsv").write_text((folder / "two.tsv").read_text() + "\tempty\n")
    told = _s2s("data", "check", _recipe(folder, "both", "one.tsv", "more: {two: {train: two.tsv}}"))
    assert "two: 1 pair of train with an empty side (row 51)" in told
    assert "  two: 50 examples, drawn" in told


def test_corpus_paths_are_relative_to_the_recipe(folder, monkeypatch):
    recipe = _recipe(folder, "both", "whole.tsv", "more: {two: {train: [gone.en, gone.de]}}")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    two = cast(Any, read(recipe, ["data.more.two.target=xx"])).data.more["two"]
    assert (two.source, two.target) == ("en", "xx")
    assert two.train == (str(folder / "gone.en"), str(folder / "gone.de"))
    assert any("data.more.two.train" in line for line in missing_files(read(recipe)))


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char", "word", "bytes"])
def test_prefix_marks_are_tokens(kind):
    lines = [f"a dog number {n} runs" for n in range(200)]
    settings = PieceSettings(kind=kind, size=40 if kind in ("unigram", "bpe") else 400, byte_fallback=False)
    plain, none = train(lines, settings, "text"), train(lines, settings, "text", [])
    assert plain.digest == none.digest
    both = TokenizerSettings(**settings.model_dump())
    marked, _ = train_pair([f"<2de> {line}" for line in lines], lines, both, ["<2de>"])
    text = "<2de> a dog runs"
    assert marked.decode(marked.encode(text)) == text
    assert ("▁<2de>" in marked.tokens(marked.encode(text))) == (kind != "bytes")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("more: {two: {train: nowhere.tsv}}", r"nowhere\.tsv.*|data\.more\.two"),
        ("more: {two: {trian: two.tsv}}", r"data\.more\.two\.trian: unknown key; did you mean train"),
        ("more: {two: {train: two.tsv, validation: 3}}", r"data\.more\.two\.validation: unknown key"),
        ("more: {two: {train: two.tsv, weight: 0}}", r"data\.more\.two\.weight: is 0"),
        ("weight: 2", "weight and mixing have no effect on a single corpus"),
        ("mixing: equal", "weight and mixing have no effect on a single corpus"),
        ("join: 3, more: {two: {train: two.tsv}}", "join needs a single corpus"),
        ("more: {two: {train: 30}}", r"data\.more\.two"),
        ("more: {data: {train: two.tsv}}", "the name data is that of the first corpus"),
        ("more: {two: {train: two.tsv, filters: {max_words: 1}}}", r"no training pair is left of it \(data\.more\.two"),
    ],
)
def test_several_corpora_mistakes_are_reported(folder, more, said):
    with pytest.raises(UserError, match=said):
        _s2s("train", _recipe(folder, "bad", "one.tsv", more))
    assert not (folder / "runs").exists()


def test_fixed_pairs_are_a_slice_of_the_pairs():
    class Rows:
        source_lengths = np.arange(10) + 2
        target_lengths = np.arange(10) + 2

        def draw(self, indices, seed):
            return [np.full(i + 1, i) for i in indices], [np.full(i + 1, i) for i in indices]

    span = FixedPairs(cast(Any, Rows()), 4, 7)
    assert span.source_lengths.tolist() == [6, 7, 8]
    assert [row[0] for row in span.draw(np.array([0, 2]), 0)[0]] == [4, 6]
    with pytest.raises(UserError, match="all training examples of late are longer than 5"):
        MixedDataset({"late": span}, BatchSettings(max_length=5), "equal", None, [1.0])


def test_filters_and_data_check_ignore_the_prefix(folder):
    rows = ["Yes.\tJa.", "A man.\tEin Mann.", "Good morning, dear friends!\tGuten Morgen!", "same words\tsame words"]
    (folder / "short.tsv").write_text("\n".join(["en\tde", *rows]) + "\n")
    found = []
    for prefix in ("", "translate English to German, please: "):
        recipe = _recipe(folder, "short", "short.tsv", f"prefix: '{prefix}', filters: {{max_words: 3, max_ratio: 1.5}}")
        sources = _prepared(recipe)[1].corpus.train["source"]
        assert all(source.startswith(prefix) for source in sources)
        copies = [line.split() for line in _s2s("data", "check", recipe).splitlines() if "equal to the source" in line]
        found.append(([source.removeprefix(prefix) for source in sources], copies))
    assert found[0] == found[1]
    assert found[0][0] == ["Yes.", "A man.", "same words"]
    assert found[0][1] == [["targets", "equal", "to", "the", "source", "1", "0", "0"]]
