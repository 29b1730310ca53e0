"""What the kept measurement says, as tables of docs/speed.md."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import DECODING, TRAINING
from s2s.evaluation.inference import Estimate, mean

Measured = dict[str, Any]
CLOCKS = ("wall", "processor")


def speeds(measured: Measured, name: str, clock: str = "wall") -> list[float]:
    """Target tokens a second of a contestant, round by round, on a clock."""
    return [one[name]["tokens"] / one[name][clock] for one in measured["rounds"]]


def ratio(measured: Measured, first: str, second: str, clock: str = "wall") -> Estimate:
    """How many times as fast as the second the first is: the geometric mean over rounds, with Student's interval."""
    both = zip(*(speeds(measured, name, clock) for name in (first, second)), strict=True)
    return _over_rounds([one / other for one, other in both])


def _over_rounds(values: Sequence[float]) -> Estimate:
    """Geometric mean with Student's interval of the logarithms."""
    logs = mean([math.log(value) for value in values])
    ends = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Estimate(math.exp(logs.value), *ends)


def kept_tables(results: Path) -> str:
    """Return the tables of the kept measurements: with bf16, and of a processor without it."""
    names = ("peers.json", "peers-fp32.json")
    kept = [results / name for name in names if (results / name).exists()]
    return "\n".join(table(json.loads(path.read_text(encoding="utf-8"))) for path in kept)


def table(found: Measured) -> str:
    """Both tables, with what they were measured on and who is missing."""
    return "\n".join([*_training(found["training"]), "", *_decoding(found["decoding"]), "", *_about(found), ""])


def _training(measured: Measured) -> list[str]:
    base = _in_bf16(measured, "s2s, bf16")
    columns = ["training", "precision", "tokens/s", "real of all positions"]
    rows = _header([*columns, *_heads("s2s in that precision"), *(_heads("s2s in bf16") if base else [])])
    for one in TRAINING:
        if str(one) in measured["rounds"][0]:
            sums = {key: sum(turn[str(one)][key] for turn in measured["rounds"]) for key in ("tokens", "positions")}
            cells = _ratios(measured, f"s2s, {one.form}", str(one))
            cells += _ratios(measured, base, str(one)) if base else []
            share = f"{100 * sums['tokens'] / sums['positions']:.1f} %"
            rows.append(_row([one.name, one.form, _speed(measured, str(one)), share, *cells]))
    return [*rows, *_missing(measured)]


def _decoding(measured: Measured) -> list[str]:
    bases = [base for base in ("s2s, torch", _in_bf16(measured, "s2s, torch in bf16")) if base]
    columns = ["decoding", "by", "tokens/s", "sentences/s", "pieces a sentence", "translations as s2s writes them"]
    rows = _header([*columns, *(head for base in bases for head in _heads(base.replace(", ", " with ")))])
    for one in DECODING:
        if str(one) in measured["rounds"][0]:
            turns = [turn[str(one)] for turn in measured["rounds"]]
            sentences = _over_rounds([turn["sentences"] / turn["wall"] for turn in turns])
            length = f"{turns[0]['tokens'] / turns[0]['sentences']:.1f}"
            same = f"{turns[0]['same']:,} of {turns[0]['sentences']:,}"
            cells = [_speed(measured, str(one)), f"{sentences.value:,.0f}", length, same]
            for base in bases:
                cells += _ratios(measured, base, str(one))
            rows.append(_row([one.name, one.form, *cells]))
    return [*rows, *_missing(measured)]


def _in_bf16(measured: Measured, name: str) -> str | None:
    """Return the name of a measurement in bf16, or None where the processor has no bf16."""
    return name if name in measured["rounds"][0] else None


def _heads(base: str) -> list[str]:
    return [f"{base}: wall", "processor"]


def _header(columns: Sequence[str]) -> list[str]:
    return [_row(columns), f"|{'---|' * len(columns)}"]


def _ratios(measured: Measured, first: str, second: str) -> list[str]:
    if first == second or first not in measured["rounds"][0]:
        return ["", ""]
    found = (ratio(measured, first, second, clock) for clock in CLOCKS)
    return [f"{_rounded(each.value)}×{_interval(each)}" for each in found]


def _speed(measured: Measured, name: str) -> str:
    return f"{_over_rounds(speeds(measured, name)).value:,.0f}"


def _interval(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    return f" ({_rounded(found.low)}–{_rounded(found.high)})"


def _rounded(value: float) -> str:
    """Three figures."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _missing(measured: Measured) -> list[str]:
    said = [f"Not measured: {name}: {why.splitlines()[-1]}" for name, why in measured["missing"].items()]
    return ["", *said] if said else []


def _about(found: Measured) -> list[str]:
    training, decoding = found["training"], found["decoding"]
    installed = (
        f"{name} {version}" for each in found["environments"].values() for name, version in sorted(each.items())
    )
    variables = found["settings"].get("instructions", {})
    limited = f", {' '.join(f'{name}={value}' for name, value in variables.items())}" if variables else ""
    return [
        f"Left out: {'; '.join(f'{name}: {why}' for name, why in found['left_out'].items())}.",
        f"{len(training['rounds'])} rounds of {training['updates']} updates each in training, "
        f"{len(decoding['rounds'])} of {decoding['rounds'][0]['s2s, torch']['sentences']:,} sentences in decoding; "
        "in brackets 95 % intervals.",
        f"Machine: {found['machine']}{limited}, {found['threads']} threads, torch {found['torch']}, {found['date']}, "
        f"commit {found['commit'][:7]}; {', '.join(dict.fromkeys(installed))}.",
    ]
