import contextlib
import gc
import time
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from s2s.comparison import instruments
from s2s.comparison.instruments import (
    Marks,
    bytes_of,
    chain,
    flops_of_product,
    peak_bytes,
    product,
    rounded,
    spent,
    undisturbed,
)
from s2s.comparison.operations import Operations
from s2s.models.base import BatchedState
from s2s.training.device import DeviceContext

CPU = torch.device("cpu")


def test_marks_measure_the_time_between_them():
    marks = Marks(CPU)
    marks.mark()
    time.sleep(0.02)
    marks.mark()
    marks.mark()
    first, second = marks.seconds()
    assert first >= 0.02
    assert second < first
    assert spent(lambda: time.sleep(0.01), CPU) >= 0.01


def test_undisturbed_disables_garbage_collection():
    assert gc.isenabled()
    with contextlib.suppress(ZeroDivisionError), undisturbed():
        assert not gc.isenabled()
        _ = 1 / 0
    assert gc.isenabled()


def test_product_has_known_flops():
    device_context = DeviceContext(CPU, torch.float32)
    seconds = product(device_context)
    # 512³ multiplications and additions are no faster than 10 TFLOP/s, no slower than 10⁸ a second
    assert 1e-5 < seconds < 3
    assert flops_of_product(device_context) == 2 * 512**3


def test_chain_launches_two_thousand_operations_in_sequence(monkeypatch):
    works = []
    monkeypatch.setattr(instruments, "_fastest", lambda work, device: works.append(work) or 0.001)
    assert chain(DeviceContext(CPU, torch.float32)) == 0.001
    with torch.inference_mode(), Operations() as operations:
        works[0]()
    assert (operations.count, operations.depth) == (2000, 2000)


def test_rounded_has_five_digits():
    assert [rounded(v) for v in (1.23456789, 0.000123456789)] == [1.2346, 0.00012346]


def _floats(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.float32)


def test_peak_bytes_is_what_is_held_at_once():
    def both():
        a, b = _floats(1000), _floats(500)
        del a, b
        _floats(1200)

    def one_by_one():
        for _ in range(5):
            _floats(1000)

    assert peak_bytes(both, CPU) == 4 * 1500
    assert peak_bytes(one_by_one, CPU) == 4 * 1000


def test_peak_bytes_excludes_earlier_allocations():
    kept = torch.ones(10_000)
    assert peak_bytes(kept.exp, CPU) == 4 * 10_000


def test_peak_bytes_is_that_of_the_profiler(monkeypatch):
    recurrence, sequence = nn.RNN(4, 4, bidirectional=True), torch.randn(20, 1, 4)

    def learn():
        recurrence(sequence)[0].sum().backward()

    learn()
    names = []
    ended = instruments._disable_profiler

    def disabled():
        results = ended()
        names.extend(event.name() for event in results.events())
        return results

    monkeypatch.setattr(instruments, "_disable_profiler", disabled)
    peak = peak_bytes(learn, CPU)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        learn()
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    # as they came about, which is not promised of what it gives
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    theirs = [event.nbytes() for event in events if event.name() == "[memory]"]  # pyright: ignore
    assert len(events) > len(theirs) > 40
    assert peak == max(accumulate(theirs))
    assert names == len(theirs) * ["[memory]"]


def test_peak_bytes_prints_nothing(capfd):
    peak_bytes(lambda: _floats(10), CPU)
    assert tuple(capfd.readouterr()) == ("", "")


@dataclass(frozen=True)
class _Inner(BatchedState):
    x: Tensor


@dataclass(frozen=True)
class _Bundle(BatchedState):
    layers: tuple[tuple[Tensor, ...], ...]
    inner: _Inner
    mask: Tensor
    length: int
    nothing: None = None


def test_bytes_of_counts_floats_of_nested_states():
    bundle = _Bundle(
        layers=((torch.zeros(2, 3), torch.zeros(4)), (torch.zeros(5, dtype=torch.float64),)),
        inner=_Inner(torch.zeros(7)),
        mask=torch.zeros(100, dtype=torch.bool),
        length=9,
    )
    assert bytes_of(bundle) == 4 * (6 + 4 + 7) + 8 * 5
