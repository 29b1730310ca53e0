"""The progress bar and lines of a run."""

import io
from collections.abc import Iterator

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console

from s2s.training import logger, progress
from s2s.training.logger import RunLog, Sample
from s2s.training.progress import fit_to_row, no_progress_bar, progress_bar
from s2s.training.step import StepMetrics, StepResult


def _console(width: int = 100, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)


def _update(number: int) -> StepResult:
    measured = StepMetrics(torch.tensor(25.0), {"all": torch.tensor(1.0)})
    return StepResult(number, 0, 10, 50, 0.5, 0.5, 0.1, 0.9, None, measured)


@pytest.fixture
def log(tmp_path) -> Iterator[tuple[RunLog, Console]]:
    console = _console(120)
    with RunLog(tmp_path, 0, 4, console, metric="wer") as log:
        yield log, console


def test_progress_bar_of_training_shows_no_loss_before_there_is_one_then_the_chosen_score_and_the_time(log):
    run, console = log
    run._bar.refresh()
    assert "nan" not in console.file.getvalue()
    run.log_step(_update(1))
    run.log_validation(1, {"loss": 2.0, "bleu": 9.0, "wer": 33.3})
    run.log_step(_update(2))
    run._bar.refresh()
    text = console.file.getvalue()
    assert "loss 2.500 · wer 33.30 · 100 tokens/s" in text
    assert "0:00:00" in text
    # the score that decides stands before the others
    assert "update 1: validation loss 2.000 · wer 33.30 · bleu 9.00" in text


@pytest.mark.parametrize(("seconds", "lines"), [(-1.0, ["update 1/4", "update 2/4"]), (60.0, [])])
def test_progress_without_a_terminal_is_a_line_for_every_period(tmp_path, monkeypatch, seconds, lines):
    monkeypatch.setattr(logger, "PLAIN_LINE_EVERY", seconds)
    console = _console(terminal=False)
    with RunLog(tmp_path, 0, 4, console) as run:
        run.log_step(_update(1))
        run.log_step(_update(2))
    written = console.file.getvalue().splitlines()
    assert written == [f"{line}: loss 2.500 · 100 tokens/s · rate 1.00e-01" for line in lines]


def test_progress_sample_takes_one_row_however_long_it_is(log):
    run, console = log
    run.log_validation(1, {"loss": 2.0}, [Sample("word " * 100, "x", "Wort\n" * 100)])
    rows = [line for line in console.file.getvalue().splitlines() if "→" in line]
    assert len(rows) == 1
    assert cell_len(rows[0].removeprefix("\x1b[2K")) <= 120
    assert rows[0].count("…") == 2


@pytest.mark.parametrize(
    ("source", "written"),
    [("a" * 500, "b"), ("a", "b" * 500), ("a" * 500, "b" * 500), ("漢" * 200, "字" * 200), ("a", "b")],
)
def test_progress_row_fits_the_terminal_and_uses_it(source, written):
    row = fit_to_row(_console(80), source, written)
    long = cell_len(source) + cell_len(written) > 70
    assert cell_len(row) in ((78, 79, 80) if long else (cell_len(f"    {source}  →  {written}"),))
    assert all(side in row for side in (source, written) if cell_len(side) == 1)
    assert cell_len(fit_to_row(_console(80, terminal=False), source, written)) <= 120


def test_progress_scoring_has_a_bar_that_goes_away(log):
    run, console = log
    with run.progress_bar("translating", 30) as advance:
        advance(10)
        advance(20)
    text = console.file.getvalue()
    assert "translating" in text
    assert "30/30" in text


def test_progress_without_a_terminal_there_is_a_line_now_and_then(monkeypatch):
    console, now = _console(terminal=False), iter([0.0, 4.0, 11.0, 11.0, 12.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress_bar(console)("translating", 3000) as advance:
        for _ in range(3):
            advance(1000)
    assert console.file.getvalue() == "translating: 2,000 of 3,000\n"
    with no_progress_bar("translating", 3) as advance:
        advance(3)
