"""What a run says while it trains."""

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from s2s.training.logger import RunLog
from s2s.training.update import Measured, Update

UPDATE = Update(
    update=1,
    epoch=0,
    count=10,
    tokens=100,
    seconds=1.0,
    cpu_seconds=1.0,
    learning_rate=0.1,
    real_share=1.0,
    clip=None,
    measured=Measured(torch.tensor(10.0), {"all": torch.tensor(1.0)}),
)


@pytest.mark.parametrize(
    ("seconds", "total", "said"),
    [
        (2.0, 100, "about 3 minutes of training to go, by the first 3 updates"),
        (2.0, 10_000, "about 5.6 hours of training to go, by the first 3 updates"),
        (2.0, 30, None),
        (0.01, 10_000, None),
    ],
)
def test_how_long_it_takes_is_told_by_the_first_updates(tmp_path, seconds, total, said):
    console = Console(file=io.StringIO(), width=200)
    with RunLog(tmp_path, 0, total, console) as log:
        for number in range(1, 30):
            # the first ones take longer, and tell nothing
            took = 50.0 if number <= 5 else seconds
            log.update(replace(UPDATE, update=number, seconds=took))
    told = [line for line in console.file.getvalue().splitlines() if "to go" in line]
    assert told == ([said] if said else [])
