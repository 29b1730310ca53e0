"""The commands `s2s recipe` and `s2s new`."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import s2s
from s2s.cli.main import _COMMANDS, commands, main
from s2s.errors import UserError
from s2s.recipe.reading import shipped
from s2s.recipe.reference import reference
from s2s.run.tasks import read, schemas

GOOD = "name: good\nmodel: {kind: transformer}\n"
BAD = "name: bad\ntrainig: {}\nmodel:\n  kind: transformer\n  heads: 0\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    return tmp_path


def _s2s(*words: str) -> str:
    return CliRunner().invoke(commands, words, catch_exceptions=False, standalone_mode=False).output


def _main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["s2s", *words])
    try:
        main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    return status, *capsys.readouterr()


def _shell(*words: str, code: str = "") -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "s2s.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_recipe_typo_is_answered_without_loading_anything_heavy():
    code = (
        "import sys; from s2s.cli.main import main; sys.argv = ['s2s', 'recipe', 'validate', 'bad.yaml']\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code)\n"
        "print([m for m in 'torch numpy datasets pyarrow sacrebleu sentencepiece rich'.split() if m in sys.modules])"
    )
    done = _shell(code=code)
    assert done.stdout == "2\n[]\n"
    assert done.stderr.split("\n")[:2] == [
        "bad.yaml:2: trainig: unknown key; did you mean training?",
        "bad.yaml:5: model.heads: is 0, expected a whole number above 0 and at most 65,536",
    ]


def test_recipe_help_names_every_command_and_loads_none():
    code = (
        "import sys; from s2s.cli.main import main; sys.argv = ['s2s', '--help']; main()\n"
        "print('LOADED', sorted(m for m in sys.modules if m.startswith('s2s.')), 'pydantic' in sys.modules)"
    )
    done = _shell(code=code)
    assert (
        done.stdout.split("\n")[-2]
        == "LOADED ['s2s.arguments', 's2s.cli', 's2s.cli.main', 's2s.cli.options', 's2s.errors', 's2s.files', "
        "'s2s.launch'] False"
    )
    for name, words in _COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(words)}$", done.stdout, re.M)


def test_recipe_version_is_the_packages():
    assert _s2s("--version") == f"s2s, version {s2s.__version__}\n"


FINE = "fine; exportable: ctranslate2 onnx"


def test_good_recipes_are_fine_one_line_each():
    assert (
        _s2s("recipe", "validate", "good.yaml", "translate", "training.updates=500")
        == f"good.yaml: {FINE}\ntranslate: {FINE}\n"
    )


def test_validate_does_not_look_for_hub_runs_locally():
    assert _s2s("recipe", "validate", "good.yaml", "init_from=hf:somebody/bert") == f"good.yaml: {FINE}\n"
    with pytest.raises(UserError, match="there is no folder nowhere"):
        _s2s("recipe", "validate", "good.yaml", "init_from=nowhere/bert")


def test_recipe_may_have_an_equals_sign_in_its_name_and_an_override_be_of_any_length(folder):
    (folder / "good.yaml").rename("run.note=x.yaml")
    # longer than a file's name may be
    long = f"description={'x' * 300}"
    assert _s2s("recipe", "validate", "run.note=x.yaml", long) == f"run.note=x.yaml: {FINE}\n"


def test_validate_reports_all_mistakes_of_all_files_with_status_2(capsys, monkeypatch):
    status, output, errors = _main(
        capsys, monkeypatch, "recipe", "validate", "bad.yaml", "good.yaml", "none.yaml", "bad.yaml"
    )
    assert (status, output) == (2, f"good.yaml: {FINE}\n")
    assert errors.count("bad.yaml:2: trainig") == errors.count("bad.yaml:5: model.heads") == 2
    assert "none.yaml: no such recipe" in errors
    assert "Traceback" not in errors


def test_show_prints_the_recipe(folder):
    (folder / "shown.yaml").write_text(_s2s("recipe", "show", "good.yaml", "training.updates=500"))
    assert read(folder / "shown.yaml") == read(folder / "good.yaml", ["training.updates=500"])
    assert "label_smoothing: 0.1" in (folder / "shown.yaml").read_text()


def test_recipe_run_folder_can_be_shown(folder):
    (folder / "run").mkdir()
    (folder / "good.yaml").rename(folder / "run" / "recipe.yaml")
    assert _s2s("recipe", "show", "run").startswith("name: good\n")


def test_list_has_every_recipe_and_copies_are_whole_and_never_overwrite(folder):
    listed = _s2s("recipe", "list").rstrip("\n").split("\n")
    assert [line.split()[0] for line in listed] == ["name", *shipped()]
    for name, path in shipped().items():
        _s2s("recipe", "copy", name)
        assert (folder / f"{name}.yaml").read_bytes() == path.read_bytes()
    (folder / "translate.yaml").write_text("mine")
    with pytest.raises(UserError, match=r"translate.yaml: already exists(.|\n)*--overwrite"):
        _s2s("recipe", "copy", "translate")
    assert (folder / "translate.yaml").read_text() == "mine"
    _s2s("recipe", "copy", "translate", "--overwrite")
    assert (folder / "translate.yaml").read_bytes() == shipped()["translate"].read_bytes()
    assert _s2s("recipe", "copy", "translate", "other.yaml").startswith("other.yaml: ")
    with pytest.raises(UserError, match=r"its folder does not exist(.|\n)*mkdir -p far"):
        _s2s("recipe", "copy", "translate", "far/other.yaml")


def test_recipe_schema_and_the_reference_are_printed_whole():
    definitions = json.loads(_s2s("recipe", "schema", "--model", "transformer"))["$defs"]
    of_transformers = ["encoder_transformer", "language_transformer", "model_transformer"]
    assert sorted(name for name in definitions if "transformer" in name) == of_transformers
    required = [set(part["required"]) for name, part in definitions.items() if "Recipe" in name]
    assert {"name", "model"} in required
    assert {"name", "model", "task"} in required
    assert json.loads(_s2s("recipe", "schema"))["title"] == "s2s recipe"
    assert _s2s("recipe", "reference") == reference(schemas())


def test_recipe_models_are_listed_with_package_and_first_line():
    assert re.search(r"^transformer +s2s +Transformer \(Vaswani", _s2s("recipe", "models"), re.M)


def _pair(folder: Path, name: str, count: int) -> tuple[str, str]:
    for side in ("en", "de"):
        (folder / f"{name}.{side}").write_text("".join(f"{side} {i}\n" for i in range(count)))
    return f"{name}.en", f"{name}.de"


def test_new_recipe_is_written_once_and_names_the_next_commands(folder):
    source, target = _pair(folder, "a", 100)
    words = ["new", "translate", "--source", source, "--target", target, "--output", "my recipe.yaml"]
    assert _s2s(*words).split("\n")[-4:-1] == [
        "wrote 'my recipe.yaml'",
        "look:   s2s data check 'my recipe.yaml'",
        "train:  s2s train 'my recipe.yaml'",
    ]
    recipe = read(folder / "my recipe.yaml")
    assert (recipe.name, recipe.data.train) == ("my-recipe", (str(folder / source), str(folder / target)))
    with pytest.raises(UserError, match="already exists"):
        _s2s(*words)
    data = (folder / target).read_bytes()
    with pytest.raises(UserError, match=rf"--output {target}: is a file of the data, which are read"):
        _s2s(*words[:-1], target, "--overwrite")
    assert (folder / target).read_bytes() == data
    validation = _pair(folder, "v", 10)
    _s2s(*words, "--overwrite", "--validation-source", validation[0], "--validation-target", validation[1])
    assert read(folder / "my recipe.yaml").data.validation == (str(folder / "v.en"), str(folder / "v.de"))
    with pytest.raises(UserError, match=r"two validation sets"):
        _s2s(*words, "--overwrite", "--validation-source", *validation[:1], "--validation", "v.tsv")
    with pytest.raises(UserError, match=r"no data is named(.|\n)*--data TABLE"):
        _s2s("new", "translate", "--source", source)
    with pytest.raises(UserError, match=r"v.en is one side(.|\n)*--validation-target"):
        _s2s(*words, "--overwrite", "--validation-source", validation[0])


def test_new_writes_a_recipe_for_a_table_and_reports_its_choices(folder):
    rows = "".join(f"{('no', 'yes')[n % 2]}\tthe text of {n}\n" for n in range(60))
    (folder / "rows.tsv").write_text("label\ttext\n" + rows)
    told = _s2s("new", "classify", "--data", "rows.tsv", "--text", "text", "--label", "label", "--output", "c.yaml")
    assert "# Made by `s2s new classify` for 54 texts of 2 classes" in told
    assert re.findall(r"^(\S+\.kind): \w+ #", told, re.M) == ["tokenizer.kind", "model.kind"]
    assert f"data.train: {folder}/rows.tsv # its first line names the columns\n" in told
    assert read(folder / "c.yaml").task == "classification"
    (folder / "tasks.txt").write_text("".join(f"IN: jump {n} OUT: {n} JUMP\n" for n in range(60)))
    assert "s2s train t.yaml" in _s2s("new", "translate", "--data", "tasks.txt", "--output", "t.yaml")
    assert read(folder / "t.yaml").data.train == str(folder / "tasks.txt")
    with pytest.raises(UserError, match="already exists"):
        _s2s("new", "classify", "--data", "nothing is read before.tsv", "--output", "t.yaml")


def test_recipe_reader_that_leaves_early_gets_no_complaint():
    command = [sys.executable, "-m", "s2s.cli.main", "recipe", "reference"]
    # a pipe whose reading end is closed before the first byte is written
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.stderr == ""


def test_recipe_control_c_ends_with_status_130(folder):
    fifo = folder / "slow.yaml"
    os.mkfifo(fifo)
    # a recipe that never comes: reading it waits
    code = "from pathlib import Path; Path.is_file = lambda path: True\n"
    # such a file would be refused
    code += "import s2s.errors; s2s.errors.check_regular = lambda *words: None\nimport s2s.cli.main as m; m.main()"
    command = [sys.executable, "-c", code, "recipe", "validate", str(fifo)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process, fifo.open("w"):
        # opening returned, so the other side has opened, too
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors.split() == ["stopped"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("translate", "data.target=klingon"), "data.target is 'klingon', but the built-in corpus has en, de"),
        (("translate", "data.source=plural"), "data.target is 'de', which has other sentences than plural"),
        (("text_to_text", "data.corpora.plural.target=xx"), "data.corpora.plural.target is 'xx', but the built-in"),
        (("captioning", "data.image=xx"), "image is 'xx', but the built-in corpus has no columns"),
        (("captioning", "data.caption=xx"), "caption is 'xx', but the built-in corpus has no columns"),
        (("lm_builtin", "data.text=xx"), "text is 'xx', but the built-in corpus has no columns"),
    ],
)
def test_recipe_columns_that_the_built_in_corpus_lacks_are_refused(words, said, capsys, monkeypatch):
    status, _, err = _main(capsys, monkeypatch, "recipe", "validate", *words)
    assert (status, said in err) == (2, True), err
