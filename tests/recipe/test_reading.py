"""Reading of recipes: defaults, overrides, paths and error messages."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from s2s.errors import UserError
from s2s.recipe.catalog import missing_files
from s2s.recipe.installed import models
from s2s.recipe.messages import REMOVED
from s2s.recipe.reading import dump, recipe_path, shipped, write
from s2s.run.tasks import read

GOOD = """name: good
data:
  corpus: built-in
training:
  updates: 10
  warmup: 2
  learning_rate: 1e-3
model:
  kind: transformer
"""


@pytest.fixture
def good(tmp_path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


def _with(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    return path


def _mistakes(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        read(path, overrides)
    return str(caught.value).split("\n")


def test_read_fills_in_defaults_and_parses_1e_3_as_a_number(good):
    recipe = read(good)
    assert recipe.training.learning_rate == 0.001
    assert recipe.training.clip == 1.0
    assert recipe.model.heads == 4


def test_recipe_words_that_other_yamls_take_for_something_else_are_text(good):
    for word in ("no", "yes", "on", "off", "y", "12:30", "2024-01-31", "0x1g"):
        assert read(good, [f"description={word}"]).description == word


def test_recipe_overrides_win_over_the_file_and_the_last_one_over_the_others(good):
    recipe = read(good, ["training.updates=7", "training.updates=99", "model.norm=post", "data.filters.max_words=null"])
    assert recipe.training.updates == 99
    assert recipe.model.norm == "post"
    assert recipe.data.filters.max_words is None
    assert read(good, ["training={updates: 3, schedule: constant}"]).training.updates == 3


def test_recipe_override_is_the_same_as_a_line_in_the_file(good, tmp_path):
    text = GOOD.replace("updates: 10", "updates: 500").replace("model:\n  kind", "model:\n  width: 64\n  kind")
    assert read(_with(tmp_path, text)) == read(good, ["training.updates=500", "model.width=64"])


def test_recipe_override_of_the_optimizer_has_its_defaults_in_a_saved_recipe(good, tmp_path):
    saved = tmp_path / "saved.yaml"
    write(read(good), saved)
    for words in (["training.optimizer=muon"], ["training.optimizer=muon", "training.momentum=0"]):
        assert read(saved, words).training == read(good, words).training
    assert read(saved, ["training.optimizer=muon"]).training.momentum == 0.95
    # a momentum that the file sets for an override stays
    written = _with(tmp_path, GOOD.replace("updates: 10", "updates: 10\n  momentum: 0.5"))
    assert read(written, ["training.optimizer=muon"]).training.momentum == 0.5
    # and keys that only the file's optimizer has are left out
    write(read(good, ["training.optimizer=muon"]), saved)
    assert read(saved, ["training.optimizer=adam"]) == read(good)
    assert read(saved, ["training.optimizer=sgd"]).training.momentum == 0.95
    with pytest.raises(UserError, match="nesterov has no effect with rmsprop"):
        read(saved, ["training.optimizer=rmsprop", "training.nesterov=true"])


def test_recipe_another_model_keeps_the_keys_that_it_has_and_only_those(good, tmp_path):
    text = GOOD.replace("kind: transformer", "kind: transformer\n  width: 64\n  heads: 2\n  norm: post")
    path = _with(tmp_path, text)
    model = read(path, ["model.kind=lstm", "model.residual=true"]).model
    assert (model.kind, model.width, model.residual) == ("lstm", 64, True)
    assert not hasattr(model, "heads")
    # what no model in question has is a mistake as ever, and so is what the command line itself says
    assert (
        "model.heads: unknown key; it is a key of transformer" in _mistakes(path, "model.kind=lstm", "model.heads=2")[0]
    )
    assert "model.widht: unknown key" in _mistakes(_with(tmp_path, text + "  widht: 3\n"), "model.kind=lstm")[0]
    assert len(_mistakes(_with(tmp_path, text.replace("transformer", "lstm")))) == 2


TASKED = """name: texts
task: classification
data:
  corpus: someone/texts
model:
  kind: transformer
"""


def test_recipe_another_model_drops_values_that_only_the_old_model_accepts(good, tmp_path):
    text = GOOD.replace("kind: transformer", "kind: transformer\n  encoder_positions: relative\n  width: 64")
    path = _with(tmp_path, text)
    model = read(path, ["model.kind=conv"]).model
    assert (model.encoder_positions, model.width) == (read(good, ["model.kind=conv"]).model.encoder_positions, 64)
    said = "model.encoder_positions: is 'relative', expected one of"
    assert said in _mistakes(path, "model.kind=conv", "model.encoder_positions=relative")[0]
    # a value that neither accepts is a mistake of the file
    wrong = _with(tmp_path, text.replace("relative", "relativ"))
    assert ":10: model.encoder_positions: is 'relativ'" in _mistakes(wrong, "model.kind=conv")[0]


@pytest.mark.parametrize("kind", sorted(set(models()) - {"rnn-tagger"}))
def test_recipe_shipped_translation_accepts_every_model_that_translates(kind):
    assert read(shipped()["translate"], [f"model.kind={kind}"]).model.kind == kind


def test_recipe_task_picks_the_keys_that_there_are(tmp_path, good):
    path = _with(tmp_path, TASKED)
    recipe = read(path, ["head.pooling=first", "model.width=64"])
    assert (recipe.task, recipe.head.pooling, recipe.model.width) == ("classification", "first", 64)
    assert not hasattr(recipe.model, "decoder_layers")
    write(recipe, tmp_path / "resolved.yaml")
    assert read(tmp_path / "resolved.yaml") == recipe
    assert "task: classification" in dump(recipe)
    told = {
        "decoding.beam=2": "decoding: unknown key; it is a key of task translation or",
        "tokenizer.shared=true": "tokenizer.shared: unknown key; it is a key of task translation, and",
        "model.decoder_layers=2": "model.decoder_layers: unknown key; did you mean encoder_layers?",
        "head.poling=max": "head.poling: unknown key; did you mean pooling?",
        "data.classes=[a, b, a]": "data.classes: contains a twice",
        "data.classes=[a]": 'data.classes: is ["a"], expected a list (2 or more) of text or null',
        "batches.max_length=9000": "batches.tokens (8192) must hold a text of batches.max_length (9000)",
        "task=clasification": "task: is 'clasification'; did you mean classification?",
        "task=": "task: is null; expected one of translation, classification",
        "model.kind=nothing": "model.kind: 'nothing' is not an installed model",
    }
    for override, words in told.items():
        assert words in "\n".join(_mistakes(path, override))
    assert "head: unknown key; it is a key of task classification" in _mistakes(good, "head.pooling=max")[0]


def test_resolved_recipe_reads_back_as_itself(good, tmp_path):
    recipe = read(
        good, ["training.clip=null", "data.validation=7", "training.betas=[0.5, 0.25]", "training.epsilon=1e-30"]
    )
    write(recipe, tmp_path / "resolved.yaml")
    assert read(tmp_path / "resolved.yaml") == recipe
    assert dump(read(tmp_path / "resolved.yaml")) == dump(recipe)


def test_recipe_names_in_a_list_read_back_as_themselves(tmp_path):
    recipe = read(shipped()["ag_news"], ["data.classes=[a, b]"])
    classes = ("\x85x", "\u2028", " a ", "yes", "1", "/a  folder" * 30, "tab\t" * 60)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"classes": classes})})
    write(recipe, tmp_path / "lists.yaml")
    assert read(tmp_path / "lists.yaml").data.classes == classes


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(text=_TEXT, rate=st.floats(1e-12, 1e6), seed=st.integers(0, 2**32 - 1), decay=st.floats(0, 0.999))
@example(text="\x85", rate=1.0, seed=0, decay=0.0)
@example(text="\u2028", rate=1.0, seed=0, decay=0.0)
@example(text="\x85 \u2028\r\n\ufeff a " + "long " * 50, rate=1.0, seed=0, decay=0.0)
@example(text="/a  folder" * 30, rate=1.0, seed=0, decay=0.0)
@example(text="tab\t" * 60, rate=1.0, seed=0, decay=0.0)
@example(text="\x85 tab\t" * 60, rate=1.0, seed=0, decay=0.0)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_recipe_that_can_be_held_can_be_written_and_read(good, text, rate, seed, decay):
    recipe = read(good)
    training = recipe.training.model_copy(update={"learning_rate": rate, "betas": (decay, 0.5)})
    seeds = recipe.seeds.model_copy(update={"data": seed})
    recipe = recipe.model_copy(update={"description": text, "training": training, "seeds": seeds})
    write(recipe, good.with_name("any.yaml"))
    assert read(good.with_name("any.yaml")) == recipe


def test_read_reports_all_mistakes_in_page_order(tmp_path):
    text = (
        "name: bad\ntrainig: {}\ndata:\n  corpus: built-in\n  tain: 5\n  seed: 1\n  seed: 2\n"
        "training:\n  clip: yes\nmodel:\n  kind: transformer\n  heads: 0\nname: worse\n"
    )
    mistakes = _mistakes(_with(tmp_path, text), "decoding.bem=3", "nonsense", "device.threads=[")
    heads = [re.split(": (?:is|unknown|duplicate) ", line.removeprefix(f"{tmp_path}/"))[0] for line in mistakes]
    assert heads == [
        "bad.yaml:2: trainig",
        "bad.yaml:5: data.tain",
        "bad.yaml:7: data.seed",
        "bad.yaml:9: training.clip",
        "bad.yaml:12: model.heads",
        "bad.yaml:13: name",
        "command line: decoding.bem=3: decoding.bem",
        "command line: 'nonsense' is not an override; write section.key=value, e.g. training.updates=500",
        """command line: device.threads=[: '[' is not a YAML value; quote it: device.threads='"…"'""",
    ]


def test_recipe_unknown_model_hides_no_other_mistake(tmp_path):
    text = "name: bad\nmodel:\n  kind: transfomer\n  widht: 3\ntraining:\n  updates: 0\n"
    kind, width, updates = _mistakes(_with(tmp_path, text))
    assert kind.endswith("bad.yaml:3: model.kind: 'transfomer' is not an installed model; did you mean transformer?")
    assert width.endswith("bad.yaml:4: model.widht: unknown key; did you mean width?")
    _, width, _ = _mistakes(_with(tmp_path, text.replace("transfomer", "perceptron")))
    assert width.endswith("bad.yaml:4: model.widht: unknown key; did you mean width?")
    assert updates.startswith(f"{tmp_path}/bad.yaml:6: training.updates: is 0, expected a whole number above 0")


# overrides of the good recipe; then what the message names: the key, the value as it was written, and the remedy
MISTAKES = {
    "unknown key": (["training.updats=5"], "training.updats: unknown key; did you mean updates?"),
    "key without its section": (["updates=5"], "updates: unknown key; did you mean training.updates?"),
    "misspelt key without its section": (["updats=5"], "updats: unknown key; did you mean training.updates?"),
    "word that resembles a key of a section": (["extra=5"], "extra: unknown key; expected one of name"),
    "unlike any key": (["seeds.xyzzy=5"], "seeds.xyzzy: unknown key; expected one of initialization, data, dropout"),
    "deep unknown key": (["data.filters.max_word=4"], "data.filters.max_word: unknown key; did you mean max_words?"),
    "unknown model": (["model.kind=transfomer"], "'transfomer' is not an installed model; did you mean transformer?"),
    "1.0 for 1": (["training.updates=1.0"], "training.updates: is 1.0, expected a whole number above 0"),
    "quoted number": (["training.updates='5'"], "training.updates: is '5', expected a whole number above 0"),
    "true for 1": (["training.updates=true"], "training.updates: is true, expected a whole number above 0"),
    "no for false": (["device.compile=no"], "device.compile: is 'no', expected true or false"),
    "choice": (
        ["training.schedule=cosin"],
        "'cosin', expected one of inverse-sqrt, cosine, linear, constant; did you mean cosine?",
    ),
    "infinite": (
        ["training.clip=.inf"],
        "training.clip: is .inf, expected a finite number above 0 and at most 1e+38 or null",
    ),
    "null": (["training.updates="], "training.updates: is null, expected a whole number above 0"),
    "section for value": (
        ["training.updates.x=1"],
        "training.updates is a value, not a section; write training.updates=VALUE",
    ),
    "list item": (
        ["training.betas=[0.9, 2]"],
        "training.betas: is [0.9, 2], expected [a number at least 0 and below 1, a",
    ),
    "any of several": (
        ["data.test=0"],
        "data.test: is 0, expected a whole number above 0 and at most 10,000,000 or text or [text, text] or null",
    ),
    "name": (["name='a b'"], "name: is 'a b', expected letters, digits, ., _ and -, the first a letter or digit"),
    "set twice": (
        ["training.updates=-1", "training.updates=0"],
        "command line: training.updates=0: training.updates: is 0",
    ),
    "a share": (["training.warmup=1.5"], "1,000,000,000 or a number above 0 and below 1"),
    "together": (
        ["training.warmup=10", "training.schedule=linear"],
        "warmup (10) must be below updates (10) with schedule linear; set training.warmup=0.1 (a share",
    ),
    "no value": (["training.updates"], "'training.updates' is not an override; write section.key=value"),
    "not yaml": (["training.updates=[1"], "training.updates=[1: '[1' is not a YAML value; quote it"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_recipe_every_mistake_is_one_line_that_names_key_value_and_remedy(good, case):
    overrides, expected = MISTAKES[case]
    message = "\n".join(_mistakes(good, *overrides))
    assert expected in message
    assert message.startswith("command line: ")
    assert "\n" not in message


FILES = {
    "duplicate": (GOOD + "name: again\n", ":10: name: duplicate key, first in line 1; remove one of them"),
    "deep duplicate": (GOOD + "  kind: rnn\n", ":10: model.kind: duplicate key, first in line 9; remove one"),
    "two pages": ("name: x\n---\nname: y\n", ":2: not YAML: but found another document\n  → write one recipe per file"),
    "control character": (
        "name: x\nrun:\n  dir: a\x07b\n",
        ":3: not YAML: character U+0007 is not allowed\n  → remove it",
    ),
    "list": ("- name\n", ": is a list, expected a mapping of sections\n  → start from `s2s recipe copy translate`"),
    "empty section": (GOOD + "device:\n", ":10: device: is null, expected a section: key: value lines, indented"),
    "no kind": ("name: x\nmodel:\n  width: 8\n", ":2: model.kind: is missing"),
    "windows": (
        "name: x\r\nmodel:\r\n  kind: transformer\r\n  width: no\r\n",
        ":4: model.width: is 'no', expected a whole",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_file_that_is_no_recipe_gives_one_clear_message(tmp_path, case):
    text, expected = FILES[case]
    (tmp_path / "bad.yaml").write_bytes(text.encode())
    message = "\n".join(_mistakes(tmp_path / "bad.yaml"))
    assert message.startswith(f"{tmp_path}/bad.yaml{expected}")


def test_recipe_file_that_cannot_be_read_is_named_with_the_reason(tmp_path):
    assert "is a folder" in _mistakes(tmp_path)[0]
    assert "cannot be read: No such file" in _mistakes(tmp_path / "nowhere.yaml")[0]
    (tmp_path / "latin.yaml").write_bytes("name: x\ndescription: Übung\n".encode("latin-1"))
    assert _mistakes(tmp_path / "latin.yaml") == [
        f"{tmp_path}/latin.yaml:2: byte 0xdc is not UTF-8",
        "  → save the file as UTF-8",
    ]


def test_recipe_byte_order_mark_is_no_mistake(tmp_path, good):
    (tmp_path / "bom.yaml").write_text(GOOD, encoding="utf-8-sig")
    assert read(tmp_path / "bom.yaml") == read(good)


def test_recipe_is_named_by_its_file_a_run_folder_or_the_name_it_ships_under(good, monkeypatch):
    assert recipe_path(good) == good
    good.rename(good.with_name("recipe.yaml"))
    assert recipe_path(good.parent) == good.with_name("recipe.yaml")
    monkeypatch.chdir(good.parent)
    assert recipe_path(Path("translate")) == shipped()["translate"]


def test_name_that_is_no_recipe_is_answered_with_the_nearest_one(tmp_path, good):
    with pytest.raises(UserError, match=r"goood.yaml: no such recipe\n.*did you mean .*/good.yaml\?.*s2s recipe list"):
        recipe_path(good.with_name("goood.yaml"))
    with pytest.raises(UserError, match=r"tranlate: no such recipe\n.*did you mean translate\?"):
        recipe_path(Path("tranlate"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty: is a folder without a recipe\.yaml"):
        recipe_path(tmp_path / "empty")


FROM_FILES = GOOD.replace("built-in", "files\n  train: [a.en, a.de]\n  validation: v.tsv\n  test: null")


@pytest.mark.parametrize("path", ["recipes/translate.yaml", "translate.yml", "far/translate"])
def test_recipe_path_of_the_repository_is_answered_with_the_name_that_works_anywhere(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"comes with s2s: write translate, as in `s2s train translate`"):
        recipe_path(Path(path))
    assert recipe_path(Path("translate")).is_file()


def test_recipe_warm_up_may_be_a_share_and_stays_what_it_made(tmp_path, good):
    recipe = read(good, ["training.updates=50", "training.warmup=0.1", "training.schedule=cosine"])
    assert recipe.training.warmup == 5
    write(recipe, tmp_path / "resolved.yaml")
    assert "warmup: 5\n" in (tmp_path / "resolved.yaml").read_text()
    # a run that is made longer does not warm up again
    assert read(tmp_path / "resolved.yaml", ["training.updates=500"]).training.warmup == 5


def test_paths_are_relative_to_recipe_working_directory_or_data_root(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    path = _with(tmp_path, FROM_FILES)
    monkeypatch.chdir(tmp_path / "here")
    data = read(Path("../bad.yaml")).data
    assert [Path(file).resolve() for file in data.train] == [tmp_path / "a.en", tmp_path / "a.de"]
    assert read(path).data.validation == str(tmp_path / "v.tsv")
    assert read(path).data.test is None
    assert read(path, ["data.validation=w.tsv"]).data.validation == str(tmp_path / "here" / "w.tsv")
    assert read(path, ["data={corpus: files, train: w.tsv}"]).data.train == str(tmp_path / "here" / "w.tsv")
    rooted = read(path, ["data.root=sub", "data.test=w.tsv"]).data
    assert (rooted.train[0], rooted.test) == (str(tmp_path / "here/sub/a.en"), str(tmp_path / "here/sub/w.tsv"))


def test_recipe_only_paths_are_made_absolute(tmp_path, good, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    hub = read(good, ["data.corpus=someone/something", "data.root=~/texts", "run.dir=there"])
    assert (hub.data.train, hub.data.root, hub.run.dir) == ("train", "/home/me/texts", "there")
    far = read(good, ["run.dir=~/runs/a", "init_from=~/runs/b"])
    assert (far.run.dir, far.init_from) == ("/home/me/runs/a", "/home/me/runs/b")
    assert read(good, ["init_from=hf:~/b"]).init_from == "hf:~/b"
    assert read(good, ["data.corpus=x/y", "data.root=~nobody-of-that-name/x"]).data.root.endswith(
        "/~nobody-of-that-name/x"
    )


@pytest.mark.parametrize("corpus", ["built-in", "homonyms"])
def test_recipe_corpus_that_is_made_lies_in_no_folder(good, corpus):
    with pytest.raises(
        UserError, match=rf"data: root is '.*there', but the corpus {corpus} is generated.*corpus: files"
    ):
        read(good, [f"data.corpus={corpus}", "data.root=there"])


def test_resolved_recipe_means_the_same_from_anywhere(tmp_path, monkeypatch):
    recipe = read(_with(tmp_path, FROM_FILES), ["data.test=w.tsv"])
    (tmp_path / "far" / "away").mkdir(parents=True)
    write(recipe, tmp_path / "far" / "away" / "recipe.yaml")
    monkeypatch.chdir(tmp_path / "far")
    assert read(Path("away/recipe.yaml")) == recipe


def test_paths_of_tokenizers_and_vectors_start_from_the_folder_of_the_recipe(good, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    files = "tokenizer: {model: sp.model}\nvectors: {source: v.vec}\n"
    (tmp_path / "sub" / "x.yaml").write_text(good.read_text().rstrip() + "\n" + files)
    monkeypatch.chdir(tmp_path)
    recipe = read(Path("sub/x.yaml"))
    assert recipe.tokenizer.model == str(tmp_path / "sub/sp.model")
    assert recipe.vectors.source == str(tmp_path / "sub/v.vec")
    # those of the command line start from the current folder
    recipe = read(Path("sub/x.yaml"), ["tokenizer.model=other.model", "vectors.source=~/o.vec"])
    assert recipe.tokenizer.model == str(tmp_path / "other.model")
    assert recipe.vectors.source == str(Path.home() / "o.vec")
    sides = read(Path("sub/x.yaml"), ["tokenizer.model=null", "tokenizer.source.model=a.model"]).tokenizer
    assert (sides.model, sides.source.model) == (None, str(tmp_path / "a.model"))


@pytest.mark.parametrize("key", REMOVED)
def test_recipe_removed_keys_are_refused_with_what_to_do_instead(good, key):
    name = ".".join(key)
    assert _mistakes(good, f"{name}=x") == [f"command line: {name}=x: {name}: {REMOVED[key]}"]


def test_recipe_missing_files_of_tokenizer_and_vectors_are_named(good):
    recipe = read(good, ["tokenizer.model=gone.model", "vectors.target=gone.vec"])
    assert [line.partition(": ")[0] for line in missing_files(recipe)] == ["tokenizer.model", "vectors.target"]
