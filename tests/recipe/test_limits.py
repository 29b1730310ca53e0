"""Every number of a recipe has an upper bound, and messages have a bounded length."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml.error import YAMLError

from s2s.errors import UserError, check_regular, format_message
from s2s.recipe.installed import models, module_of
from s2s.recipe.page import read_page, read_value
from s2s.recipe.wording import near_files
from s2s.run.tasks import schemas


def _parts(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield place, schema
        for key, part in schema.items():
            yield from _parts(part, f"{place}.{key}")
    elif isinstance(schema, list):
        for part in schema:
            yield from _parts(part, place)


ROOTS = (*(schema.recipe for schema in schemas().values()), *(module_of(kind).Settings for kind in models()))


def test_recipe_limit_every_number_has_an_upper_bound_and_a_lower_one():
    numbers = [
        (place, part)
        for root in ROOTS
        for place, part in _parts(root.model_json_schema(), root.__name__)
        if part["type"] in ("integer", "number") and "enum" not in part and "const" not in part
    ]
    assert len(numbers) > 100
    assert [place for place, part in numbers if not {"maximum", "exclusiveMaximum"} & part.keys()] == []
    assert [place for place, part in numbers if not {"minimum", "exclusiveMinimum"} & part.keys()] == []


def test_yaml_text_like_a_date_or_number_stays_text():
    for text in ("2026-13-01", "2026-02-30", "2026-11-22T25:00:00", "=._", "2026-11-22", "0x" + "f" * 1000):
        assert read_value(text) == text
    assert [read_value(text) for text in ("1e-3", "-5", "0x10", "yes", "null")] == [0.001, -5, 16, "yes", None]
    assert read_value('!!int ""') == ""


def test_recipe_limit_aliases_nesting_and_quotes_mean_what_they_do_while_there_are_few(tmp_path):
    page = tmp_path / "a.yaml"
    page.write_text('a: &a [1, 2]\nb: [*a, *a]\nc: "\\u00e9\\U0001f600"\nd: ' + "[" * 40 + "]" * 40)
    values = read_page(page).values
    assert values["b"] == [[1, 2], [1, 2]]
    assert values["c"] == "é😀"
    for text in ("[" * 60 + "]" * 60, '"\\0"', '{"\\ud800": 1}'):
        with pytest.raises(YAMLError):
            read_value(text)


def test_recipe_limit_only_near_names_are_suggested_whatever_they_end_in():
    assert near_files("nothere.yaml", ["err.yaml", "data.yaml"]) == []
    assert near_files("tranlate", ["translate", "multi30k"]) == ["translate"]
    assert near_files("trian.en", ["train.en", "train.de", "val.en"], most=2) == ["train.en", "train.de"]


def test_recipe_limit_message_is_bounded_and_can_be_seen():
    assert format_message("a: b\n  → c") == "a: b\n  → c"
    assert format_message("\x1b[31mred\x00") == "\\x1b[31mred\\x00"
    long = format_message("is " + "x" * 100_000 + ", expected y")
    assert len(long) < 1_100
    assert long.startswith("is xxx")
    assert long.endswith("x, expected y")
    many = format_message("\n".join(map(str, range(500)))).split("\n")
    assert many[:2] == ["0", "1"]
    assert len(many) == 30
    assert many[-1] == "… and 471 more lines"


def test_path_that_is_no_file_is_refused_and_a_missing_one_is_not(tmp_path):
    check_regular(tmp_path / "missing")
    check_regular(Path(__file__))
    for path, what in ((tmp_path, "is a folder"), (Path("/dev/null"), "not a regular file")):
        with pytest.raises(UserError, match=what):
            check_regular(path)
    with pytest.raises(UserError, match="contains a NUL character"):
        check_regular(Path("a.png\0b.png"))
