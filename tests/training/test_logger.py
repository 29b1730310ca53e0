"""The log of a run."""

import errno
import io
import threading
import time
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from s2s.errors import UserError
from s2s.training.logger import RunLog, Sample, drop_entries_after
from s2s.training.step import StepMetrics, StepResult

UPDATE = StepResult(
    update=1,
    epoch=0,
    count=10,
    tokens=100,
    seconds=1.0,
    cpu_seconds=1.0,
    learning_rate=0.1,
    real_share=1.0,
    clip=None,
    measured=StepMetrics(torch.tensor(10.0), {"all": torch.tensor(1.0)}),
)


def test_step_result_shows_its_loss_and_gradient_norm():
    norms = {"encoder": torch.tensor(3.0), "decoder": torch.tensor(4.0)}
    step = replace(UPDATE, tokens=12_345, measured=StepMetrics(torch.tensor(23.456789), norms))
    shown = "update=1, epoch=0, loss=2.346, gradient_norm=5, learning_rate=0.1, tokens=12345, seconds=1"
    assert repr(step) == f"StepResult({shown})"


@pytest.mark.parametrize(
    ("seconds", "total", "said"),
    [
        (2.0, 100, "remaining: about 3 minutes, estimated from 3 updates"),
        (2.0, 10_000, "remaining: about 5.6 hours, estimated from 3 updates"),
        (2.0, 30, None),
        (0.01, 10_000, None),
    ],
)
def test_logger_estimates_the_remaining_time_from_the_first_updates(tmp_path, seconds, total, said):
    console = Console(file=io.StringIO(), width=200)
    with RunLog(tmp_path, 0, total, console) as log:
        for number in range(1, 30):
            # the first ones take longer, and tell nothing
            took = 50.0 if number <= 5 else seconds
            log.log_step(replace(UPDATE, update=number, seconds=took))
    told = [line for line in console.file.getvalue().splitlines() if "remaining" in line]
    assert told == ([said] if said else [])


@pytest.mark.parametrize(
    "text",
    [
        *("5", "[1]", '{"a":1}', '{"update":"x"}', "null"),
        *('{"update":1,"loss":"x","count":1}', '{"update":1,"loss":1.0,"count":null}'),
        *('{"update":1,"noise":5}', '{"update":1,"noise":{"spread":1.0,"square":"x"}}'),
        *('{"update":1,"validation":5}', '{"update":1,"validation":{"loss":"x"}}'),
    ],
)
def test_logger_line_that_is_none_of_a_run_is_named_and_kept(tmp_path, text):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"update": 1, "validation": {"loss": NaN}}\n' + text + "\n")
    with pytest.raises(UserError, match=r"metrics.jsonl:2: (.|\n)*delete the line"):
        drop_entries_after(path, 5)
    assert path.read_text().endswith(text + "\n")


def test_logger_lines_that_a_crash_cut_or_filled_are_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"update": 1, "validation": {}}\n{"update": 7, "validation": {}}\n{"upd\n\0\0\xff\n' + b"[" * 100_000
    )
    drop_entries_after(path, 5)
    assert path.read_text() == '{"update": 1, "validation": {}}\n'


def test_logger_noise_scale_of_a_run_that_goes_on_is_that_of_one_that_never_stopped(tmp_path):
    updates = []
    for n in range(1, 9):
        norms = {"all": torch.tensor(1.0)}, [torch.tensor(0.7 + n / 10), torch.tensor(0.8)]
        updates.append(replace(UPDATE, update=n, parts=(4, 6), measured=StepMetrics(torch.tensor(10.0), *norms)))
    console = Console(file=io.StringIO())
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    with RunLog(tmp_path / "whole", 0, 8, console) as log:
        for update in updates:
            log.log_step(update)
        whole = log.noise()
    with RunLog(tmp_path / "cut", 0, 8, console) as log:
        for update in updates[:6]:
            log.log_step(update)
    with RunLog(tmp_path / "cut", 5, 8, console) as log:
        for update in updates[5:]:
            log.log_step(update)
        assert log.noise() == whole
    assert "over the last 8 updates" in whole


def test_logger_control_characters_of_a_corpus_are_spelt(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    with RunLog(tmp_path, 0, 8, console) as log:
        log.info_pair("a\x1b]0;title\x07b", "c\x9bd\u3000e")
    assert console.file.getvalue() == "    a\\x1b]0;titleb  →  c\\x9bd e\n"


def test_logger_table_of_translations_has_a_cell_for_each_text(tmp_path, monkeypatch):
    shown = []
    with RunLog(tmp_path, 0, 8, Console(quiet=True)) as log:
        monkeypatch.setattr(log._board, "add_text", lambda name, text, update: shown.append(text))
        log.log_validation(5, {"loss": 1.0}, [Sample("a | b", "c", "d\ne")])
    assert shown[0].splitlines()[-1] == r"| a \| b | c | d e |"


def test_logger_reports_an_unwritable_tensorboard_once(tmp_path, monkeypatch):
    def full(_writer: object, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    traced = []
    monkeypatch.setattr(threading, "excepthook", traced.append)

    def train() -> None:
        with RunLog(tmp_path, 0, 10, Console(file=io.StringIO())) as log:
            monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
            for number in range(1, 100):
                log.log_validation(number, {"loss": 1.0})
                time.sleep(0.01)

    with pytest.raises(OSError, match="No space left"):
        train()
    assert traced == []
    assert threading.excepthook == traced.append
