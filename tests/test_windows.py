"""s2s where the modules, signals and flags are absent that Windows does not have."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.export.conftest import RECIPE

ROOT = Path(__file__).parents[1]

# The packages that s2s uses know the real system, so they are imported before.
WINDOWS = """
    import errno, fcntl, importlib, os, signal, sys, types
    import captum, datasets, jiwer, matplotlib.pyplot, sacrebleu, scipy.stats, sentencepiece, tensorboard, uvicorn
    import torch.utils.tensorboard

    def locking(handle, mode, size, flock=fcntl.flock, flags=fcntl.LOCK_EX | fcntl.LOCK_NB):
        assert (mode, size) == ("at once", 1)
        try:
            flock(handle, flags)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "locked") from None

    def kill(process, number, kill=os.kill):
        assert number != 0, "on Windows, this is Ctrl-C"
        kill(process, number)

    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK="at once")
    sys.modules.update(dict.fromkeys(("fcntl", "grp", "pwd", "resource", "termios")))
    os.kill = kill
    for name in "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 pthread_sigmask setitimer".split():
        delattr(signal, name)
    flags = "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK"
    for name in f"{flags} fork getuid killpg sched_getaffinity setsid sysconf uname".split():
        delattr(os, name)
"""


def _run(program: str, folder: Path, system: str = WINDOWS) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(system) + textwrap.dedent(program)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("s2s", "baselines")
    for path in sorted((ROOT / package).rglob("*.py"))
]


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[str]:
    """Output of one process where Windows is imitated; a second one would load torch again."""
    program = f"""
        for name in {MODULES}:
            importlib.import_module(name)
            print(name)

        from pathlib import Path
        from s2s.files import file_lock, remove_unfinished, write_atomically, write_folder_atomically
        from s2s.process import limit, machine_memory, peak_memory

        with file_lock(Path("lock")):
            try:
                file_lock(Path("lock")).__enter__()
            except BlockingIOError:
                print("held")
        with file_lock(Path("lock"), wait=True), write_folder_atomically(Path("new")) as place:
            place.mkdir()
            write_atomically(place / "a.txt", "content")
            remove_unfinished(Path("."))
        print(Path("new/a.txt").read_text(), limit("AS"), machine_memory("PHYS"), peak_memory())
    """
    return _run(program, tmp_path_factory.mktemp("windows")).splitlines()


def test_windows_every_module_can_be_imported(lines):
    assert len(MODULES) > 200
    assert lines[: len(MODULES)] == MODULES


@pytest.mark.slow
def test_windows_a_run_is_trained_resumed_and_used_as_elsewhere(tmp_path):
    program = """
        from s2s.cli.main import commands

        def s2s(line):
            commands(line.split(), standalone_mode=False)

        s2s("train small.yaml run.dir=runs/small training.updates=30")
        s2s("train runs/small --resume training.updates=60")
        s2s("translate runs/small --input lines.txt --output out.txt")
    """
    found = []
    for system in (WINDOWS, ""):
        folder = tmp_path / f"system {len(system)}"
        folder.mkdir()
        (folder / "small.yaml").write_text(RECIPE, encoding="utf-8")
        (folder / "lines.txt").write_text("The small dog sees a cat.\n", encoding="utf-8")
        assert ("peak memory" in _run(program, folder, system)) == (not system)
        paths = (folder / name for name in ("out.txt", "runs/small/checkpoints/0000060/model.safetensors"))
        found.append([path.read_bytes() for path in paths])
    assert found[0] == found[1]


def test_windows_a_lock_is_held_by_one_and_its_files_are_left_to_it(lines):
    assert lines[len(MODULES) :] == ["held", "content None None None"]
