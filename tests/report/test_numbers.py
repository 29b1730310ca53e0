import csv
import io

import pytest

from s2s.comparison.report.numbers import brief, csv_text, duration, interval, number, with_unit
from s2s.files import spreadsheet_cell


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1024, "1,024"),
        (1024.0, "1,024"),
        (12_345_678, "12,345,678"),
        (12_345_678.0, "1.23 × 10⁷"),
        (0.00012, "1.2 × 10⁻⁴"),
        (-0.00012, "−1.2 × 10⁻⁴"),
        (-3.2, "−3.20"),
        (0.9996, "1.00"),
        (18432.7, "18,433"),
        (1 / 3, "0.333"),
    ],
)
def test_number_has_three_digits_and_a_whole_integer_part(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.98, "0.98"), (1.5, "1.5"), (100.0, "100"), (1e-9, "1 × 10⁻⁹")])
def test_brief_has_no_trailing_zeros(value, text):
    assert brief(value) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.93, 0.91, 0.95), "0.930 (0.910–0.950)"),
        ((23.4567, 21.03, 25.9), "23.5 (21.0–25.9)"),
        ((23.4567, 23.40, 23.51), "23.46 (23.40–23.51)"),
        ((18432.7, 17511.0, 19170.0), "18,400 (17,500–19,200)"),
        ((19.17, 2.1, 36.24), "19 (2–36)"),
        ((0.91101, 0.91094, 0.91108), "0.91101 (0.91094–0.91108)"),
        ((16.0, 16.0, 32.0), "16 (16–32)"),
        ((-0.2, -0.5, 0.1), "−0.20 (−0.50 to 0.10)"),
        ((1.2e-5, 1e-5, 1.4e-5), "1.20 (1.00–1.40) × 10⁻⁵"),
        ((0.0, 0.0, 0.0), "0 (0–0)"),
        ((5.0, None, None), "5"),
        ((5.0, 4.0, None), "5 (from 4)"),
        ((5.0, None, 7.0), "5 (up to 7)"),
        ((0.5, 0.4999999, 0.5000001), "0.500000 (0.500000–0.500000)"),
    ],
)
def test_interval_rounds_to_the_second_digit_of_its_width(values, text):
    assert interval(*values) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (0.2, "less than a second"), (59.6, "1 min"), (7322.0, "2 h 2 min")]
)
def test_duration_has_two_units_at_most(seconds, text):
    assert duration(seconds) == text


def test_with_unit_uses_a_no_break_space():
    assert with_unit("5", "ms") == "5\u202fms"
    assert with_unit("5", "") == "5"


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\t=1", "\r=1", "-", "=HYPERLINK(1)"])
def test_spreadsheet_cell_escapes_formulas(text):
    assert spreadsheet_cell(text) == f"'{text}"


@pytest.mark.parametrize("cell", ["-5", "+1.5e-3", "-inf", "a=b", "", "–", "'=1", -5, -1.5, 0, None])
def test_spreadsheet_cell_keeps_numbers_and_texts(cell):
    assert spreadsheet_cell(cell) == cell
    assert type(spreadsheet_cell(cell)) is type(cell)


def test_csv_text_escapes_formulas():
    rows = [["=1", -1.5, 2], ["-x", None, -3], ["-7", 0.5, 1]]
    text = csv_text(["model", "@a", "-b"], rows)
    assert list(csv.reader(io.StringIO(text))) == [
        ["model", "'@a", "'-b"],
        ["'=1", "-1.5", "2"],
        ["'-x", "", "-3"],
        ["-7", "0.5", "1"],
    ]
