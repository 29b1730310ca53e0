"""Reading of JSON files: typed values or one message."""

from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from s2s.errors import UserError
from s2s.json_files import parse_json, read_json


class Model(BaseModel):
    number: int


@dataclass(frozen=True)
class Data:
    number: int


@pytest.mark.parametrize("kind", [Model, Data])
def test_json_is_read_as_a_value_of_a_type(tmp_path, kind):
    (tmp_path / "a.json").write_text('{"number": 3}')
    assert read_json(tmp_path / "a.json", kind) == kind(number=3)
    assert read_json(tmp_path / "a.json", dict[str, int]) == {"number": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "a.json:1: not JSON: EOF"),
        (b'{\n"number": }', "a.json:2: not JSON: expected value"),
        (b"[" * 100_000, "a.json:1: not JSON: nested too deeply"),
        (b"\xff\xfe", "a.json:1: not JSON"),
        (b'{"number": "3"}', "a.json: number: input should be a valid integer, not '3'"),
        (b'{"number": true}', "a.json: number: input should be a valid integer, not True"),
        (b'{"number": Infinity}', "a.json: number: input should be a valid integer, not inf"),
        (b'{"number": 1' + b"0" * 5_000 + b"}", "a.json:1: not JSON: number out of range"),
        (b"{}", "a.json: number: field required"),
        (b"[]", "a.json: input should be an object"),
    ],
)
def test_json_reader_names_invalid_json_and_wrong_types(tmp_path, text, message):
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(UserError) as refused:
        read_json(tmp_path / "a.json", Model, "mend it")
    assert message in str(refused.value)
    assert str(refused.value).endswith("→ mend it")


def test_missing_file_and_one_beyond_the_limit_are_named(tmp_path):
    with pytest.raises(UserError, match=r"a\.json: there is no such file"):
        read_json(tmp_path / "a.json", Model)
    (tmp_path / "a.json").write_text('{"number": 3}')
    with pytest.raises(UserError, match="more than 5 bytes"):
        read_json(tmp_path / "a.json", Model, max_bytes=5)


def test_json_files_numbers_are_read_bit_by_bit():
    assert parse_json("[0.1, 1e-308, 2.2250738585072011e-308]", list[float], "", "") == [
        0.1,
        1e-308,
        2.2250738585072011e-308,
    ]
