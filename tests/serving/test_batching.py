"""The model thread: what it puts together, in which order, and that nothing that was taken is left."""

import threading
from concurrent.futures import wait

import pytest

from s2s.errors import UserError
from s2s.serving.batching import Full, ModelThread


class Slow:
    """Computes when it is let; notes what it was given."""

    def __init__(self) -> None:
        self.gate, self.entered, self.batches = threading.Event(), threading.Event(), []
        self.error: Exception = UserError("one is bad")

    def __call__(self, asked, lines):
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
    thread = ModelThread(slow, most=4, waiting=6)
    yield thread
    slow.gate.set()
    thread.stop()


def _busy(model, slow):
    first = model.submit("x", ["first"])
    assert slow.entered.wait(10)
    return first


def test_what_waits_is_computed_together_where_it_is_alike_and_fits(model, slow):
    jobs = [_busy(model, slow)]
    for asked, lines in (("a", ["1", "2"]), ("b", ["3"]), ("a", ["4", "5"]), ("a", ["6"]), ("b", ["7"])):
        jobs.append(model.submit(asked, lines))
    assert len(model) == 5
    slow.gate.set()
    answers = [job.result(10) for job in jobs]
    assert slow.batches == [("x", ["first"]), ("a", ["1", "2", "4", "5"]), ("b", ["3", "7"]), ("a", ["6"])]
    assert answers == [["x first"], ["a 1", "a 2"], ["b 3"], ["a 4", "a 5"], ["a 6"], ["b 7"]]


def test_one_job_may_have_more_lines_than_a_batch_of_several(model, slow):
    slow.gate.set()
    lines = [str(n) for n in range(9)]
    assert model.submit("a", lines).result(10) == [f"a {line}" for line in lines]


@pytest.mark.parametrize("error", [UserError("one is bad"), MemoryError("one is bad")])
def test_a_bad_request_harms_nobody_else(model, slow, error):
    slow.error = error
    _busy(model, slow)
    good, bad, other = (model.submit("a", [text]) for text in ("1", "bad", "2"))
    slow.gate.set()
    assert (good.result(10), other.result(10)) == (["a 1"], ["a 2"])
    with pytest.raises(type(error), match="one is bad"):
        bad.result(10)


def test_too_many_are_refused_and_who_has_gone_is_left_out(model, slow):
    _busy(model, slow)
    waiting = [model.submit("a", [str(n)]) for n in range(6)]
    with pytest.raises(Full):
        model.submit("a", ["too many"])
    assert waiting[0].cancel()
    assert len(model) == 5
    slow.gate.set()
    wait(waiting[1:], 10)
    assert "0" not in [line for _, lines in slow.batches for line in lines]


def test_stopping_answers_what_was_taken_and_takes_no_more(model, slow):
    jobs = [_busy(model, slow), *(model.submit("a", [str(n)]) for n in range(5))]
    stopping = threading.Thread(target=model.stop)
    stopping.start()
    slow.gate.set()
    stopping.join(10)
    assert all(job.done() and len(job.result()) == 1 for job in jobs)
    assert not model.alive
    with pytest.raises(Full):
        model.submit("a", ["late"])
