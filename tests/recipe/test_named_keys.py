"""Messages and remedies name existing keys."""

import ast
import functools
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

import s2s
from s2s.errors import UserError
from s2s.recipe.installed import models
from s2s.run.tasks import schemas
from s2s.tasks.text_to_text.data import own_keys

ROOM = Path(s2s.__file__).parent
FOLDERS = {path.name.replace("_", "-"): path for path in (ROOM / "tasks").iterdir() if path.is_dir()}


def _keys(section: object, before: str = "") -> set[str]:
    """The dotted keys of a section and of those within it; of one by a name, `*` stands for the name."""
    found = set()
    if isinstance(section, type) and issubclass(section, BaseModel):
        for name, field in section.model_fields.items():
            found |= {f"{before}{name}"} | _keys(field.annotation, f"{before}{name}.")
        return found
    for part in getattr(section, "__args__", ()):
        found |= _keys(part, f"{before}*." if getattr(section, "__origin__", None) is dict else before)
    return found


@functools.cache
def _all_keys(task: str) -> set[str]:
    schema, found = schemas()[task], set()
    for kind in models():
        try:
            found |= _keys(schema.recipe_class(schema.settings(kind)))
        except UserError:
            # not all models are for all tasks
            continue
    return found


def _named(path: Path, sections: set[str]) -> set[str]:
    """What the texts of a file, docstrings aside, name as a key in one of these sections."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    ]
    form = re.compile(rf"(?<![\w./-])((?:{'|'.join(sections)})\.[a-z_]+(?:\.[a-z_]+)*)(?![\w/.(]|\.\w)")
    return {key for text in texts for key in form.findall(text)}


@pytest.mark.parametrize("task", sorted(schemas()))
def test_task_names_keys_of_its_own_recipe(task):
    known = _all_keys(task)
    sections = {key.split(".")[0] for key in known}
    for path in sorted(FOLDERS[task].rglob("*.py")):
        assert not _named(path, sections) - known, path


def test_signs_and_what_tasks_share_name_keys_of_one_at_least():
    known = set().union(*map(_all_keys, schemas()))
    sections = {key.split(".")[0] for key in known}
    for path in (*(ROOM / "evaluation").rglob("*.py"), *(ROOM / "data").rglob("*.py"), *(ROOM / "tasks").glob("*.py")):
        assert not _named(path, sections) - known, path


def test_errors_of_a_mixture_name_the_keys_of_its_corpus():
    told = "data.filters.duplicates=drop keeps one; metadata.json of data.corpora.a"
    wanted = "data.corpora.a.filters.duplicates=drop keeps one; metadata.json of data.corpora.a"
    assert own_keys(told, "a") == wanted
    assert {"data.corpora.*.filters.duplicates", "data.corpora.*.train"} <= _all_keys("text-to-text")
