"""Device selection, precision, threads and seeds."""

import os
import platform
import resource
import statistics
import subprocess
import sys

import pytest
import torch

from s2s.errors import UserError
from s2s.recipe.schema import DeviceSettings
from s2s.training.device import derive_seed, seed_generators, select_device, setup_process


def test_device_auto_takes_what_is_here():
    device_context = select_device(DeviceSettings())
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert device_context.device.type == expected


def test_absent_device_is_an_error_with_a_remedy(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"device.kind is cuda(.|\n)*device.kind: auto"):
        select_device(DeviceSettings(kind="cuda"))


@pytest.mark.parametrize(("precision", "product"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_device_products_run_in_the_precision_asked_for(precision, product):
    with select_device(DeviceSettings(kind="cpu", precision=precision)).mixed_precision():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == product


NEW_PAGES = """
import resource, torch
from s2s.recipe.schema import DeviceSettings
from s2s.training.device import setup_process

setup_process(DeviceSettings(kind="cpu"))
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(64 << 20, dtype=torch.uint8).fill_(1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_device_memory_that_was_freed_is_not_asked_of_the_kernel_again():
    # in a process of its own: once an allocation has failed, as some tests want it to, glibc serves this thread from
    # another arena, which keeps no blocks as large as these
    done = subprocess.run([sys.executable, "-c", NEW_PAGES], capture_output=True, text=True, check=True)
    # what lies around a freed block can make glibc pass it over once or twice, not again and again
    assert statistics.median(map(int, done.stdout.split())) < (64 << 20) / resource.getpagesize() / 100


FLUSHED = """
import warnings
import numpy, torch
from s2s.recipe.schema import DeviceSettings
from s2s.training.device import setup_process

warnings.simplefilter("error")
torch.set_num_threads(2)
tiny = torch.full((1 << 22,), 1e-39)
print(int((tiny * 1.0 != 0).sum()))
setup_process(DeviceSettings(kind="cpu"))
print(int((tiny * 1.0 != 0).sum()), torch.get_num_threads(), numpy.finfo(numpy.float64).tiny > 0)
"""


def test_setup_process_flushes_denormals_in_existing_threads():
    # in a process of its own, in which nothing was prepared
    done = subprocess.run([sys.executable, "-c", FLUSHED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(1 << 22), "0 2 True"]


@pytest.fixture
def process_as_before():
    """Whatever a test prepares, the process is as it was when the test has ended."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("process_as_before")
def test_device_process_is_prepared_once_and_choosing_changes_nothing(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    setup_process(DeviceSettings(threads=1))
    select_device(DeviceSettings(kind="cpu", threads=2, deterministic=True))
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (1, False)
    setup_process(DeviceSettings(threads=2, deterministic=True))
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (2, True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    # a null leaves the threads as they are; what is not asked for is not left on
    setup_process(DeviceSettings())
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (2, False)


def test_device_seeds_of_different_places_differ_and_of_the_same_place_agree():
    seeds = [derive_seed(seed, update) for seed in range(5) for update in range(200)]
    assert len(set(seeds)) == 1000
    assert seeds == [derive_seed(seed, update) for seed in range(5) for update in range(200)]
    assert all(0 <= s < 2**63 for s in seeds)


def test_device_attention_is_not_planned_anew_for_every_shape():
    torch.backends.cuda.enable_cudnn_sdp(True)
    setup_process(DeviceSettings())
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_only_the_generators_of_the_device_in_use_are_seeded(monkeypatch):
    seeded = list[tuple[str, int]]()
    for kind in ("cuda", "mps", "xpu"):
        for name in ("manual_seed", "manual_seed_all"):
            there = getattr(torch, kind)
            if hasattr(there, name):
                monkeypatch.setattr(there, name, lambda seed, kind=kind: seeded.append((kind, seed)))
    torch.manual_seed(5)
    wanted = torch.rand(3)
    # of a kind that is not there, torch keeps each seed, and the stack of who asked
    assert ("xpu", 5) in seeded
    seeded.clear()
    for kind, others in (("cpu", []), ("cuda", [("cuda", 5)]), ("mps", [("mps", 5)])):
        seed_generators(5, torch.device(kind))
        assert torch.equal(torch.rand(3), wanted)
        assert seeded == others
        seeded.clear()
