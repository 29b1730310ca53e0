import contextlib
import gc
import time

import torch

from s2s.comparison.instruments import Marks, flops_of_reference, reference, spent, undisturbed
from s2s.training.device import DeviceContext

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


def test_garbage_is_not_collected_while_time_is_measured():
    assert gc.isenabled()
    with contextlib.suppress(ZeroDivisionError), undisturbed():
        assert not gc.isenabled()
        _ = 1 / 0
    assert gc.isenabled()


def test_the_reference_is_a_product_of_known_size_and_repeats():
    device_context = DeviceContext(CPU, torch.float32)
    seconds = reference(device_context)
    # 512³ multiplications and additions are no faster than 10 TFLOP/s, no slower than 10⁸ a second
    assert 1e-5 < seconds < 3
    assert flops_of_reference(device_context) == 2 * 512**3
