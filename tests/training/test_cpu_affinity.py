"""Thread affinity during measurements and in worker processes."""

import os
import subprocess
import sys

import pytest

from s2s.training import cpu_affinity

PROGRAM = """
import os
from s2s.training import cpu_affinity


def processors_of_a_training(width):
    import sentencepiece  # brings an OpenMP of its own, which holds threads as it is loaded
    import torch

    torch.nn.Linear(width, width)(torch.randn(64, width)).square().mean().backward()
    return os.sched_getaffinity(0)


if __name__ == "__main__":
    before = dict(os.environ)
    with cpu_affinity.save_affinity():
        from s2s.comparison.workers import Workers

        held = os.sched_getaffinity(0)
        with Workers(2) as workers:
            beside = [given or () for _, given in workers.map_unordered(processors_of_a_training, [64, 256])]
    assert dict(os.environ) == before
    print(*map(len, (held, os.sched_getaffinity(0), *beside)))
"""


def _counts(tmp_path, **environment):
    program = tmp_path / "held.py"
    program.write_text(PROGRAM)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OMP_")}
    done = subprocess.run(
        [sys.executable, program], env=kept | environment, capture_output=True, text=True, check=True, timeout=120
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not hold threads on cores")
def test_cpu_affinity_held_here_and_free_in_workers(tmp_path):
    here = len(os.sched_getaffinity(0))
    if here == 1:
        pytest.skip("one core is all there is")
    held, *free = _counts(tmp_path)
    assert held < here
    assert free == [here] * 3


@pytest.mark.parametrize("decided", ["by the user", "by torch"])
def test_cpu_affinity_left_alone_where_it_is_decided(decided, monkeypatch):
    for name in ("OMP_PROC_BIND", "OMP_PLACES", "S2S_PROCESSORS"):
        monkeypatch.delenv(name, raising=False)
    if decided == "by the user":
        monkeypatch.setenv("OMP_PROC_BIND", "false")
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    else:
        monkeypatch.setitem(sys.modules, "torch", object())
    before = dict(os.environ)
    with cpu_affinity.save_affinity():
        assert dict(os.environ) == before
