"""Measurements in processes beside each other are those made one by one; one that dies takes down only its own."""

import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tqdm import tqdm
from tqdm.std import TqdmDefaultWriteLock

from s2s.comparison.workers import Workers, number_for
from s2s.recipe.schema import DeviceSettings
from s2s.training.device import DeviceContext, select_device


@pytest.fixture(scope="module", autouse=True)
def processes_find_this_file():
    """A new process searches where this one does; pytest reads its files without adding their folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2])
        yield


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    """Two processes for all tests that leave them alive: each takes seconds to load torch."""
    with Workers(2, DeviceSettings(threads=4)) as workers:
        yield workers
    assert not multiprocessing.active_children()


def halved(number: int) -> tuple[float, int]:
    if number == 3:
        os._exit(1)
    return number / 2, torch.get_num_threads()


def refused(number: int) -> None:
    raise ValueError(number)


def threads_after_choosing(threads: int) -> int:
    select_device(DeviceSettings(kind="cpu", precision="fp32", threads=threads))
    return torch.get_num_threads()


def new_pages(size: int) -> float:
    """Pages that the kernel gives for a large tensor whose memory was freed just before: the median of many tries."""

    def once() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.empty(size, dtype=torch.uint8).fill_(1)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    return statistics.median(once() for _ in range(20))


def shared_lock_of_a_progress_bar(number: int) -> bool:
    list(tqdm([number], disable=True))
    return hasattr(TqdmDefaultWriteLock, "mp_lock")


def same(number: int) -> int:
    return number


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 200
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert file.exists()


def same_after_a_file(file: Path, number: int) -> int:
    """The number; 100 waits until the file exists."""
    if number == 100:
        wait_for(file)
    return number


def interrupted() -> None:
    with Workers(2) as workers:
        for _ in workers.map_unordered(time.sleep, [0, 300, 300, 300]):
            raise KeyboardInterrupt


def noted(folder: Path, number: int) -> int:
    if number:
        wait_for(folder / "stopped")
    (folder / str(number)).touch()
    return number


def test_who_stops_reading_leaves_what_has_begun_and_the_next_calls_are_made(two, tmp_path):
    with closing(two.map_unordered(partial(noted, tmp_path), range(9))) as ends:
        assert next(ends)[0] == 0
    (tmp_path / "stopped").touch()
    assert dict(two.map_unordered(same, [11, 12, 13])) == {11: 11, 12: 12, 13: 13}
    # the other process's call ends, and nothing else is begun
    wait_for(tmp_path / "1")
    assert {each.name for each in tmp_path.iterdir()} == {"stopped", "0", "1"}


def test_progress_bars_leave_nothing_behind_when_their_process_is_taken_down(two):
    assert [found for _, found in two.map_unordered(shared_lock_of_a_progress_bar, [1, 2])] == [False, False]


def _ended(workers: Workers, call: Callable[[int], int], items: list[int], fourth: Path) -> list[int]:
    ended = []
    for item, _ in workers.map_unordered(call, items):
        ended.append(item)
        if item < 4:
            items.append(item + 1)
        elif item == 4:
            fourth.touch()
    return ended


def test_what_is_added_meanwhile_is_made_and_waits_for_nobody(two, tmp_path):
    fourth = tmp_path / "4"
    assert _ended(Workers(1), same, [100, 1], fourth) == [100, 1, 2, 3, 4]
    fourth.unlink()
    # one that takes long holds up no other, where there are others
    assert _ended(two, partial(same_after_a_file, fourth), [1, 100], fourth) == [1, 2, 3, 4, 100]


def test_what_processes_find_is_found_here_too(two):
    with Workers(1) as here:
        found = dict(here.map_unordered(halved, [1, 2, 4]))
    assert {n: its[0] for n, its in two.map_unordered(halved, [1, 2, 4])} == {n: its[0] for n, its in found.items()}
    # the same processes go on, with one thread each, and an error is the caller's
    assert all(threads == 1 for _, (_, threads) in two.map_unordered(halved, [6, 8]))
    with pytest.raises(ValueError, match="7"):
        list(two.map_unordered(refused, [7]))
    # neither what a recipe asks of the whole comparison, nor what is chosen in one measurement, changes that
    assert dict(two.map_unordered(threads_after_choosing, [2, 4])) == {2: 1, 4: 1}
    if platform.libc_ver()[0] == "glibc":
        assert dict(two.map_unordered(new_pages, [64 << 20]))[64 << 20] < (64 << 20) / resource.getpagesize() / 100
    with two.exclusive() as alone:
        # idle processes would still hold memory, of a GPU above all
        assert not multiprocessing.active_children()
        assert [its[0] for _, its in alone.map_unordered(halved, [8])] == [4.0]


@pytest.mark.slow
def test_a_process_that_dies_takes_down_its_own_measurement_only():
    items, found = [3, 4], {}
    with Workers(2) as workers:
        # each that is made again has a process of its own, which loads torch
        for item, its in workers.map_unordered(halved, items):
            found[item] = its and its[0]
            if item == 3:
                # what is added afterwards is made, too
                items.append(8)
    assert found == {3: None, 4: 2.0, 8: 4.0}


def test_an_interruption_waits_neither_for_the_others_nor_for_those_that_have_not_begun():
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(300,), daemon=True)
    other.start()
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.perf_counter() - began < 200
    # processes of other pools go on
    assert multiprocessing.active_children() == [other]
    other.kill()
    other.join()


def test_one_process_for_each_thread_and_on_a_gpu_for_4_gib_of_its_memory(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    assert number_for(DeviceContext(torch.device("cpu"), torch.float32)) == 6
    assert number_for(DeviceContext(torch.device("mps"), torch.float32)) == 1
    for gib, number in ((3, 1), (11, 2), (140, 6)):
        there = SimpleNamespace(total_memory=gib * 2**30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, there=there: there)
        assert number_for(DeviceContext(torch.device("cuda"), torch.float32)) == number
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    assert number_for(DeviceContext(torch.device("cuda"), torch.float32)) == 8
