"""Dynamic batching of requests: order, compatibility, cancellation."""

import threading
from concurrent.futures import wait

import pytest

from s2s.errors import UserError
from s2s.serving.batching import Abandoned, ModelThread, QueueFull


class Slow:
    """Computes when it is let; notes what it was given."""

    def __init__(self) -> None:
        self.gate, self.entered, self.batches = threading.Event(), threading.Event(), []
        self.error: Exception = UserError("one is bad")

    def __call__(self, asked, lines, before_step):
        self.entered.set()
        assert self.gate.wait(10)
        self.batches.append((asked, lines))
        if "bad" in lines:
            raise self.error
        return [f"{asked} {line}" for line in lines]


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def model(slow):
    thread = ModelThread(slow, most=4, positions=40, waiting=6)
    yield thread
    slow.gate.set()
    thread.stop()


def _busy(model, slow):
    first = model.submit("x", ["first"], 1)
    assert slow.entered.wait(10)
    return first


def test_batching_joins_compatible_requests_up_to_the_limit(model, slow):
    jobs = [_busy(model, slow)]
    for asked, lines in (("a", ["1", "2"]), ("b", ["3"]), ("a", ["4", "5"]), ("a", ["6"]), ("b", ["7"])):
        jobs.append(model.submit(asked, lines, 1))
    assert len(model) == 5
    slow.gate.set()
    answers = [job.result(10) for job in jobs]
    assert slow.batches == [("x", ["first"]), ("a", ["1", "2", "4", "5"]), ("b", ["3", "7"]), ("a", ["6"])]
    assert answers == [["x first"], ["a 1", "a 2"], ["b 3"], ["a 4", "a 5"], ["a 6"], ["b 7"]]


def test_batching_one_job_may_have_more_lines_than_a_batch_of_several(model, slow):
    slow.gate.set()
    lines = [str(n) for n in range(9)]
    assert model.submit("a", lines, 1).result(10) == [f"a {line}" for line in lines]


@pytest.mark.parametrize("error", [UserError("one is bad"), MemoryError("one is bad")])
def test_batching_isolates_a_failing_request(model, slow, error):
    slow.error = error
    _busy(model, slow)
    good, bad, other = (model.submit("a", [text], 1) for text in ("1", "bad", "2"))
    slow.gate.set()
    assert (good.result(10), other.result(10)) == (["a 1"], ["a 2"])
    with pytest.raises(type(error), match="one is bad"):
        bad.result(10)


def test_batching_too_many_are_refused_and_who_has_gone_is_left_out(model, slow):
    _busy(model, slow)
    waiting = [model.submit("a", [str(n)], 1) for n in range(6)]
    with pytest.raises(QueueFull):
        model.submit("a", ["too many"], 1)
    assert waiting[0].cancel()
    assert len(model) == 5
    slow.gate.set()
    wait(waiting[1:], 10)
    assert "0" not in [line for _, lines in slow.batches for line in lines]


def test_batching_stopping_answers_what_was_taken_and_takes_no_more(model, slow):
    jobs = [_busy(model, slow), *(model.submit("a", [str(n)], 1) for n in range(5))]
    stopping = threading.Thread(target=model.stop)
    stopping.start()
    slow.gate.set()
    stopping.join(10)
    assert all(job.done() and len(job.result()) == 1 for job in jobs)
    assert not model.alive
    with pytest.raises(QueueFull):
        model.submit("a", ["late"], 1)


def test_batching_batch_holds_so_many_positions_and_no_more(model, slow):
    jobs = [_busy(model, slow)]
    for text, width in (("1", 5), ("2", 20), ("3", 21), ("4", 5)):
        jobs.append(model.submit("a", [text], width))
    slow.gate.set()
    wait(jobs, 10)
    # with text 3 or 4, the first batch would take 63 or 60 positions, and texts 3 and 4 together 42
    assert slow.batches == [("x", ["first"]), ("a", ["1", "2"]), ("a", ["3"]), ("a", ["4"])]


class Endless:
    """Computes until nobody waits or it may end; counts its steps."""

    def __init__(self) -> None:
        self.steps, self.may_end, self.abandoned = threading.Semaphore(0), threading.Event(), threading.Event()

    def __call__(self, asked, lines, before_step):
        while not self.may_end.wait(0.002):
            self.steps.release()
            try:
                before_step()
            except Abandoned:
                self.abandoned.set()
                raise
        return lines


@pytest.fixture
def endless():
    return Endless()


@pytest.fixture
def endless_model(endless):
    thread = ModelThread(endless, most=4, positions=40, waiting=6)
    yield thread
    endless.may_end.set()
    thread.stop()


def test_batch_without_waiting_clients_is_cancelled(endless, endless_model):
    job = endless_model.submit("x", ["first"], 1)
    assert endless.steps.acquire(timeout=10)
    assert job.cancel()
    assert endless.abandoned.wait(10)
    endless.may_end.set()
    assert endless_model.submit("x", ["second"], 1).result(10) == ["second"]


def test_batching_batch_goes_on_while_one_of_its_clients_waits(endless, endless_model):
    first = endless_model.submit("x", ["first"], 1)
    assert endless.steps.acquire(timeout=10)
    gone, waits = (endless_model.submit("a", [text], 1) for text in "12")
    assert first.cancel()
    assert endless.abandoned.wait(10)
    endless.abandoned.clear()
    assert gone.cancel()
    for _ in range(5):
        assert endless.steps.acquire(timeout=10)
    assert not endless.abandoned.is_set()
    endless.may_end.set()
    assert waits.result(10) == ["2"]
