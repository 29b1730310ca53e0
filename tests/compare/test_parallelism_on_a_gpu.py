"""Verdicts on planted times of a GPU."""

from dataclasses import replace

import torch

from s2s.comparison.questions.parallelism.analyse import StepTimes
from s2s.comparison.questions.parallelism.measure import EXPERIMENT, SIZES
from s2s.training.device import DeviceContext
from tests.compare.planted_rounds import planted


def _as_beside_a_gpu(one):
    """The measurement with a GPU in place of two threads, and pairs alone on one thread."""
    if not isinstance(one, StepTimes):
        return one
    renamed = {"1 thread": "1 thread", "2 threads": "CUDA"}
    points = [
        replace(point, place=renamed[point.place])
        for point in one.points
        if (point.batch, point.place) != ("tokens", "1 thread")
    ]
    flops, references = ({renamed[place]: own for place, own in each.items()} for each in (one.flops, one.references))
    return replace(one, points=points, flops=flops, references=references)


def test_parallelism_on_a_gpu_one_thread_is_compared_with_and_not_ranked(contest):
    shared = contest(["rnn", "transformer"])
    both, beside = (
        {(f.model, f.row): f for f in EXPERIMENT.result(shared, found).findings}
        for found in (planted(), {cell: _as_beside_a_gpu(one) for cell, one in planted().items()})
    )
    speed = beside["transformer", "training speed"]
    assert speed.value == both["transformer", "training speed"].value
    assert speed.variations == {"n = 16": False, "n = 256": True, "one pair at a time": True}
    facts = beside["transformer", "parallel computation"].facts
    assert facts["CUDA, speed-up over one thread at n = 256"] == 1.5


def _of_many_texts(one, times):
    """The measurement with batches of 32 texts that take `times` as long as one."""
    if not isinstance(one, StepTimes):
        return one
    alone = {(p.place, p.n): p.seconds for p in one.points if p.batch == "pair"}
    points = [
        point if point.batch == "pair" else replace(point, rows=32, seconds=times * alone[point.place, point.n])
        for point in one.points
    ]
    return replace(one, points=points)


def test_parallelism_models_that_leave_the_device_idle_are_not_ranked(contest):
    shared = contest(["rnn", "transformer"])

    def speeds(of_rnn, of_transformer):
        times = {"rnn": of_rnn, "transformer": of_transformer}
        found = {cell: _of_many_texts(_as_beside_a_gpu(one), times[cell.model]) for cell, one in planted().items()}
        cells = {f.model: f for f in EXPERIMENT.result(shared, found).findings if f.row == "training speed"}
        return cells["rnn"], cells["transformer"]

    rnn, transformer = speeds(3, 3)
    assert (rnn.standing, transformer.standing) == ("worse", "better")
    # one that waits is no measure of the other, either
    for cells in (speeds(1.1, 3), speeds(3, 1.1)):
        assert [each.standing for each in cells] == ["not measurable"] * 2
        assert [each.variations for each in cells] == [{}] * 2
    rnn, transformer = speeds(1.1, 3)
    assert rnn.reasons == transformer.reasons
    assert rnn.reasons == ["rnn: a batch of 32 texts takes 1.10 times as long as one text (≥ 1.5 required)"]


def test_parallelism_batches_are_larger_on_a_gpu(contest):
    shared = contest(["rnn"])
    gpu = replace(shared, device_context=DeviceContext(torch.device("cuda"), torch.float32))
    for profile in ("quick", "lecture", "definitive"):
        here, there = (replace(each, profile=profile).sizes(SIZES) for each in (shared, gpu))
        assert (here, there) == (SIZES[profile], SIZES[f"{profile} on a GPU"])
        assert there.tokens > here.tokens
    # where nothing is said of a GPU, it has the profile's own, and a profile that is not there the largest
    assert gpu.sizes({"quick": 1, "definitive": 2}) == 1
    assert gpu.sizes({"definitive": 2, "definitive on a GPU": 3}) == 2
