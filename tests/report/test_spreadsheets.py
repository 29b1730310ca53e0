"""Cells of CSV files are read as text and as numbers, never as formulas."""

import csv
import io

import pytest

from s2s.comparison.report.numbers import table_csv
from s2s.comparison.results import Table
from s2s.files import spreadsheet_cell


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\t=1", "\r=1", "-", "=HYPERLINK(1)"])
def test_a_text_that_begins_like_a_formula_gets_an_apostrophe(text):
    assert spreadsheet_cell(text) == f"'{text}"


@pytest.mark.parametrize("cell", ["-5", "+1.5e-3", "-inf", "a=b", "", "–", "'=1", -5, -1.5, 0, None])
def test_numbers_and_other_texts_stay_what_they_are(cell):
    assert spreadsheet_cell(cell) == cell
    assert type(spreadsheet_cell(cell)) is type(cell)


def test_a_table_with_formulas_in_heads_and_rows_holds_none():
    rows = [["=1", -1.5, 2], ["-x", None, -3], ["-7", 0.5, 1]]
    text = table_csv(Table(name="t", title="T", columns=["model", "@a", "-b"], rows=rows))
    assert list(csv.reader(io.StringIO(text))) == [
        ["model", "'@a", "'-b"],
        ["'=1", "-1.5", "2"],
        ["'-x", "", "-3"],
        ["-7", "0.5", "1"],
    ]
