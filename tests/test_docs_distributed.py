"""Every command of the page on several processes, on small data; other machines and Slurm are played by this one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
SMALL = "data.train=300 data.validation=8 data.test=8 tokenizer.size=450 model.width=32 training.updates=6"
SMALL += " training.warmup=2 validation.every=6 validation.sentences=3 batches.tokens=600 device.precision=fp32"
SMALL += " decoding.max_ratio=0.5 decoding.max_extra=1"


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def shell(tmp_path):
    """Does what a shell is told, with this environment's programs."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in (("torchrun", f'{sys.executable} -m torch.distributed.run "$@"'), ("srun", '"$@"')):
        (programs / name).write_text(f"#!/bin/sh\nexec {line}\n")
        (programs / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}

    def does(command: str, **more: str) -> str:
        small = command.replace("recipes/translate.yaml", f"recipes/translate.yaml {SMALL}")
        done = subprocess.run(
            ["bash", "-c", small], cwd=tmp_path, env=environment | more, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return does


@pytest.mark.slow
def test_the_commands_for_one_machine_work(shell):
    for block in _blocks("sh"):
        for command in block.strip().split("\n"):
            assert "2 processes" in shell(command)


@pytest.mark.slow
def test_two_machines_and_slurm_work_as_far_as_one_machine_can_tell(shell, tmp_path):
    two_machines, here, slurm = _blocks("bash")
    assert "node0:29500" in two_machines
    said = shell(f"set -e\n{here}")
    assert "2 processes" in said
    assert said.count("update 6: validation") == 1
    slurm = slurm.replace("run=runs/translate", "run=runs/slurm")
    asked = {"SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "localhost"}
    assert "2 processes" in shell(slurm, **asked)
    # the same script, submitted again
    assert "continuing after update 6" in shell(slurm, **asked)
