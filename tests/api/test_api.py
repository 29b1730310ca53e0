"""The public Python API agrees with the commands."""

import csv
import html
import json
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import s2s
from s2s.cli.main import commands
from s2s.comparison.request import Order, order
from s2s.decoding.generate import TextTranslator
from s2s.errors import Stopped, UserError
from s2s.run.trained_run import Run
from s2s.tasks.coverage import VocabularyCoverage
from s2s.tasks.line_translation import translate_lines
from s2s.tasks.seq2seq import build_translator

ROOT = Path(__file__).parents[2]
LINES = ["The old dog runs.", "", "A man sees the woman."]


def _command(*words, text=""):
    done = CliRunner().invoke(commands, [str(w) for w in words], input=text, standalone_mode=False)
    assert done.exit_code == 0, done.exception
    return done.stdout.splitlines()


def _of_file(folder, *words):
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return _command(*words, "--input", folder / "lines.txt")


def test_api_importing_loads_nothing_and_offers_the_names():
    code = "import sys, s2s; before = set(sys.modules); print(dir(s2s)); assert not {'torch', 'pydantic'} & before"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert all(name in done.stdout for name in ("load", "train", "compare", "read_recipe", "score"))
    with pytest.raises(AttributeError, match="no attribute 'lood'"):
        s2s.lood  # noqa: B018


def test_api_loading_leaves_torch_as_it_was_unless_threads_are_asked_for(small_world, tmp_path):
    run = tmp_path / "t"
    shutil.copytree(small_world / "runs/t", run)
    for recipe in run.rglob("recipe.yaml"):
        recipe.write_text(recipe.read_text().replace("threads: 1", "threads: 2"))
    threads = torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    try:
        before = torch.get_rng_state()
        assert s2s.load(run).recipe.device.threads == 2
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == threads
        assert torch.are_deterministic_algorithms_enabled()
        s2s.load(run, overrides={"device.threads": threads + 1})
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)


def test_api_lines_are_translated_as_by_the_command(small_world, tmp_path):
    run = s2s.load(small_world / "runs/t", overrides={"decoding.beam": 2})
    assert run.translate(LINES) == _of_file(tmp_path, "translate", small_world / "runs/t", "--beam", "2")
    assert [run.translate(line) for line in LINES] == run.translate(LINES)
    best = run.candidates(LINES, nbest=2)
    shown = _of_file(tmp_path, "translate", small_world / "runs/t", "--beam", "2", "--nbest", "2")
    assert [f"{found.score:.4f}" for row in best for found in row] == [
        row.split("\t")[1] for row in shown if row[0] != "2"
    ]
    assert run.candidates(LINES, nbest=2, beam=2) == s2s.load(small_world / "runs/t").candidates(LINES, nbest=2, beam=2)
    # a beam asks for a search of a run that samples, too
    samples = s2s.load(small_world / "runs/t", overrides={"decoding.sample": True})
    assert samples.candidates(LINES, nbest=2, beam=2) == best != samples.candidates(LINES, nbest=2)


def test_api_warnings_point_to_the_line_of_the_caller(small_world):
    run = s2s.load(small_world / "runs/t")
    with pytest.warns(UserWarning, match="line 1: not in the training text: 'Xylophones'") as warned:
        run.translate(["Xylophones zigzag."])
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="1 of 1 text cut after") as warned:
        s2s.load(small_world / "runs/c").probabilities(["good " * 1000])
    assert warned[0].filename == __file__


def test_api_lines_are_out_of_domain_with_their_prefix(small_world):
    prefix = "please. translate to german: "
    run = s2s.load(small_world / "runs/t", overrides={"data.prefix": prefix})
    words = frozenset({"please", "translate", "to", "german", "dog"})
    # As with a validation text of this prefix and five words, of which three are new.
    run._coverage = VocabularyCoverage(frozenset(range(run.loaded.tokenizers[0].size)), words, 999, new_words=1 / 3)
    lines = ["dog zebra", "Dog. Zebra lion tiger"]
    assert run.unknown_words(lines) == [(), ("Zebra", "lion", "tiger")]
    assert run.longer_than_training(lines) == [False, True]
    said = []
    found = translate_lines(
        build_translator(run._writer), run._coverage, [lines], False, said.append, prefix, refuse=lambda *_: None
    )
    assert len(list(found)) == 2
    warned = [
        "line 2: not in the training text: 'Zebra', 'lion', 'tiger'; the translation may be nonsense",
        "line 2: 2 sentences, training texts have at most 1; split it into sentences",
    ]
    assert said[:2] == warned
    with pytest.warns(UserWarning, match="line 2") as own:
        run.translate(lines)
    assert [str(each.message) for each in own] == warned


def test_api_score_is_the_log_probability_of_the_search(small_world):
    run = s2s.load(small_world / "runs/t", overrides={"decoding.max_ratio": 3, "decoding.beam": 2, "decoding.batch": 2})
    found = [c for row in run.candidates(LINES, nbest=2) for c in row if not c.hypothesis.cut]
    sources = [
        line for line, row in zip(LINES, run.candidates(LINES, 2), strict=True) for c in row if not c.hypothesis.cut
    ]
    targets = [candidate.text for candidate in found]
    # a text that is spelt by other pieces than the search wrote has another probability
    same = [n for n, c in enumerate(found) if tuple(run.loaded.tokenizers[-1].encode(c.text)) == c.hypothesis.tokens]
    scores = run.score(sources, targets)
    assert [scores[n] for n in same] == pytest.approx([found[n].hypothesis.log_probability for n in same], abs=1e-4)
    # in any order, whatever is beside it
    other = run.score(["A.", *LINES[::2]], ["Ja.", "Ein Hund.", "Nein, danke."])
    assert other == pytest.approx(
        [
            run.score([s], [t])[0]
            for s, t in zip(["A.", *LINES[::2]], ["Ja.", "Ein Hund.", "Nein, danke."], strict=True)
        ],
        abs=1e-4,
    )


def test_api_attention_is_that_of_inspect_and_sums_to_one(small_world):
    run = s2s.load(small_world / "runs/t")
    maps = run.attention("A dog.", "Hund")
    shown = CliRunner().invoke(
        commands,
        [
            "inspect",
            str(small_world / "runs/t"),
            "A dog.",
            "--translation",
            "Hund",
            "--output",
            str(small_world / "a.json"),
        ],
        standalone_mode=False,
    )
    assert shown.exit_code == 0, shown.exception
    kept = json.loads((small_world / "a.json").read_text())["examples"][0]["attention"]
    assert maps.weights[:, None] == pytest.approx(np.array(kept["cross_attention"]), abs=1e-5)
    assert [list(maps.rows), list(maps.columns)] == [kept["decoder_tokens"], kept["encoder_tokens"]]
    assert maps.weights.sum(axis=-1) == pytest.approx(np.ones(maps.weights.shape[:-1]), abs=1e-5)
    own = run.attention("A dog.")
    assert len(own.rows) == len(run.candidates(["A dog."])[0][0].hypothesis.tokens) + 1
    assert s2s.load(small_world / "runs/c").attention("text number 3").kind == "encoder"


def test_api_inspection_is_the_page_and_text_of_the_command(small_world, tmp_path):
    shown = _command("inspect", small_world / "runs/t", LINES[0], "--output", tmp_path / "command.html")
    found = s2s.load(small_world / "runs/t").inspect(LINES[0])
    found.save(tmp_path / "api.html")
    assert str(found).splitlines() == shown
    page = (tmp_path / "api.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "command.html").read_text(encoding="utf-8")
    (embedded,) = re.findall('<iframe [^>]*srcdoc="([^"]*)"></iframe>', found._repr_html_())
    assert html.unescape(embedded) == page


def test_api_alignment_is_that_of_the_command(small_world, tmp_path):
    run = s2s.load(small_world / "runs/t", overrides={"decoding.max_ratio": 1})
    pieces = run.loaded.tokenizers[-1].encode("Ein Hund.")
    _, _, links = run.alignment("A dog.", pieces)
    (tmp_path / "a").write_text("A dog.\n")
    (tmp_path / "b").write_text("Ein Hund.\n")
    (line,) = _command(
        "inspect", small_world / "runs/t", "--align", "--input", tmp_path / "a", "--reference", tmp_path / "b"
    )
    assert " ".join(f"{s}-{t}" for s, t in links) == line


def test_api_alignment_has_no_words_of_the_prefix(small_world, tmp_path):
    run = s2s.load(small_world / "runs/t", overrides={"data.prefix": "man to "})
    source, _, links = run.alignment("A dog.", run.loaded.tokenizers[-1].encode("Ein Hund."))
    assert source == ["A", "dog."]
    assert all(place < len(source) for place, _ in links)


def test_api_classes_are_named_as_by_the_command(small_world, tmp_path):
    run = s2s.load(small_world / "runs/c")
    shown = _of_file(tmp_path, "classify", small_world / "runs/c", "--probabilities")
    assert run.classify(LINES) == [row.split("\t")[0] for row in shown]
    assert run.classify(LINES[0]) == run.classify(LINES)[0]
    for row, found in zip(shown, run.probabilities(LINES), strict=True):
        assert row.split("\t")[1:] == [f"{name}={share:.4f}" for name, share in found.items()]


def _encoded(run, use):
    """Return what the encoder of a run computes during a use of the run."""
    found = []
    hook = run.loaded.model.encoder.register_forward_hook(lambda model, given, output: found.append(output))
    try:
        use()
    finally:
        hook.remove()
    return found[0]


def test_api_states_are_those_of_a_translation(small_world):
    run = s2s.load(small_world / "runs/t", overrides={"data.prefix": "man "})
    line, longer = LINES[0], LINES[2]
    theirs, alone = _encoded(run, lambda: run.translate(line)), run.encode([line])
    assert torch.equal(alone.states, theirs.states)
    assert torch.equal(alone.valid, theirs.valid)
    assert not alone.states.requires_grad
    # a probe can be trained on them
    torch.nn.Linear(alone.states.shape[2], 2)(alone.states).sum().backward()
    both = run.encode([line, longer])
    assert both.states.shape[:2] == both.valid.shape == (2, run.count_tokens([longer])[0] + 1)
    torch.testing.assert_close(both.states[0, both.valid[0]], alone.states[0])


@pytest.mark.parametrize("name", ["c", "m"])
def test_api_states_of_other_tasks_are_those_of_their_model(small_world, name):
    run = s2s.load(small_world / "runs" / name)
    texts = ["text number 3", "a longer text number 4"]
    found = run.encode(texts)
    assert found.valid.sum(dim=1).tolist() == [n + 1 for n in run.count_tokens(texts)]
    if name == "c":
        theirs = _encoded(run, lambda: run.classify(texts))
        assert torch.equal(found.states, theirs.states)
        assert run.encode(["text " * 1000]).valid.shape[1] == run.recipe.batches.max_length


def test_api_states_of_an_ensemble_are_refused(small_world):
    with pytest.raises(UserError, match="an ensemble has no states of its own"):
        s2s.load(f"{small_world}/runs/t+{small_world}/runs/t").encode(["a"])


def test_api_page_names_the_commands_that_python_has_and_lacks():
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8").split("\n## ")[0]
    named = re.findall(r"`(\w+)`", page)
    assert sorted(set(named) & set(commands.list_commands(None))) == sorted(commands.list_commands(None))
    (has,) = re.findall(r"as the\s+commands (.*?)\.", page, re.DOTALL)
    methods = {*dir(s2s), *dir(Run), *dir(s2s.Comparison)}
    assert [name for name in re.findall(r"`(\w+)`", has) if name not in methods] == []


def test_api_scores_are_those_of_the_command_and_nothing_is_written(small_world):
    for name, split in (("t", "test"), ("c", "validation")):
        folder = small_world / "runs" / name
        kept = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
        found = s2s.load(folder).evaluate(split)
        assert repr(found).startswith(f"<evaluation of {folder}, {split}: ")
        assert "\n" not in repr(found)
        assert len(repr(found)) < 300
        assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == kept
        assert str(found).splitlines() == _command("evaluate", folder, "--split", split)
        assert html.unescape(found._repr_html_()) == f"<pre>{found}</pre>"


@pytest.mark.filterwarnings("ignore:line 1")
def test_api_sentences_are_translated_one_by_one(small_world, tmp_path):
    lines, run = ["The dog runs.  A man sees it.", "", " A cat."], s2s.load(small_world / "runs/t")
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    first, second, third = run.translate(["The dog runs.", "A man sees it.", "A cat."])
    found = run.translate(lines, split_sentences=True)
    assert run.translate(lines[0], split_sentences=True) == found[0]
    assert found == [f"{first}  {second}", "", f" {third}"]
    assert found == _command("translate", run.loaded.path, "--split-sentences", "--input", tmp_path / "lines.txt")


def test_api_several_references_are_scored_together(small_world, tmp_path):
    sources, one, other = ["A dog runs.", "A man sleeps."], ["Ein Hund.", "Ein Mann."], ["Der Hund.", "Der Mann."]
    for name, lines in {"src": sources, "one": one, "other": other}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = s2s.load(small_world / "runs/t")
    found = run.evaluate(sources=sources, references=list(zip(one, other, strict=True)))
    words = ("--source", tmp_path / "src", "--reference", tmp_path / "one", "--reference", tmp_path / "other")
    shown = _command("evaluate", small_world / "runs/t", *words)
    assert str(found).splitlines()[1:] == shown[1:]
    assert "nrefs:2" in found.scores["bleu"].signature
    assert found.references == [[a, b] for a, b in zip(one, other, strict=True)]
    assert run.evaluate(sources=sources, references=one, tokenizer="char").tokenizer == "char"
    alone = s2s.score(found.translations, found.references)
    assert alone == found.scores
    assert list(s2s.score(["a b"], [["a b", "c"]], metrics=["cider", "exact"])) == ["cider", "exact"]


def test_api_score_reads_iterators_once(small_world):
    run = s2s.load(small_world / "runs/t")
    evaluated = run.evaluate(sources=["A dog."], references=iter(["Ein Hund."]), metrics=iter(["chrf"]))
    assert [*evaluated.scores] == ["chrf"]
    written, wanted = ["我喜欢猫和狗", "今天天气很好啊"], ["我喜欢猫和鸟", "今天天气非常好"]
    found = s2s.score(iter(written), iter(wanted), metrics=iter(["bleu"]), sources=iter(written))
    assert found == s2s.score(written, wanted, metrics=["bleu"])
    assert found["bleu"].value > 0
    assert "tok:zh" in found["bleu"].signature
    assert s2s.score(written, map(iter, zip(wanted, written, strict=True)))["exact"].value == 100


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda w: s2s.score(["a"], ["a"], metrics="bleu"), r"metrics: is one text, but a list of texts"),
        (lambda w: s2s.score(["a"], []), r"1 translations and 0 references"),
        (lambda w: s2s.score(["a"], [[]]), r"references\[0\]: has no reference"),
        (lambda w: s2s.score(["a"], ["a"], metrics=["blue"]), r"metrics: 'blue' is no metric\n.*did you mean bleu"),
        (lambda w: s2s.score(["a"], ["a"], sources=["a", "b"]), r"1 translations and 2 sources"),
        (lambda w: s2s.score(["a", "b"], "ab"), r"references: is one text"),
        (lambda w: s2s.score(["a", "b"], ["a", 1]), r"references\[1\]: 1 is no list of texts"),
        (lambda w: s2s.score([1], ["a"]), r"translations\[0\]: 1 is not a text"),
        (lambda w: s2s.load(w / "runs/t").evaluate(sources=["a"], references="a"), r"references: is one text"),
        (lambda w: s2s.load(w / "runs/t").translate(["a", "b\udce9"]), r"lines\[1\]: 'b\\udce9' is not UTF-8 at char"),
        (lambda w: s2s.load(w / "runs/t", checkpoint=3).recipe and s2s.load(w / "runs/t", 3).translate(["a"]), r"'3'"),
        (lambda w: s2s.load(w / "runs/t").evaluate(metrics=["blue"]), r"metrics: 'blue' is no metric"),
        (lambda w: s2s.load(w / "runs/c").evaluate(metrics=["bleu"]), r"cannot be scored by chosen metrics"),
        (lambda w: s2s.load(w / "runs/c").split_sentences(["a"]), r"cannot split sentences\n.*translation"),
        (lambda w: s2s.score(["a"], ["a"], tokenizer="zn"), r"unknown tokenizer 'zn'\n.*13a, zh"),
        (lambda w: s2s.load(w / "runs/t").evaluate(sources=["a"]), r"go together"),
        (lambda w: s2s.load(w / "runs/t").evaluate(sources=["a"], references=["a", "b"]), r"1 sources and 2"),
        (lambda w: s2s.load(w / "runs/c").evaluate(sources=["a"], references=["a"]), r"cannot score sources"),
        (lambda w: s2s.load(w / "runs/c").evaluate(tokenizer="zh"), r"cannot be scored with a tokenizer"),
        (lambda w: s2s.load(w / "runs/c").translate(["a"]), r"task classification cannot translate\n.*s2s classify"),
        (lambda w: s2s.load(w / "runs/m").classify(["a"]), r"task masked-lm cannot classify\n.*s2s fill"),
        (lambda w: s2s.load(w / "runs/t").candidates("a"), r"lines: is one text(.|\n)*list"),
        (lambda w: s2s.load(w / "runs/t").translate(["a", 1]), r"lines\[1\]: 1 is not a text"),
        (lambda w: s2s.load(w / "runs/t").translate(5), r"lines: 5 is no list of texts"),
        (lambda w: s2s.load(w / "runs/c").classify(None), r"lines: None is no list of texts"),
        (lambda w: s2s.load(5), r"run: 5 is no path"),
        (lambda w: s2s.load(w / "runs/t").score(["a"], [None]), r"targets\[0\]: None is not a text"),
        (lambda w: s2s.load(w / "runs/c").classify([b"a"]), r"lines\[0\]: b'a' is not a text"),
        (lambda w: s2s.load(w / "runs/t").candidates(["a"], beam=2.5), r"beam: 2.5 is not an integer"),
        (lambda w: s2s.load(w / "runs/t").candidates(["a"], nbest="5"), r"nbest: '5' is not an integer"),
        (lambda w: s2s.load(w / "runs/t").candidates(["a"], beam=0), r"the beam size is 0"),
        (lambda w: s2s.load(w / "runs/t").score(["a"], []), r"1 sources and 0 targets"),
        (lambda w: s2s.load(w / "runs/t").translate(["a"], task="en-de"), r"does not apply to runs of translation"),
        (lambda w: s2s.load(w / "runs/t").attention(" "), r"the line is empty"),
        (lambda w: s2s.load(w / "runs/t").candidates(["a"], nbest=3), r"the beam size is 1"),
        (lambda w: s2s.load(w / "runs/t").candidates(["a"], nbest=0), r"0 best translations requested"),
        (lambda w: s2s.load(w / "runs/t").evaluate("tset"), r"no split 'tset'\n.*validation or test"),
        (lambda w: s2s.load(w / "runs/t").evaluate("train"), r"no split 'train'\n.*validation or test"),
        (lambda w: s2s.load(w / "runs/x"), r"not a run"),
        (lambda w: s2s.load(w / "runs/t").encode("a"), r"lines: is one text(.|\n)*list"),
        (lambda w: s2s.load(w / "runs/t").encode([]), r"lines: has no text"),
        (lambda w: s2s.load(w / "runs/t").encode(["a"], task="x"), r"does not apply to runs of translation"),
        (lambda w: s2s.load(w / "runs/t").encode(["a " * 9000]), r"a text of .* tokens is longer than"),
        (
            lambda w: s2s.load(w / "runs/t").generate("a"),
            r"task translation cannot generate text from a prompt\n.*language-model",
        ),
        (lambda w: s2s.load(w / "runs/m").fill("a"), r"the text has 0 blanks"),
        (lambda w: s2s.load(w / "runs/m").fill("a ___", tokens=9), r"tokens: is 9\n.*from 1 to 8"),
        (lambda w: s2s.load(w / "runs/m").weigh_words("a ___", ["b"]), r"words: has 1 word\n.*two"),
        (lambda w: s2s.load(w / "runs/m").caption(["a.png"]), r"task masked-lm cannot caption\n.*captioning"),
        (lambda w: s2s.load(w / "runs/t", overrides={"training.updates": 3}), r"training"),
        (lambda w: s2s.read_recipe("translate", {"training.updats": 3}), r"did you mean updates"),
        (lambda w: s2s.read_recipe("translat"), r"did you mean translate"),
        (lambda w: s2s.train(s2s.read_recipe("translate"), {"a": 1}), r"do not apply to a recipe object"),
        (lambda w: s2s.train(w / "t.yaml", {"run.dir": str(w / "runs/t")}), r"already contains a run"),
        (lambda w: s2s.train(w / "runs/x", resume=True), r"not a run"),
        (lambda w: s2s.compare(["rnn", "tranformer"]), r"did you mean transformer"),
        (
            lambda w: s2s.compare(["rnn", "lstm"], profile="quik"),
            r"^profile: unknown value 'quik'\n.*did you mean quick",
        ),
        (lambda w: s2s.compare(["rnn", "lstm"], seeds=0), r"^seeds: is 0"),
        (lambda w: s2s.Comparison.planned(["rnn", "lstm"], match="tim"), r"^match: .*\n.*did you mean time"),
        (lambda w: s2s.compare(["rnn", "lstm"], experiments=["x"]), r"^experiments: no experiment 'x'"),
        (lambda w: s2s.compare(["rnn", "lstm"], overrides={"run.dir": "x"}), r"^arguments: run.dir=.*folder names the"),
        (lambda w: s2s.compare(["rnn", "lstm"], w / "runs/m"), r"^recipe: .* is a recipe of task masked-lm"),
        (
            lambda w: s2s.compare(["rnn", "lstm"], "ag_news", profile="quick"),
            r"profile quick has no effect with recipe, which",
        ),
        (lambda w: s2s.Comparison(w).table(), r"is no comparison"),
        (
            lambda w: s2s.train(w / "t.yaml", {"run.dir": str(w / "runs/t")}),
            r"resume it with `s2s\.train\('.*runs/t', resume=True\)`, replace it with overwrite=True",
        ),
        (lambda w: s2s.train(w / "runs/t", {"model.width": 8}, resume=True), r"resume=True uses the recipe of the run"),
        (lambda w: s2s.read_recipe("translate", {"model.wdth": 3}), r"^overrides: model\.wdth=3: .*did you mean width"),
        (lambda w: s2s.load(w / "runs/t", overrides={"decoding.beem": 3}), r"^overrides: decoding\.beem=3"),
        (lambda w: s2s.load(w / "runs/t/checkpoints/0000001", "best"), r"leave out checkpoint best"),
        (lambda w: s2s.load(w / "runs/t").candidates(["a"], nbest=3), r"set beam 3, or a smaller nbest"),
        (lambda w: s2s.load(w / "runs/t").inspect("a b", layer=7), r"^layer: there is no layer 7"),
        (lambda w: s2s.load(w / "runs/t").inspect("a b", word="c"), r"^word: 'c' is not among the words"),
        (lambda w: s2s.load(w / "runs/t").inspect("a", "b", "c"), r"^texts: there are 3 inputs"),
        (lambda w: s2s.load(w / "runs/t").inspect(["a b"]), r"^texts\[0\]: \['a b'\] is not a text"),
        (lambda w: s2s.load(w / "runs/t").inspect("a", translation=5), r"^translation: 5 is not a text"),
        (
            lambda w: s2s.load(w / "runs/t").inspect("a", "b", translation="c"),
            r"^translation: needs exactly one text, not 2",
        ),
        (lambda w: s2s.load(w / "runs/t").inspect(translation="c"), r"^translation: needs exactly one text, not 0"),
        (lambda w: s2s.load(w / "runs/c").inspect("a", translation="c"), r"^translation: .* has no translations"),
        (lambda w: s2s.load(w / "runs/c").inspect("a", task="c"), r"^task: a run of task classification has no other"),
        (lambda w: s2s.load(w / "runs/t").inspect("a", word=5), r"^word: 5 is not a text"),
        (lambda w: s2s.load(w / "runs/t").inspect("a", head=-1), r"^head: is -1\n.*from 0"),
        (lambda w: s2s.load(w / "runs/t").inspect("a", head=0.5), r"^head: 0.5 is not an integer"),
        (lambda w: s2s.load(w / "runs/t").inspect("a", layer=-2), r"^layer: is -2\n.*from -1"),
        (lambda w: s2s.load(f"{w}/runs/t+{w}/runs/t").inspect("a"), r"an ensemble has no vectors of its own"),
        (lambda w: s2s.load(f"{w}/runs/t+{w}/runs/t").alignment("a", [70]), r"an ensemble has no attention of its own"),
        (lambda w: s2s.load(w / "runs/t").alignment(5, [7]), r"^line: 5 is not a text"),
        (lambda w: s2s.load(w / "runs/t").alignment("a", [7, 9999]), r"^tokens\[1\]: is 9999\n.*from 0 to "),
        (lambda w: s2s.load(w / "runs/t").looks("a", [-1]), r"^tokens\[0\]: is -1\n.*from 0 to "),
        (lambda w: s2s.load(w / "runs/t").looks("a", ["7"]), r"^tokens\[0\]: '7' is not an integer"),
        (lambda w: s2s.load(w / "runs/t").attention("a", 5), r"^target: 5 is not a text"),
        (lambda w: s2s.load(w / "runs/c").attention(5), r"^line: 5 is not a text"),
        (lambda w: s2s.load(w / "runs/c").attention("a", "b"), r"^target: does not apply to a run of task classif"),
        (lambda w: s2s.load(w / "runs/m").attention("a", task="b"), r"^task: does not apply to a run of task masked"),
        (lambda w: s2s.load(w / "runs/t").translate(["a"], task=["b"]), r"^task: \['b'\] is not a text"),
        (lambda w: s2s.load(w / "runs/t").split_sentences("A dog. A cat."), r"^lines: is one text"),
        (lambda w: s2s.load(w / "runs/t").split_sentences([5]), r"^lines\[0\]: 5 is not a text"),
        (lambda w: s2s.load(w / "runs/t", overrides=["decoding.beam=2"]), r"^overrides: .* is no dictionary"),
        (lambda w: s2s.compare("rnn"), r"^models: is one text"),
        (lambda w: s2s.compare([1, 2]), r"^models\[0\]: 1 is not a text"),
        (lambda w: s2s.compare(["rnn", "lstm"], seeds="3"), r"^seeds: '3' is not an integer"),
        (lambda w: s2s.compare(["rnn", "lstm"], profile=5), r"^profile: 5 is not a text"),
        (lambda w: s2s.compare(["rnn", "lstm"], experiments="memory"), r"^experiments: is one text"),
    ],
)
def test_api_errors_have_a_remedy(small_world, use, message):
    with pytest.raises(UserError, match=message) as raised:
        use(small_world)
    # commands are in backquotes; the rest is about arguments of Python
    error = raised.value
    for text in (str(error), error.what, error.where, error.remedy):
        assert not re.search(r"(^|\s)--\w|command line", re.sub("`[^`]*`", "", text)), text


def test_api_training_that_is_interrupted_names_the_call_that_resumes_it(small_world, tmp_path):
    training = s2s.train(small_world / "c.yaml", {"training.updates": 4, "run.dir": str(tmp_path / "a run")})
    steps = iter(training)
    next(steps)
    with pytest.raises(Stopped, match=r"resume with: s2s\.train\('.*/a run', resume=True\)$"):
        steps.throw(KeyboardInterrupt)
    again = iter(s2s.train(training.folder, {"device.threads": 1}, resume=True))
    next(again)
    with pytest.raises(Stopped, match=r"resume with: s2s\.train\('.*/a run', overrides, resume=True\)$"):
        again.throw(KeyboardInterrupt)


def test_api_cluster_that_is_not_there_is_refused_before_anything_is_measured(tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(UserError, match=r"^cluster localhost:1: no Ray cluster"):
        s2s.Comparison(tmp_path).run(cluster="localhost:1")


def test_api_values_are_those_of_the_command_line():
    values = {"training.updates": 7, "training.clip": None, "training.warmup": 2, "training.learning_rate": 2e-3}
    recipe = s2s.read_recipe("translate", values)
    assert (recipe.training.updates, recipe.training.clip, recipe.training.learning_rate) == (7, None, 2e-3)
    numbers = s2s.read_recipe(
        "translate", {"training.updates": np.int64(50), "training.learning_rate": np.float32(0.5)}
    )
    assert (numbers.training.updates, numbers.training.learning_rate) == (50, 0.5)
    # YAML takes U+0085 for the end of a line
    assert s2s.read_recipe("translate", {"run.dir": "a\x85b"}).run.dir == "a\x85b"
    with pytest.raises(UserError, match=r"training\.updates: is true"):
        s2s.read_recipe("translate", {"training.updates": True})


def _losses(folder):
    entries = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [entry["loss"] for entry in entries if "loss" in entry]


def test_api_run_that_was_left_goes_on_to_the_same_numbers(small_world, tmp_path, capsys):
    sizes = {"training.updates": 4, "validation.every": 2, "data.test": None}
    whole = s2s.train(small_world / "c.yaml", sizes | {"run.dir": str(tmp_path / "whole")})
    assert not whole.folder.exists()
    seen = [(update.update, update.loss) for update in whole]
    assert [number for number, _ in seen] == [1, 2, 3, 4]
    assert [loss for _, loss in seen] == _losses(whole.folder)
    assert repr(whole) == f"<training {whole.folder}, 4 steps>"
    for update in s2s.train(small_world / "c.yaml", sizes | {"run.dir": str(tmp_path / "left")}):
        if update.update == 2:
            break
    assert [update.update for update in s2s.train(tmp_path / "left", resume=True)] == [3, 4]
    assert _losses(tmp_path / "left") == _losses(whole.folder)
    files = [folder / "checkpoints/0000004/model.safetensors" for folder in (whole.folder, tmp_path / "left")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert capsys.readouterr().out == ""


def test_api_table_has_a_line_for_each_row_and_model():
    table = s2s.Comparison(ROOT / "docs/comparison-lecture").table()
    written = (ROOT / "docs/comparison-lecture/memory/result.json").read_text()
    for found in json.loads(written)["findings"]:
        (line,) = table[(table.row == found["row"]) & (table.model == found["model"])].to_dict("records")
        assert (line["value"], line["unit"], line["rival"]) == (found["value"], found["unit"], found["rival"])
    assert len(table) == table.row.nunique() * table.model.nunique()


def test_api_claims_are_those_of_the_file():
    folder = ROOT / "docs/comparison-lecture"
    with (folder / "claims.csv").open(encoding="utf-8", newline="") as file:
        kept = list(csv.DictReader(file))
    comparison = s2s.Comparison(folder)
    assert repr(comparison) == f"<comparison {folder}>"
    found = comparison.claims().reset_index().astype(str).to_dict("records")
    assert found == kept
    shown = comparison._repr_html_()
    assert [row["verdict"] for row in kept] == re.findall("<td>(yes|no|undecided)</td>", shown)


@pytest.fixture
def begun(monkeypatch):
    """What comparisons begin and go on with, where nothing is measured."""
    begun = []
    monkeypatch.setattr("s2s.comparison.setup.create", lambda *asked: begun.append(asked))
    goes_on = lambda folder, _, nodes: begun.append((folder, nodes))  # noqa: E731
    monkeypatch.setattr("s2s.comparison.engine.resume", goes_on)
    monkeypatch.setattr("s2s.comparison.engine.check_concluded", lambda folder: None)
    monkeypatch.setattr("s2s.comparison.report.drawing.draw", lambda folder: folder)
    return begun


def test_api_comparison_asks_what_the_command_asks(begun, tmp_path):
    changed = {"training.updates": 500, "lstm.bidirectional": False}
    s2s.compare(["lstm", "rnn"], None, changed, "lecture", 2, ["memory"], tmp_path / "a")
    s2s.compare(["lstm", "rnn"], "ag_news", quiet=False)
    words = ("lstm", "rnn", "training.updates=500", "lstm.bidirectional=false")
    first = order(Order(words, "lecture", 2, None, ("memory",), None, tmp_path / "a"))
    second = order(Order(("lstm", "rnn"), task=Path("ag_news")))
    asked = [(each.folder, each.base, each.summary) for each in (first, second)]
    assert begun == [asked[0], (first.folder, None), asked[1], (second.folder, None)]


def test_compare_starts_once_and_resumes(begun, tmp_path, monkeypatch):
    nodes = nullcontext("nodes")
    monkeypatch.setattr("s2s.comparison.request.find_spec", lambda name: name)
    monkeypatch.setattr("s2s.comparison.cluster.Cluster", {"auto": nodes}.__getitem__)
    planned = s2s.Comparison.planned(["lstm", "rnn"], folder=tmp_path / "a", match="time")
    assert begun == []
    assert planned.run(cluster="auto").run() is planned
    found = order(Order(("lstm", "rnn"), match="time", out=tmp_path / "a"))
    goes_on = [(found.folder, "nodes"), (found.folder, None)]
    assert begun == [(found.folder, found.base, found.summary), *goes_on]
    monkeypatch.setattr("s2s.comparison.request.find_spec", lambda name: None)
    with pytest.raises(UserError, match="a cluster needs Ray"):
        s2s.Comparison.planned(["lstm", "rnn"], folder=tmp_path / "b").run(cluster="auto")
    assert len(begun) == 3


def test_candidate_of_the_api_is_the_translators(small_world):
    run = s2s.load(small_world / "runs/t")
    alone = TextTranslator(run.loaded.model, run.loaded.tokenizers[0], run.loaded.tokenizers[-1], run.recipe.decoding)
    assert [found.candidates for found in alone.translate(LINES)] == run.candidates(LINES)
