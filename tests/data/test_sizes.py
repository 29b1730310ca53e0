"""Oversized or damaged files are refused before they fill the memory."""

import gzip
import lzma

import pyarrow
import pytest
from pyarrow import parquet

from s2s.data import text_files
from s2s.data.text_files import Columns, lines, raw_rows, table_cells
from s2s.errors import UserError


def test_size_limits_xz_streams_are_read_to_the_end_and_what_follows_them_is_checked(tmp_path):
    path, one, two = tmp_path / "a.xz", lzma.compress(b"x\ny\n"), lzma.compress(b"z\n")
    for padded in (one + two, one + bytes(4) + two + bytes(8)):
        path.write_bytes(padded)
        assert list(lines(path)) == ["x", "y", "z"]
    for damaged in (
        one + b"X" + two[1:],
        one + two[:-4],
        one + b"rubbish",
        lzma.compress(b"x\n", lzma.FORMAT_ALONE) + b"x",
    ):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"a.xz: is damaged"):
            list(lines(path))


def test_lines_rows_and_cells_longer_than_the_limit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 100)
    (tmp_path / "a.txt").write_text("x" * 100 + "\n" + "x" * 101 + "\n")
    found = lines(tmp_path / "a.txt")
    assert next(found) == "x" * 100
    with pytest.raises(UserError, match=r"a.txt:2: the line has more than"):
        next(found)
    (tmp_path / "a.csv").write_text('en,de\na,b\n"' + "x\n" * 60 + '",y\n')
    with pytest.raises(UserError, match=r"a.csv:3: the row that begins here has more than"):
        list(raw_rows(tmp_path / "a.csv"))
    for cells, where in (
        (["x" * 1000], "a.parquet: a cell of column 'en'"),
        (["x"] * 99 + ["x" * 101], "row 100: the"),
    ):
        table = pyarrow.table({"en": cells, "de": cells})
        parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
        with pytest.raises(UserError, match=where):
            list(table_cells(tmp_path / "a.parquet", Columns(("en", "de"), "data.source")))


def test_size_limits_file_that_is_read_whole_is_limited(tmp_path, monkeypatch):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"{}\n" + bytes([0xC3, 0xA4])))
    assert text_files.text(tmp_path / "a.json.gz") == "{}\nä"
    (tmp_path / "b.json").write_bytes(b"{}\n\xff")
    with pytest.raises(UserError, match=r"b.json:2: byte 0xff at position 0"):
        text_files.text(tmp_path / "b.json")
    monkeypatch.setattr(text_files, "LARGEST_WHOLE", 4)
    with pytest.raises(UserError, match=r"a.json.gz: has more than .* when it is decompressed"):
        text_files.text(tmp_path / "a.json.gz")
