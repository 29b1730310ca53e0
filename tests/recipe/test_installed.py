"""Models of installed packages are found and validated like built-in ones."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from s2s.errors import UserError
from s2s.recipe.installed import models, module_of
from s2s.recipe.reading import dump
from s2s.recipe.reference import json_schema, reference
from s2s.run.tasks import read, schemas

MODULE = '''"""A stranger's model."""
from typing import Literal
from s2s.recipe.schema import Probability, Section


class Inner(Section):
    """What is inside."""

    depth: int = 3
    """How deep."""


class Settings(Section):
    """A stranger's section."""

    kind: Literal["stranger"] = "stranger"
    """The stranger."""
    width: int
    """Has no default."""
    inner: Inner = Inner()
    """More keys."""


def build(settings, source_size, target_size):
    raise NotImplementedError
'''

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path, monkeypatch) -> Install:
    """Puts a package with one model where Python finds it."""

    def install(
        package: str, text: str, kind: str = "stranger", module: str | None = None, attribute: str = ""
    ) -> None:
        module = module or package.replace("-", "_")
        monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if p != str(tmp_path))])
        (tmp_path / f"{module}.py").write_text(text)
        information = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(
            f"[s2s.models]\n{kind} = {module}{':' if attribute else ''}{attribute}\n"
        )
        monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()
        models.cache_clear()

    yield install
    models.cache_clear()


def _recipe(folder: Path, model: str) -> Path:
    (folder / "a.yaml").write_text(f"name: a\nmodel: {model}\n")
    return folder / "a.yaml"


def test_plugin_transformer_is_installed_as_any_other_model_is():
    assert models()["transformer"].value == "s2s.models.transformer"
    assert module_of("transformer").Settings().kind == "transformer"


def test_plugin_strangers_model_brings_its_keys_its_checks_and_its_page(install, tmp_path):
    install("stranger-models", MODULE)
    assert list(models()) == sorted(models())
    recipe = read(_recipe(tmp_path, "{kind: stranger, width: 3}"), ["model.inner.depth=7"])
    assert (recipe.model.width, recipe.model.inner.depth) == (3, 7)
    assert "depth: 7" in dump(recipe)
    assert "## `model` of kind `stranger`" in reference(schemas())
    assert "| `depth` | a whole number | `3` | How deep. |" in reference(schemas())
    definitions = json.loads(json_schema(schemas()))["$defs"]
    assert definitions["model_stranger"]["required"] == ["kind", "width"]
    assert definitions["model_stranger"]["properties"]["inner"]["$ref"] == "#/$defs/stranger.Inner"
    assert "depth" in definitions["stranger.Inner"]["properties"]


def test_plugin_entry_point_may_name_an_object_that_has_the_names_of_a_module(install, tmp_path):
    text = MODULE + "\n\nclass Model:\n    Settings = Settings\n    build = staticmethod(build)\n\n\nmodel = Model()\n"
    install("stranger-models", text, attribute="model")
    assert read(_recipe(tmp_path, "{kind: stranger, width: 3}")).model.width == 3
    assert module_of("stranger").__class__.__name__ == "Model"


def test_plugin_settings_are_validated_like_built_in_ones(install, tmp_path):
    install("stranger-models", MODULE)
    with pytest.raises(UserError) as caught:
        read(_recipe(tmp_path, "{kind: stranger}"), ["model.inner.dept=7"])
    assert str(caught.value).split("\n") == [
        f"{tmp_path}/a.yaml:2: model.width: is missing, expected a whole number",
        "command line: model.inner.dept=7: model.inner.dept: unknown key; did you mean depth?",
    ]


def test_plugin_two_packages_with_one_name_are_both_named(install, tmp_path):
    install("first-models", MODULE)
    install("second-models", MODULE)
    with pytest.raises(
        UserError, match=r" the name 'stranger': .*(first|second)-models.*(first|second)-models(.|\n)*uninstall"
    ):
        read(_recipe(tmp_path, "{kind: stranger}"))


def test_plugin_one_package_listed_twice_is_no_mistake(install):
    install("stranger-models", MODULE)
    install("stranger-models-again", MODULE, module="stranger_models")
    assert "stranger" in models()


BROKEN = {
    "import": (
        "import nowhere_at_all",
        r"'broken' cannot be loaded: broken_models: ModuleNotFoundError: No module named 'nowhere_at_all'",
    ),
    "syntax": ("def", r"'broken' cannot be loaded: broken_models: SyntaxError"),
    "empty": ("", r"'broken' is incomplete: broken_models has no Settings and no build"),
    "no build": (MODULE.replace("def build", "def built"), r"'broken' is incomplete: broken_models has no build"),
    "no section": (
        MODULE.replace("class Settings(Section)", "class Settings"),
        r"Settings of broken_models is not a recipe section",
    ),
    "no kind": (
        MODULE.replace("    kind:", "    sort:"),
        r"Settings of broken_models is not a recipe section with a kind; class Settings",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_plugin_broken_model_is_named_with_its_module_and_hides_no_other_mistake(install, tmp_path, case):
    text, expected = BROKEN[case]
    install("broken-models", text, kind="broken")
    with pytest.raises(UserError) as caught:
        read(_recipe(tmp_path, "{kind: broken}"), ["training.updates=0"])
    first, second = str(caught.value).split("\n")
    assert first.startswith(f"{tmp_path}/a.yaml:2: model.kind: 'broken'")
    assert expected in first
    assert "training.updates: is 0" in second


def test_plugin_empty_group_says_how_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("s2s.recipe.installed.entry_points", lambda group: ())
    models.cache_clear()
    with pytest.raises(UserError, match=r"model.kind: no models are installed; entry points .*pip install -e \."):
        read(_recipe(tmp_path, "{kind: transformer}"))
    models.cache_clear()


@pytest.mark.parametrize("other", ["baselines.py", "baselines/__init__.py"])
def test_plugin_another_package_of_the_same_name_is_named_with_its_place(other, tmp_path):
    file = tmp_path / other
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    # an editable installation finds the modules of ours also within the other
    found = [sys.executable, "-c", "import baselines.recurrent"]
    if subprocess.run(found, cwd=tmp_path, capture_output=True, check=False).returncode == 0:
        pytest.skip("the other is not in the way of this installation")
    code = "from s2s.__main__ import main; main()"
    for words in (["recipe", "validate", "multi30k_lstm"], ["recipe", "models"]):
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stdout + done.stderr
        assert f"another package named baselines hides it: {file.parent if '/' in other else file}" in done.stderr
        assert "change to a folder without a file or folder baselines" in done.stderr
