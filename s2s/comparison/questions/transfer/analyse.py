"""Analyse the gain of fine-tuning over equally long trainings from scratch or from unrelated pairs."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from s2s.comparison.reporting import Column, Interval, axis, figure, gates_table, series, table, verdict
from s2s.comparison.results import Figure, Table, Verdict
from s2s.comparison.spec import Analysis, BySeed, Comparison, Measured, Trials, by_model
from s2s.comparison.translation import corpus_score
from s2s.evaluation.differences import LEVEL, Difference, Pairwise, over_seeds_and_sentences
from s2s.evaluation.gates import (
    Assessment,
    Gate,
    beside,
    best_other,
    converged,
    failed,
    slope_per_doubling,
    translates,
    uses_its_source,
)
from s2s.evaluation.inference import Counts, Estimate, draws, holm, mean

SHARES = (1, 10)  # per cent of the pairs
MARGIN = 0.05
"""Nats per token that nobody cares about: as little as a doubling of the tokens may still bring."""
_SHOWN = 10  # of them: the table's cell
ARMS = {"scratch": "from scratch", "unrelated": "after unrelated pairs", "real": "after the other direction"}
_BEFORE = [arm for arm in ARMS if arm != "real"]
_TOTALS = 0.03

# by share and model
Runs = Mapping[int, Mapping[str, BySeed]]


@dataclass(frozen=True)
class Gain:
    """Gain of a candidate at one share of the pairs."""

    runs: BySeed
    counts: dict[str, list[Counts]]  # by arm: nats gained over it, and tokens, in each sentence and for each seed
    over: dict[str, Difference | None]  # by arm: what is gained over it, in nats per token
    p: dict[str, float]  # likewise; corrected for all models, shares and arms (Holm 1979)


Gains = dict[str, dict[int, Gain]]


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Compare gains, share by share."""
    trained = {trial: found for trial, found in measured.items() if "arms" in found}
    runs = {share: by_model(comparison, trained, f"equal-{share}") for share in SHARES}
    gains = corrected({m: {s: gain_of(own[m]) for s, own in runs.items() if m in own} for m in comparison.models})
    seeds = sorted({trial.seed or 0 for trial in measured})
    others = [trial for trial in sorted(measured, key=lambda trial: measured[trial]["share"]) if trial not in trained]
    untrained = {trial.model: _untrained(trial.model, measured[trial]) for trial in others}
    if not gains:
        return Analysis(list(untrained.values()), seeds=seeds)
    return Analysis(
        findings=[_verdict(m, gains) if m in gains else untrained.get(m) for m in comparison.models],
        figures=[_arms_of(gains, what) for what in ("loss", "bleu")] + [_curve(gains, share) for share in SHARES],
        tables=[
            _gains(gains),
            gates_table(
                "the arms before a gain is compared",
                {(row["model"], row["share"]): gates(row["gain"]) for row in _rows(gains)},
                ("model", "pairs (%)", "name"),
            ),
            _every(gains),
        ],
        seeds=seeds,
    )


def loss_of(run: Measured, arm: str, rate: str | None = None) -> float:
    """The best validation loss of an arm, in nats per token, of all its rates or of one."""
    curves = run["arms"][arm]["curves"]
    return min(min(curve) for name, curve in curves.items() if rate in (None, name))


def last_loss_of(run: Measured, arm: str) -> float:
    """Validation loss of an arm at the last validation, at its best rate, in nats per token."""
    return min(run["arms"][arm]["curves"].values(), key=min)[-1]


def bleu_of(run: Measured, arm: str) -> float:
    """The BLEU of an arm's best weights."""
    return corpus_score("bleu", np.array(run["arms"][arm]["counts"]))


def _per_token(sums: Counts) -> np.ndarray:
    return sums[:, 0] / sums[:, 1]


def gain_of(runs: BySeed) -> Gain:
    """Gain over the other arms, paired by seed and sentence."""
    counts: dict[str, list[Counts]] = {arm: [] for arm in _BEFORE}
    for run in runs.values():
        real = np.array(run["arms"]["real"]["losses"])
        for arm in _BEFORE:
            gained = np.array(run["arms"][arm]["losses"]) - real
            counts[arm].append(np.stack([gained, np.array(run["tokens"], dtype=float)], axis=1))
    nothing = [counts[_BEFORE[0]][0] * [0.0, 1.0]] * len(runs)
    over = {arm: _between(nothing, own) for arm, own in counts.items()}
    return Gain(runs, counts, over, {})


def _between(first: list[Counts], second: list[Counts]) -> Difference | None:
    return over_seeds_and_sentences(first, second, _per_token, draws(len(first[0])))


def corrected(gains: Gains) -> Gains:
    """The gains with their p-values, corrected for how many there are; without models of which nothing is known."""
    known = {
        (model, share, arm): each.p()
        for model, own in gains.items()
        for share, gain in own.items()
        for arm, each in gain.over.items()
        if each
    }
    after = dict(zip(known, holm(list(known.values())), strict=True))
    found: Gains = {model: {} for model, own in gains.items() if own}
    for model, share in ((model, share) for model, own in gains.items() for share in own):
        p = {arm: after[model, share, arm] for arm in _BEFORE if (model, share, arm) in after}
        found[model][share] = replace(gains[model][share], p=p)
    return found


def gates(gain: Gain) -> list[Gate]:
    """Validity checks of a candidate's arms."""
    runs = list(gain.runs.values())
    worth = [run["arms"]["real"]["before"]["source_use"] for run in runs if run["arms"]["real"]["before"]["source_use"]]
    closed = [_equal(runs)]
    if worth:
        means = (statistics.mean(each[key] for each in worth) for key in ("right", "exchanged"))
        learned = uses_its_source(*means)
        closed.append(Gate(learned.name, learned.passed, f"before the few pairs, {learned.sentence}"))
    best = max(statistics.mean(bleu_of(run, arm) for run in runs) for arm in ARMS)
    closed.append(translates(best, "with the best arm"))
    return [*closed, *(_over(arm, gain) for arm in ARMS)]


def _equal(runs: list[Measured]) -> Gate:
    updates = {its["before"]["updates"] + its["updates"][-1] for run in runs for its in run["arms"].values()}
    tokens = [
        statistics.mean(run["arms"][arm]["before"]["tokens"] + run["arms"][arm]["tokens"] for run in runs)
        for arm in ARMS
    ]
    apart = max(tokens) / min(tokens) - 1
    said = f"arms learned from {min(tokens):,.0f} to {max(tokens):,.0f} target tokens in {min(updates)} updates"
    passed = len(updates) == 1 and apart <= _TOTALS
    return Gate("equal totals", passed, f"{said} (≤ {100 * _TOTALS:g} % apart wanted)")


def _over(arm: str, gain: Gain) -> Gate:
    """Validity check: the arm has converged.

    An arm that is not compared may still fall if another doubling would leave it behind the one that is: a straight
    line against the logarithm of tokens falls lower than trainings do.
    """
    runs, other = list(gain.runs.values()), control(gain)
    curve = np.mean([min(run["arms"][arm]["curves"].values(), key=min) for run in runs], axis=0)
    # without the first look, which is before the first update
    updates, losses = runs[0]["arms"][arm]["updates"][1:], curve[1:].tolist()
    gate = converged(updates, losses)
    said = f"{ARMS[arm]}, {gate.sentence}"
    slope, least = slope_per_doubling(updates, losses), statistics.mean(loss_of(run, other) for run in runs)
    if gate.passed or slope is None or arm in ("real", other) or losses[-1] + slope <= least:
        return Gate(gate.name, gate.passed, said)
    return Gate(gate.name, True, f"{said}: to {losses[-1] + slope:.2f} with the next, not to {least:.2f} {ARMS[other]}")


def _verdict(model: str, gains: Gains) -> Verdict:
    own = gains[model]
    share = _SHOWN if _SHOWN in own else min(own)
    gain = own[share]
    there = {name: each[share] for name, each in gains.items() if share in each}
    checks = {name: gates(each) for name, each in there.items()}
    other = best_other(model, {name: _mean_gain(each, control(each)) for name, each in there.items()}, checks)
    gained = {name: each.counts[control(each)] for name, each in there.items()}
    pairs = Pairwise.of(there, lambda a, b: _between(gained[a], gained[b]))
    test = "t-test over seeds and sentences, Holm"
    found = beside(model, other, pairs, checks, "nats gained", MARGIN, 2, test=test)
    closed = tuple(gate.sentence for gate in failed(checks[model]))
    if closed and not other:
        found = replace(found, reasons=closed)
    facts: dict[str, float | str] = {}
    for arm, over in () if closed else (("unrelated", "unrelated pairs"), ("scratch", "the few pairs alone")):
        facts[f"gain over {over} (nats)"] = round(_mean_gain(gain, arm), 2)
        if arm in gain.p:
            facts[f"p of the gain over {over}"] = float(f"{gain.p[arm]:.2g}")
    kept = _variations(model, other, gains, share) if found.decided else {}
    value = None if closed else _estimate(gain, control(gain))
    real = [run["arms"]["real"] for run in gain.runs.values()]
    tokens = statistics.mean(its["before"]["tokens"] + its["tokens"] for its in real)
    found = replace(found, facts=facts, variations=kept)
    return verdict("fine-tuning", model, value, "nats per token", _quantity(share), found, "loss", tokens)


def _quantity(share: int) -> str:
    return f"gain in validation loss over the better of as long a training without it, with {share} % of the pairs"


def _untrained(model: str, found: Measured) -> Verdict:
    """The cell of a model that was not trained, because it would still learn with all pairs."""
    reason = f"its loss still falls by {-found['slope']:.2f} nats with each doubling of the tokens, with all pairs"
    assessed = Assessment("still learning", reasons=(reason,), facts={"updates with all pairs": found["updates"]})
    return verdict("fine-tuning", model, None, "nats per token", _quantity(found["share"]), assessed, "loss")


def control(gain: Gain) -> str:
    """The arm that earlier training has to beat: the one of the other two that ends with the lower loss.

    Unrelated pairs may help, since they teach both languages, and they may harm, since they teach that sources say
    nothing; a gain over the worse of the two would be the harm of a control.
    """
    return min(_BEFORE, key=lambda arm: _mean_gain(gain, arm))


def _mean_gain(gain: Gain, arm: str, rate: str | None = None) -> float:
    return statistics.mean(loss_of(run, arm, rate) - loss_of(run, "real", rate) for run in gain.runs.values())


def _estimate(gain: Gain, arm: str) -> Estimate:
    over = gain.over[arm]
    return over.estimate() if over else Estimate(_mean_gain(gain, arm), None, None)


def _variations(model: str, other: str, gains: Gains, share: int) -> dict[str, bool]:
    """Recompute the difference under other choices, to see whether its sign stays."""

    def _more(arm: str | None, at: int, chosen: bool = False) -> bool:
        values = []
        for name in (model, other):
            gain = gains[name][at]
            rate = f"{next(iter(gain.runs.values()))['rate']:g}" if chosen else None
            values.append(_mean_gain(gain, arm or control(gain), rate))
        return values[0] > values[1]

    sign, kept = _more(None, share), {}
    for at in SHARES:
        if at != share and all(at in gains[name] for name in (model, other)):
            kept[f"{at} % of the pairs"] = _more(None, at) == sign
    kept["beside unrelated pairs"] = _more("unrelated", share) == sign
    kept["beside the few pairs alone"] = _more("scratch", share) == sign
    if all(
        len(run["arms"]["real"]["curves"]) > 1 for name in (model, other) for run in gains[name][share].runs.values()
    ):
        kept["one rate for all arms"] = _more(None, share, chosen=True) == sign
    return kept


def _arms_of(gains: Gains, what: str) -> Figure:
    """Figure of all arms."""
    of, words, y = {
        "loss": (loss_of, "Validation loss", axis("validation loss", "nats per token")),
        "bleu": (bleu_of, "BLEU", axis("BLEU, greedy", "%")),
    }[what]
    shown = [
        series(
            f"{model}, {share} %",
            model,
            list(ARMS.values()),
            [mean([of(run, arm) for run in gain.runs.values()]) for arm in ARMS],
            intervals=len(gain.runs) > 2,
        )
        for model, own in gains.items()
        for share, gain in own.items()
    ]
    caption = (
        "All arms have equal updates and tokens in all, and the best of equally many looks counts. Intervals (95 %): "
        "Student's over seeds, from three seeds on."
    )
    return figure(what, f"{words} with few pairs, by what was learned before", (axis("arm"), y), shown, caption, "bars")


def _curve(gains: Gains, share: int) -> Figure:
    """Validation loss while learning from few pairs, of each model's first seed, at its best rate."""
    shown = []
    for model, own in gains.items():
        for run in list(own[share].runs.values())[:1] if share in own else []:
            for arm, called in ARMS.items():
                its = run["arms"][arm]
                x = [its["before"]["updates"] + update for update in its["updates"]]
                shown.append(series(f"{model}, {called}", model, x, min(its["curves"].values(), key=min)))
    axes = (axis("updates, those before included"), axis("validation loss", "nats per token"))
    title = f"Validation loss while learning from {share} % of the pairs, first seed"
    return figure(f"curve-{share}", title, axes, shown)


def _rows(gains: Gains) -> list[Measured]:
    return [{"model": m, "share": s, "gain": gain} for m, own in gains.items() for s, gain in own.items()]


def _gains(gains: Gains) -> Table:
    rows = [{**row, "arm": arm, "own": row["gain"].over[arm]} for row in _rows(gains) for arm in _BEFORE]
    level = LEVEL / max(1, sum(row["own"] is not None for row in rows))
    columns = [
        Column("model"),
        Column("pairs (%)", "share"),
        Column("seeds", lambda row: len(row["gain"].runs)),
        Column("gain over", lambda row: ARMS[row["arm"]]),
        Interval("loss (nats per token)", lambda row: _estimate(row["gain"], row["arm"]), 3),
        Column("p (Holm)", lambda row: row["gain"].p.get(row["arm"]), 4),
        Column("seen in 80 % (nats per token)", lambda row: row["own"] and row["own"].detectable(level=level), 3),
        Column("at the last look (nats per token)", lambda row: -_by(row, last_loss_of), 3),
        Column("BLEU", lambda row: _by(row, bleu_of), 2),
    ]
    return table("gains", "What learning the other direction before gains", columns, rows)


def _by(row: Measured, of: Callable[[Measured, str], float]) -> float:
    """Mean difference of a figure between the real arm and a row's arm."""
    return statistics.mean(of(run, "real") - of(run, row["arm"]) for run in row["gain"].runs.values())


def _every(gains: Gains) -> Table:
    columns = [
        Column("model"),
        Column("pairs (%)", "share"),
        Column("seed"),
        Column("arm", lambda row: ARMS[row["arm"]]),
        Column("pairs"),
        Column("updates before", lambda row: row["its"]["before"]["updates"]),
        Column("updates", lambda row: row["its"]["updates"][-1]),
        Column("target tokens", lambda row: row["its"]["before"]["tokens"] + row["its"]["tokens"]),
        Column("rate", lambda row: float(min(row["its"]["curves"], key=lambda rate: min(row["its"]["curves"][rate])))),
        Column("best after", lambda row: _best_after(row["its"])),
        Column("validation loss (nats per token)", lambda row: loss_of(row, row["arm"]), 4),
        Column("BLEU, greedy", lambda row: bleu_of(row, row["arm"]), 2),
        Column("training and looks (s)", lambda row: row["its"]["seconds"], 1),
        Column("training before (s)", lambda row: row["its"]["before"]["seconds"], 1),
    ]
    rows = [
        {**run, "model": row["model"], "seed": seed, "arm": arm, "its": run["arms"][arm]}
        for row in _rows(gains)
        for seed, run in row["gain"].runs.items()
        for arm in ARMS
    ]
    return table("arms", "Every training", columns, rows)


def _best_after(its: Measured) -> int:
    curve = min(its["curves"].values(), key=min)
    return its["updates"][int(np.argmin(curve))]
