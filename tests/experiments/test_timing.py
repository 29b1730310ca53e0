import contextlib
import gc
import random
import time

import pytest
import torch

from s2s.evaluation.inference import median, ratio_of_medians
from s2s.experiments.instruments import Marks, machine, reference, spent, undisturbed
from s2s.training.devices import Computer

CPU = torch.device("cpu")


def test_marks_measure_what_lies_between_them():
    marks = Marks(CPU)
    marks.mark()
    time.sleep(0.02)
    marks.mark()
    marks.mark()
    first, second = marks.seconds()
    assert first >= 0.02
    assert second < first
    assert spent(lambda: time.sleep(0.01), CPU) >= 0.01


def test_the_interval_of_a_median_lies_between_its_values():
    ten = median([float(v) for v in (3, 1, 4, 10, 5, 9, 2, 6, 8, 7)])
    # 10 coins show fewer than 2 heads with a probability of 1.1 %
    assert (ten.value, ten.low, ten.high) == (5.5, 2, 9)
    five = median([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (five.value, five.low, five.high) == (3, None, None)
    assert median([1.0] * 5 + [9.0]).high == 9


def test_the_interval_of_a_median_holds_it_often_enough():
    generator = random.Random(1)
    hits = 0
    for _ in range(400):
        found = median([generator.expovariate(1) for _ in range(12)])
        hits += found.low <= 0.6931 <= found.high
    assert hits / 400 >= 0.94


def test_the_ratio_of_a_sample_to_itself_is_one():
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
    found = ratio_of_medians(values, values)
    assert found.value == 1
    assert found.low < 1 < found.high
    twice = ratio_of_medians([2 * v for v in values], values)
    assert twice.value == 2
    assert twice.low == pytest.approx(2 * found.low)
    assert ratio_of_medians(values, values) == found


def test_garbage_is_not_collected_while_time_is_measured():
    assert gc.isenabled()
    with contextlib.suppress(ZeroDivisionError), undisturbed():
        assert not gc.isenabled()
        _ = 1 / 0
    assert gc.isenabled()


def test_the_machine_multiplies_at_some_rate():
    found = machine(Computer(CPU, torch.float32))
    assert found.peak > 1e8
    assert found.reference > 0
    # 512³ multiplications and additions cannot take less than the peak says, but for noise
    assert found.peak * reference(CPU) > 0.2 * 2 * 512**3
