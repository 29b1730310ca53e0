from pathlib import Path

import pytest

from s2s.errors import UserError
from s2s.recipe.reading import dump, read, recipe_path, write

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


def test_what_is_not_written_has_its_default_and_1e_3_is_a_number(good):
    recipe = read(good)
    assert recipe.training.learning_rate == 0.001
    assert recipe.training.clip == 1.0
    assert recipe.model.heads == 4


def test_the_resolved_recipe_reads_back_as_itself(good, tmp_path):
    recipe = read(good, ["training.clip=null", "data.validation=7", "training.betas=[0.5, 0.25]"])
    write(recipe, tmp_path / "resolved.yaml")
    assert read(tmp_path / "resolved.yaml") == recipe
    assert dump(read(tmp_path / "resolved.yaml")) == dump(recipe)


def test_overrides_win_over_the_file(good):
    recipe = read(good, ["training.updates=99", "name=other", "model.norm=post", "data.filters.max_words=null"])
    assert (recipe.training.updates, recipe.name, recipe.model.norm, recipe.data.filters.max_words) == (
        99,
        "other",
        "post",
        None,
    )


def test_all_mistakes_are_told_at_once_each_with_its_line(tmp_path):
    text = "name: bad\ntrainig: {}\ndata:\n  corpus: built-in\n  tain: 5\ntraining:\n  clip: yes\nmodel:\n  kind: transformer\n  heads: 0\n"
    path = _with(tmp_path, text)
    mistakes = _mistakes(path, "decoding.bem=3", "nonsense")
    places = {"bad.yaml:2: trainig", "bad.yaml:5: data.tain", "bad.yaml:7: training.clip", "bad.yaml:10: model.heads"}
    for place in places:
        assert any(place in line for line in mistakes), place
    assert any("command line: decoding.bem=3" in line and "did you mean beam?" in line for line in mistakes)
    assert any("'nonsense'" in line for line in mistakes)
    assert len(mistakes) == 6


# what is appended to the good recipe, or overrides it; then the key, the value and the remedy that the message names
MISTAKES = {
    "unknown key": (["training.updats=5"], ["training.updats", "did you mean updates?"]),
    "unknown section": (["trainin.updates=5"], ["trainin", "did you mean training?"]),
    "unknown model key": (["model.head=4"], ["model.head", "did you mean heads?"]),
    "unknown model": (["model.kind=transfomer"], ["model.kind", "'transfomer'", "transformer"]),
    "negative": (["training.updates=-5"], ["training.updates", "-5", "above 0"]),
    "fraction": (["training.updates=1.5"], ["training.updates", "1.5", "whole number"]),
    "text for number": (["training.updates=many"], ["training.updates", "'many'", "whole number"]),
    "true for number": (["training.updates=true"], ["training.updates", "true", "whole number"]),
    "number for flag": (["device.compile=1"], ["device.compile", "1", "true or false"]),
    "no for flag": (["device.compile=no"], ["device.compile", "'no'", "true or false"]),
    "choice": (["training.schedule=cosin"], ["training.schedule", "'cosin'", "did you mean cosine?"]),
    "limit": (["training.label_smoothing=1"], ["training.label_smoothing", "1", "below 1"]),
    "infinite": (["training.clip=.inf"], ["training.clip", "number"]),
    "null": (["training.updates=null"], ["training.updates", "null", "whole number"]),
    "section for value": (["training.updates.more=1"], ["training.updates", "is a value, not a section"]),
    "value for section": (["data=5"], ["data", "5", "a section"]),
    "list too short": (["training.betas=[0.9]"], ["training.betas"]),
    "union": (["data.train=0"], ["data.train", "0", "above 0", "text"]),
    "name": (["name='a b'"], ["name", "'a b'", "letters"]),
    "together": (["model.heads=3"], ["model", "heads (3)", "divide width (256)"]),
    "warm-up": (["training.schedule=linear", "training.warmup=10"], ["warmup (10)", "updates (10)"]),
    "no value": (["training.updates"], ["'training.updates'", "section.key=value"]),
    "not yaml": (["training.updates=[1"], ["training.updates=[1", "quote it"]),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_every_message_names_key_value_and_remedy(good, case):
    overrides, expected = MISTAKES[case]
    message = "\n".join(_mistakes(good, *overrides))
    for words in expected:
        assert words in message


FILES = {
    "duplicate": (GOOD + "name: again\n", [":10", "name", "twice"]),
    "tab": ("name: x\n\tdata: 1\n", [":2", "not YAML"]),
    "syntax": ("name: [x\n", ["not YAML"]),
    "list": ("- name\n", ["mapping of sections", "recipe copy"]),
    "empty": ("", ["mapping of sections"]),
    "no model": ("name: x\n", ["model", "is missing"]),
    "no kind": ("name: x\nmodel: {width: 8}\n", ["model.kind", "is missing"]),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_recipe_gives_one_clear_message(tmp_path, case):
    text, expected = FILES[case]
    message = "\n".join(_mistakes(_with(tmp_path, text)))
    for words in expected:
        assert words in message


def test_a_file_that_is_missing_or_binary_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere.yaml: no such recipe(.|\n)*s2s recipe list"):
        recipe_path(tmp_path / "nowhere.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"name: \xff\n")
    assert "not UTF-8" in _mistakes(tmp_path / "binary.yaml")[0]


def test_a_run_folder_names_its_recipe(good):
    good.rename(good.with_name("recipe.yaml"))
    assert recipe_path(good.parent) == good.with_name("recipe.yaml")


def test_paths_in_a_file_start_at_its_folder_and_those_on_the_command_line_where_one_stands(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    text = GOOD.replace("built-in", "files") + ""
    path = _with(
        tmp_path,
        text.replace(
            "  corpus: files\n", "  corpus: files\n  train: [a.en, a.de]\n  validation: v.tsv\n  test: null\n"
        ),
    )
    monkeypatch.chdir(tmp_path / "here")
    data = read(path).data
    assert data.train == (str(tmp_path / "a.en"), str(tmp_path / "a.de"))
    assert data.validation == str(tmp_path / "v.tsv")
    assert read(path, ["data.validation=w.tsv"]).data.validation == str(tmp_path / "here" / "w.tsv")
    assert read(path, ["data.root=sub"]).data.train[0] == str(tmp_path / "here" / "sub" / "a.en")
