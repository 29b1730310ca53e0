"""Run a reproduction: print the expected numbers, store each trial, and write the result."""

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from s2s.comparison.engine import machine
from s2s.comparison.executor import StoredResult, machine_here, run_cached
from s2s.comparison.reproduce.adding import Adding
from s2s.comparison.reproduce.agreement import Agreement
from s2s.comparison.reproduce.attention_scores import AttentionScores
from s2s.comparison.reproduce.contract import M, Numbers, Reproduction
from s2s.comparison.reproduce.copy_memory import CopyMemory
from s2s.comparison.reproduce.copying import Copying
from s2s.comparison.reproduce.counting import Counting
from s2s.comparison.reproduce.depth import Depth
from s2s.comparison.reproduce.forget_bias import ForgetBias
from s2s.comparison.reproduce.induction import Induction
from s2s.comparison.reproduce.law import Law
from s2s.comparison.reproduce.length import Length
from s2s.comparison.reproduce.mingru import MinGru
from s2s.comparison.reproduce.mqar import Mqar
from s2s.comparison.reproduce.no_positions import NoPositions
from s2s.comparison.reproduce.norm_gradients import NormGradients
from s2s.comparison.reproduce.positions_length import PositionsLength
from s2s.comparison.reproduce.radius import Radius
from s2s.comparison.reproduce.reverse_source import ReverseSource
from s2s.comparison.reproduce.sensitivity import Sensitivity
from s2s.comparison.reproduce.state_tracking import StateTracking
from s2s.comparison.reproduce.tiny import Tiny
from s2s.comparison.reproduce.warm_up import WarmUp
from s2s.comparison.reproduced import RESULT, Band, Check, Reproduced
from s2s.comparison.results import Failure
from s2s.comparison.spec import Trial
from s2s.comparison.workers import Workers, number_for
from s2s.errors import UserError, counted
from s2s.evaluation.inference import mean
from s2s.files import ASKED, make_folder, read_file, write_atomically
from s2s.recipe.schema import DeviceSettings
from s2s.recipe.wording import suggestion
from s2s.run.folder import MEASURED, is_unstarted, run_lock
from s2s.run.manifest import code_version
from s2s.training.device import select_device, setup_process
from s2s.training.shutdown import interrupt_immediately, print_resume_hint_on_exit

# small trainings gain nothing from a second thread, and results depend on the number of threads
_DEVICE = DeviceSettings(kind="cpu", precision="fp32", threads=1)
_CELLS = "cells"


def describe_all(verbose: bool = False) -> str:
    """List all reproductions, cheapest first.

    Args:
        verbose: Describe each one with its published numbers, bands and source, instead of one line.
    """
    found = sorted(REPRODUCTIONS.values(), key=lambda each: each.seconds[1])
    if verbose:
        return "\n\n".join(map(describe, found))
    rows = [("name", "at most", "claim")] + [(each.name, _clock(each.seconds[1]), each.finding) for each in found]
    wide = max(len(name) for name, *_ in rows)
    return "\n".join(f"{name:{wide}}  {clock:>7}  {finding}" for name, clock, finding in rows)


def describe(reproduction: Reproduction[Any]) -> str:
    """Describe a finding, its published numbers and bands, its source and its cost."""
    lines = [f"{reproduction.name}: {reproduction.finding}"]
    lines += [
        f"  {band.what}: {'validity check' if band.validity else f'published {band.published}'}; band: {band}"
        for band in reproduction.bands
    ]
    seeds = reproduction.usual_seeds
    cost = f"{_clock(reproduction.seconds[0])} to {_clock(reproduction.seconds[1])} on one core"
    if reproduction.setting:
        lines.append(f"  measured {reproduction.setting}")
    return "\n".join([*lines, f"  source: {reproduction.source}", f"  cost: {cost} ({counted(seeds, 'seed')})"])


def reproduction_of(name: str) -> Reproduction[Any]:
    """Return the reproduction of that name.

    Raises:
        UserError: There is none.
    """
    if name not in REPRODUCTIONS:
        raise UserError(f"{name!r:.60} is not a reproduction", remedy=suggestion(name, list(REPRODUCTIONS)))
    return REPRODUCTIONS[name]


def reproduce(
    name: str, folder: Path, seeds: int | None, print_fn: Callable[[str], None], settings: Sequence[str] = ()
) -> Reproduced:
    """Reproduce a finding, or resume a reproduction, and write the result to its folder.

    Args:
        name: Name of the reproduction.
        folder: Folder of trials and result; created if it does not exist.
        seeds: Number of seeds; None: the usual number.
        print_fn: Prints a line.
        settings: Settings of its recipe, as `section.key=value`.

    Raises:
        UserError: There is no such reproduction, a setting is wrong, the folder belongs to another reproduction, or no
            trial succeeded.
    """
    reproduction = reproduction_of(name).asked(settings, folder)
    _check_own(folder, name, settings)
    folder.mkdir(parents=True, exist_ok=True)
    make_folder(folder / _CELLS)
    words = ["s2s", "reproduce", name, *settings, "--out", str(folder)]
    command = words if seeds is None else [*words, "--seeds", str(seeds)]
    status = "stopped; all finished measurements are stored"
    with (
        print_resume_hint_on_exit(folder, command, lambda: status),
        interrupt_immediately(),
        run_lock(folder, MEASURED),
    ):
        _check_own(folder, name, settings)
        return _reproduced(reproduction, folder, seeds, print_fn, settings)


def _reproduced(
    reproduction: Reproduction[Any],
    folder: Path,
    seeds: int | None,
    print_fn: Callable[[str], None],
    settings: Sequence[str],
) -> Reproduced:
    name = reproduction.name
    print_fn(describe(reproduction))
    setup_process(_DEVICE)
    chosen = list(range(1, (seeds or reproduction.usual_seeds) + 1))
    write_atomically(folder / ASKED, json.dumps(_asked(name, settings)) + "\n")
    kept: dict[Trial, StoredResult] = {}
    elsewhere = dict[str, None]()
    for trial in reproduction.trials(chosen):
        kept[trial] = run_cached(folder / _CELLS, partial(_timed, reproduction), trial)
        by = f"{kept[trial].machine}, {kept[trial].code}"
        other = "" if kept[trial].failed or by == f"{machine_here()}, {code_version()}" else f", stored before: {by}"
        elsewhere |= {by: None} if other else {}
        print_fn(f"  {trial.key}: {kept[trial].failed or _clock(kept[trial].seconds)}{other}")
    timed, measured = dict[Trial, _Timed](), {}
    for trial, one in kept.items():
        if one.measured is not None:
            timed[trial], measured[trial] = _read_stored(reproduction, folder / _CELLS / f"{trial.key}.json", one)
    if kept and not measured:
        failures = "; ".join(dict.fromkeys(one.failed for one in kept.values()))
        raise UserError(failures, f"{name}: all measurements failed", "correct this, and repeat the command")
    device_context = select_device(_DEVICE)
    option = "" if seeds is None else f" --seeds {seeds}"
    # without the location of the data, which is specific to this machine
    option += "".join(f" {shlex.quote(each)}" for each in settings if not each.startswith("data.root="))
    result = Reproduced(
        name=name,
        finding=reproduction.finding,
        source=reproduction.source,
        method=reproduction.method,
        setting=reproduction.setting,
        expected=reproduction.seconds,
        checks=checks(reproduction, measured),
        seeds=chosen,
        command=f"s2s reproduce {shlex.quote(name)}{option}",
        seconds=sum(one.seconds for one in kept.values()),
        core_seconds=sum(one.core_seconds for one in timed.values()),
        machine=machine(device_context, Workers(number_for(device_context)), exclusive=False)
        | ({"also measured by": "; ".join(elsewhere)} if elsewhere else {}),
        failures=[
            Failure(task=trial.key, model=trial.model, reason=one.failed) for trial, one in kept.items() if one.failed
        ],
        figures=reproduction.figures(measured),
    )
    write_atomically(folder / RESULT, result.model_dump_json(indent=1) + "\n")
    return result


def _read_stored(reproduction: Reproduction[M], file: Path, stored: StoredResult) -> "tuple[_Timed, M]":
    """Read a stored measurement; one of another version of s2s may have other fields."""
    try:
        timed = _Timed(**(stored.measured or {}))
        return timed, reproduction.read_measurement(timed.measured)
    except (TypeError, ValidationError):
        what = f"has other fields than this version of s2s stores; it was measured by {stored.code}"
        raise UserError(what, str(file), "delete it, and repeat the command") from None


def _check_own(folder: Path, name: str, settings: Sequence[str]) -> None:
    """Refuse a folder with trials of another reproduction or of other settings."""
    try:
        before = json.loads(read_file(folder / ASKED))
    except FileNotFoundError:
        if not folder.exists() or (folder.is_dir() and is_unstarted(folder, _CELLS)):
            return
        raise UserError("is not the folder of a reproduction", str(folder), "give another folder with --out") from None
    except NotADirectoryError:
        raise UserError("is not a folder", str(folder), "give another folder with --out") from None
    except (ValueError, RecursionError) as error:
        before = str(error)
    if before != _asked(name, settings):
        raise UserError(
            f"contains measurements of another command: {_describe_command(before):.200}",
            where=str(folder),
            remedy="give another folder with --out, or the same settings",
        )


def _asked(name: str, settings: Sequence[str]) -> dict[str, object]:
    """Return the settings that determine the measurements."""
    return {"name": name, "settings": sorted(each for each in settings if not each.startswith("data.root="))}


def _describe_command(before: object) -> str:
    """Return the command of earlier trials, as far as it is known."""
    match before:
        case {"name": str(name), "settings": [*settings]}:
            return shlex.join(["s2s", "reproduce", name, *map(str, settings)])
        case _:
            return str(before)


@dataclass(frozen=True)
class _Timed:
    measured: object
    core_seconds: float


def _timed(reproduction: Reproduction[Any], trial: Trial) -> _Timed:
    """Run a trial and add its CPU seconds."""
    began = time.process_time()
    measured = reproduction.measure(trial)
    return _Timed(measured, time.process_time() - began)


def checks(reproduction: Reproduction[M], measured: Mapping[Trial, M]) -> list[Check]:
    """Compare the mean over the voting seeds, with its 95 % interval, with each band.

    The interval is Student's; that of a deterministic number is its value alone.
    """
    numbers, intervals = reproduction.numbers(measured), reproduction.intervals(measured)
    bands = {band.key: band for band in reproduction.bands}
    found = []
    for band in reproduction.bands:
        values = {seed: float(value) for seed, value in numbers.get(band.key, {}).items()}
        voters = [seed for seed in values if all(_passes(bands[key], numbers, seed) for key in band.valid_if)]
        interval, center = None, None
        if voters:
            found_mean = mean([values[seed] for seed in voters])
            center = found_mean.value
            if not band.validity and found_mean.low is not None and found_mean.high is not None:
                interval = found_mean.low, found_mean.high
            elif band.deterministic:
                interval = center, center
        interval = intervals.get(band.key, interval)
        found.append(Check(band=band, mean=center, interval=interval, by_seed=values, voters=voters))
    return found


def _passes(check: Band, numbers: Numbers, seed: int) -> bool:
    """Return True if a seed passes a validity check; a seed that lacks the measurement fails."""
    values = numbers.get(check.key, {})
    return seed in values and check.holds(values[seed])


def format_result(result: Reproduced) -> str:
    """Format a result."""
    lines = []
    for check in result.checks:
        where = f"band {check.band}, published {check.band.published}"
        lines.append(f"  {check.band.what}: {check}: {check.state} ({where})")
    return "\n".join([f"{result.name}: {result.verdict}", *lines])


def _clock(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


_ALL: tuple[Reproduction[Any], ...] = (
    Depth(),
    Radius(),
    ForgetBias(),
    Counting(),
    Adding(),
    CopyMemory(),
    WarmUp(),
    NormGradients(),
    Mqar(),
    Copying(),
    Induction(),
    MinGru(),
    PositionsLength(),
    NoPositions(),
    StateTracking(),
    Sensitivity(),
    Agreement(),
    AttentionScores(),
    ReverseSource(),
    Length(),
    Tiny(),
    Law(),
)

REPRODUCTIONS: dict[str, Reproduction[Any]] = {each.name: each for each in _ALL}
"""Reproductions by name, in the order of the list."""
