"""Signals to stop end what is done, and leave no trace when it is over."""

import os
import signal

import pytest

from s2s.errors import Stopped
from s2s.training.shutdown import GracefulShutdown, interrupt_immediately

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def handlers():
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_interrupt_immediately_restores_the_handlers(number, handlers):
    with pytest.raises(Stopped) as stop, interrupt_immediately():
        os.kill(os.getpid(), number)
    assert stop.value.signal == number
    assert {each: signal.getsignal(each) for each in SIGNALS} == handlers


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_immediately_check_finds_a_swallowed_signal(handlers):
    class Collected:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)

    def work(check):
        kept = Collected()
        del kept
        check()

    with pytest.raises(Stopped) as stop, interrupt_immediately() as check:
        work(check)
    assert stop.value.signal == signal.SIGTERM
    with interrupt_immediately() as check:
        check()


def test_shutdown_keeps_ignored_signals_ignored(handlers):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interrupt_immediately():
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_graceful_shutdown_within_an_interrupt_stops_at_the_second_signal(handlers):
    with interrupt_immediately():
        with GracefulShutdown() as wish:
            os.kill(os.getpid(), signal.SIGHUP)
            assert wish.signal == signal.SIGHUP
            with pytest.raises(Stopped):
                os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_shutdown_raises_while_waiting_for_other_ranks(handlers):
    with interrupt_immediately(), pytest.raises(KeyboardInterrupt) as seen:
        os.kill(os.getpid(), signal.SIGTERM)
    assert seen.type is KeyboardInterrupt
