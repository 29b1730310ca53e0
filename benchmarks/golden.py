"""Record the behaviour of s2s, and compare it with a later version to the last bit.

    python -m benchmarks.golden record OUT.json                   # every group, about 10 minutes on two cores
    python -m benchmarks.golden compare OUT.json                  # record again; list the differences, status 1 if any
    python -m benchmarks.golden compare OUT.json --report         # the same with old and new values
    python -m benchmarks.golden compare OUT.json --values         # ignore reworded texts and renamed tensors
    python -m benchmarks.golden compare OUT.json --quick          # a subset, under 2 minutes
    python -m benchmarks.golden compare OUT.json --only trainings models --source DIR

Groups: trainings, models, optimizers, translations, errors, schema, comparisons. `--source DIR` names the checkout
whose s2s is tested (default: this one). `--jobs REGEX` selects single jobs by `group/job`, as `--list` prints them.

Only stable surfaces are used: command lines, recipe keys, files in run folders and the kept comparisons in
docs/comparison-*; nothing of s2s is imported, except by the group `errors`. Bits depend on the processor and torch,
so compare on the machine that recorded. A command runs in a fork of a process that has loaded third-party
libraries: that is `python -m s2s …` without their loading time.
"""

import argparse
import importlib
import json
import math
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

from benchmarks.golden_files import flat
from benchmarks.golden_jobs import Lab, jobs

ENVIRONMENT = {
    **{"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    **{"COLUMNS": "200", "LINES": "50", "TERM": "dumb", "NO_COLOR": "1", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
    **{"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "MPLBACKEND": "agg", "PYTHONWARNINGS": "ignore"},
}
LIBRARIES = ("torch", "sacrebleu", "sentencepiece", "datasets", "matplotlib.figure", "matplotlib.backends.backend_agg")
LIBRARIES += (
    "pydantic",
    "rich.console",
    "rich.progress",
    "jiwer",
    "scipy.stats",
    "torch.utils.tensorboard",
    "PIL.Image",
)
QUICK = (
    r"trainings/.*/alone|trainings/translation|optimizers/(sgd|ema|accumulation|everything)$|schema|"
    r"models/(translation (lstm-attention|conv|mingru)|classification gru|language-model lstm)$"
)
PROSE = re.compile(
    r"^errors/.*/message$|^schema/.*(/description|/help/[^/]*)$|^translations/.*/evaluate/|/error$|"
    r"^comparisons/.*/(method|limits|question|verdict|caption|title|quantity|recipe)$"
)
ABSENT = "(absent)"


def record(
    source: Path, wanted: Callable[[str], bool], overrides: tuple[str, ...] = ()
) -> Iterator[tuple[str, dict[str, object]]]:
    """Runs the jobs that are wanted, two at a time; yields each one's name and the leaves of its record by path."""
    os.environ.update(ENVIRONMENT | {"PYTHONPATH": str(source)})
    sys.path.insert(0, str(source))
    place = find_spec("s2s")
    print(f"s2s under test: {place.origin if place else 'none'}", file=sys.stderr)
    for name in LIBRARIES:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="golden-") as work:
        chosen = {name: job for name, job in jobs(Lab(source, Path(work).resolve(), overrides)).items() if wanted(name)}
        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
            futures = {pool.submit(function, *given): name for name, (function, given) in chosen.items()}
            for number, future in enumerate(as_completed(futures), 1):
                # as it will be read again
                leaves = json.loads(json.dumps(dict(flat(future.result()))))
                print(f"{number} of {len(futures)}: {futures[future]}", file=sys.stderr)
                if failed := leaves.get("status"):
                    print(f"    status {failed}: {leaves.get('error', '')}", file=sys.stderr)
                yield futures[future], leaves


def machine() -> dict[str, str]:
    """Return the machine properties that bits depend on, without importing torch."""
    about = Path("/proc/cpuinfo")
    cpu = re.search(r"model name\s*: (.*)", about.read_text()) if about.exists() else None
    return {"processor": cpu[1] if cpu else platform.processor(), "torch": version("torch")}


def differences(
    job: str, old: Mapping[str, object], new: Mapping[str, object]
) -> Iterator[tuple[str, str, object, object]]:
    """Yields kind, path, old and new value of each difference between two records of a job.

    The kind is `prose` where only the wording of a text differs, `renamed` for a tensor that has another name and the
    same bits, and `value` for everything else: a number, a hash, a translation, an outcome.
    """
    gone = {path: value for path, value in old.items() if path not in new}
    come = {path: value for path, value in new.items() if path not in old}
    by_hash: dict[object, list[str]] = {}
    for path, value in come.items():
        if re.match(r"[0-9a-f]{64}\b", str(value)):
            by_hash.setdefault(value, []).append(path)
    renamed = {path: by_hash[value].pop(0) for path, value in gone.items() if by_hash.get(value)}
    yield from (("renamed", path, path, other) for path, other in renamed.items())
    same_bits = {*renamed, *renamed.values()}
    for path in dict.fromkeys([*old, *new]):
        before, after = old.get(path, ABSENT), new.get(path, ABSENT)
        # NaN differs from itself
        if path not in same_bits and repr(before) != repr(after):
            yield "prose" if PROSE.search(f"{job}/{path}") else "value", path, before, after


def shown(value: object, other: object) -> str:
    """A value in the report; of two numbers, how far they are apart."""
    numbers = [v for v in (value, other) if isinstance(v, float | int) and not isinstance(v, bool) and math.isfinite(v)]
    apart = f" ({abs(numbers[0] - numbers[1]) / max(map(abs, numbers)):.1e} apart)" if len(numbers) == 2 else ""
    return json.dumps(value, ensure_ascii=False)[:2000] + apart


def main() -> int:  # noqa: C901
    """Records or compares; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="GROUP")
    parser.add_argument("--jobs", default="", metavar="REGEX")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    pattern = re.compile(given.jobs or (QUICK if given.quick else ""))

    def wanted(name: str) -> bool:
        return (not given.only or name.partition("/")[0] in given.only) and bool(pattern.search(name))

    kept = json.loads(given.file.read_text()) if given.file.exists() else {"machine": machine(), "jobs": {}}
    if given.list:
        print(*filter(wanted, jobs(Lab(given.source, Path()))), sep="\n")
        return 0
    if kept["machine"] != machine():
        print(f"recorded on {kept['machine']}, this is {machine()}: bits may differ", file=sys.stderr)
    known = set(kept["jobs"] if given.action == "compare" else jobs(Lab(given.source, Path())))
    if not any(map(wanted, known)):
        parser.error(f"{given.file} has no job that was asked for")
    ran = record(given.source.resolve(), lambda name: wanted(name) and name in known, tuple(given.override))
    if given.action == "record":
        for name, leaves in ran:
            kept["jobs"][name] = leaves
            # a recording that is interrupted keeps what it has
            given.file.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
        return 0
    found = dict(ran)
    counts: dict[str, int] = {}
    for name, new in found.items():
        for kind, path, before, after in differences(name, kept["jobs"].get(name, {}), new):
            if given.values and kind != "value":
                continue
            counts[f"{name} {kind}"] = counts.get(f"{name} {kind}", 0) + 1
            if given.report:
                print(
                    f"{name}: {kind}: {path}",
                    f"    old: {shown(before, after)}",
                    f"    new: {shown(after, before)}",
                    sep="\n",
                )
    for name in sorted(name for name in known - set(found) if wanted(name)):
        print(f"{name}: was recorded, and is no job any more")
    for name, count in counts.items():
        print(f"{name}: {count} differences")
    print(f"{len(found)} jobs compared, {sum(counts.values())} differences, s2s of {given.source.resolve()}")
    return int(bool(counts))


if __name__ == "__main__":
    sys.exit(main())
