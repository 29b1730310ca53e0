"""Every model and recipe at each level of CPU instructions: no result may depend on the processor it was built on.

Deselected by default; CI runs `pytest -m isa`. Levels that this machine does not have are skipped by name.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
# values of these variables, and the flag of /proc/cpuinfo that a level needs; without AVX-512, native is AVX2
LEVELS = {
    "lowest": ("SSE41", "default", "sse4_1"),
    "AVX2": ("AVX2", "avx2", "avx2"),
    "AVX-512": ("AVX512_CORE", "avx512", "avx512bw"),
    "native": (None, None, ""),
}


@pytest.mark.isa
@pytest.mark.parametrize("level", LEVELS)
def test_isa_models_recipes_and_comparisons_run_at_each_level(level, tmp_path):
    onednn, aten, flag = LEVELS[level]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        flags = cpuinfo.read_text(encoding="utf-8")
        if flag not in flags:
            pytest.skip(f"this processor has no {level}")
        if level == "AVX2" and LEVELS["AVX-512"][2] not in flags:
            pytest.skip("this processor's native level is AVX2")
    environment = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    if onednn and aten:
        environment |= dict(zip(_VARIABLES, (onednn, aten), strict=True))
    command = [sys.executable, "-m", "tests.devices.isa_checks", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert done.stdout.count(": passed") > 40
