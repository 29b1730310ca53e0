"""Analyse fine-tuning: losses, and gains over equally long trainings from scratch or after unrelated pairs."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from s2s.comparison.claims import traits_of
from s2s.comparison.paired_tests import WITHOUT_A_SEED
from s2s.comparison.questions.transfer.claims import learns_best
from s2s.comparison.reporting import Column, Interval, axis, figure, first_run, gates_table, series, table, verdict
from s2s.comparison.results import Claim, Figure, Table, Verdict
from s2s.comparison.spec import Analysis, Comparison, Trial, by_model
from s2s.comparison.translation import corpus_score
from s2s.evaluation.differences import LEVEL, Difference, Pairwise, over_seeds_and_sentences
from s2s.evaluation.gates import (
    Assessment,
    Gate,
    assess_pair,
    best_other,
    converged,
    failed,
    slope_per_doubling,
    translates,
    uses_its_source,
)
from s2s.evaluation.inference import Counts, Estimate, draws, holm, mean
from s2s.tasks.source_use import SourceUse

SHARES = (1, 10)
"""Percentages of the fine-tuning pairs that are used."""
MARGIN = 0.05
"""Equivalence margin in nats per token: the limit of the gain per doubling of the tokens in a converged training."""
ARMS = {"scratch": "from scratch", "unrelated": "after unrelated pairs", "real": "after the other direction"}
"""Titles of the conditions, by their names in measurements."""
_CONTROLS = ("scratch", "unrelated")
# share of the pairs in the table of verdicts
_SHOWN = 10
# largest accepted relative difference of the target tokens of the conditions
_TOKENS = 0.03


@dataclass(frozen=True)
class Pretraining:
    """Training before the fine-tuning; zeros for a condition without one."""

    updates: int = 0
    tokens: int = 0  # target tokens
    seconds: float = 0.0
    source_use: SourceUse | None = None


@dataclass(frozen=True)
class Arm:
    """Measurement of a condition: trainings on the few pairs, one for each learning rate."""

    updates: list[int]  # optimizer steps before each validation
    tokens: int  # target tokens
    curves: dict[str, list[float]]  # validation losses (nats per token), by learning rate
    losses: list[float]  # of each validation sentence at the best validation, summed over its tokens
    counts: list[list[int]]  # sacreBLEU's statistics of greedy translations with the best weights
    seconds: float
    before: Pretraining

    @property
    def curve(self) -> list[float]:
        """Validation losses at the best learning rate."""
        return min(self.curves.values(), key=min)

    @property
    def bleu(self) -> float:
        """BLEU of the best weights."""
        return corpus_score("bleu", np.array(self.counts))

    def loss(self, rate: str = "") -> float:
        """Return the best validation loss, of all learning rates or of one."""
        return min(min(curve) for name, curve in self.curves.items() if rate in ("", name))


@dataclass(frozen=True)
class TransferRun:
    """Measurement of a trained candidate: three conditions with the same number of updates."""

    share: int  # percentage of the fine-tuning pairs
    pairs: int  # number of fine-tuning pairs
    tokens: list[int]  # target tokens of each validation sentence
    rate: float  # learning rate of the candidate
    arms: dict[str, Arm]  # by the keys of `ARMS`


@dataclass(frozen=True)
class Untrained:
    """Measurement of a candidate that is not fine-tuned because its training on all pairs has not converged."""

    share: int
    slope: float  # change of the validation loss per doubling of the tokens
    updates: int  # of the training with all pairs


TransferRuns = Mapping[int, TransferRun]


@dataclass(frozen=True)
class Gain:
    """Gain of a candidate over each control, at one share of the pairs."""

    runs: TransferRuns
    counts: dict[str, list[Counts]]  # by control: nats gained, and tokens, of each sentence; for each seed
    over: dict[str, Difference | None]  # by control: nats gained per token
    p: dict[str, float]  # by control: corrected together for all models, shares and controls

    def mean(self, control: str = "", rate: str = "") -> float:
        """Return the mean gain over seeds, in nats per token.

        Args:
            control: The other condition; the better one if empty.
            rate: Learning rate; the best one of each condition if empty.
        """
        arm = control or self.control
        return statistics.mean(run.arms[arm].loss(rate) - run.arms["real"].loss(rate) for run in self.runs.values())

    @property
    def control(self) -> str:
        """The control with the lower loss.

        Unrelated pairs may help, because they teach both languages, or harm, because they teach the model to ignore the
        source. A gain over the worse of the two could be the harm of a control.
        """
        return min(_CONTROLS, key=self.mean)

    def loss(self, arm: str = "real", rate: str = "") -> float:
        """Return the mean validation loss of a condition over seeds, in nats per token."""
        return statistics.mean(run.arms[arm].loss(rate) for run in self.runs.values())

    @property
    def bleu(self) -> Estimate:
        """BLEU after pre-training on the other direction."""
        return mean([run.arms["real"].bleu for run in self.runs.values()])

    @property
    def after(self) -> list[Counts]:
        """Negative loss after pre-training on the other direction, and tokens, of each sentence; for each seed."""
        own = ((run.arms["real"].losses, run.tokens) for run in self.runs.values())
        return [np.stack([-np.array(losses), np.array(tokens, dtype=float)], axis=1) for losses, tokens in own]

    def estimate(self, control: str) -> Estimate:
        """Return the gain over a control, with its interval if there are several seeds."""
        over = self.over[control]
        return over.estimate() if over else Estimate(self.mean(control), None, None)


Gains = dict[str, dict[int, Gain]]
"""Gains by candidate and share."""


def analyse(comparison: Comparison, measured: Mapping[Trial, TransferRun | Untrained]) -> Analysis:
    """Compare the candidates' losses after fine-tuning."""
    trained = {trial: run for trial, run in measured.items() if isinstance(run, TransferRun)}
    gains: Gains = {}
    for share in SHARES:
        for model, runs in by_model(comparison, trained, f"equal-{share}").items():
            gains.setdefault(model, {})[share] = gain_of(runs)
    gains = _corrected({model: gains[model] for model in comparison.models if model in gains})
    seeds = sorted({trial.seed or 0 for trial in measured})
    # the largest share counts
    untrained = sorted(
        ((run.share, trial.model, run) for trial, run in measured.items() if isinstance(run, Untrained)),
        key=lambda item: item[0],
    )
    others = {model: _untrained_verdict(model, run) for _, model, run in untrained}
    if not gains:
        return Analysis(list(others.values()), seeds=seeds)
    checks = {(model, share): gates(gain) for model, share, gain in _iterate_gains(gains)}
    return Analysis(
        findings=[_verdict(m, gains, checks) if m in gains else others.get(m) for m in comparison.models],
        figures=[
            _arms_figure(gains, "loss", "Validation loss", "validation loss", "nats per token", lambda arm: arm.loss()),
            _arms_figure(gains, "bleu", "BLEU", "BLEU, greedy", "%", lambda arm: arm.bleu),
            *(_curves(gains, share) for share in SHARES),
        ],
        tables=[
            _after_table(gains),
            _gains_table(gains),
            gates_table("the conditions", checks, ("model", "pairs (%)", "name")),
            _arms_table(gains),
        ],
        seeds=seeds,
        claims=[_claim(comparison, gains, checks)],
    )


def _claim(comparison: Comparison, gains: Gains, checks: Mapping[tuple[str, int], Sequence[Gate]]) -> Claim | None:
    shares = {share for own in gains.values() for share in own}
    share = _SHOWN if _SHOWN in shares else min(shares)
    there = {model: own[share] for model, own in gains.items() if share in own}
    losses = {model: mean([run.arms["real"].loss() for run in gain.runs.values()]) for model, gain in there.items()}
    pairs = Pairwise.of(there, lambda a, b: _compare(there[a].after, there[b].after))
    own = {model: checks[model, share] for model in there}
    alone = {model: gain.loss("scratch") for model, gain in there.items()}
    return learns_best(
        traits_of(comparison), losses, alone, pairs, own, lambda a, b: _variations(gains[a], gains[b], share), MARGIN
    )


def _iterate_gains(gains: Gains) -> Iterator[tuple[str, int, Gain]]:
    return ((model, share, gain) for model, own in gains.items() for share, gain in own.items())


def gain_of(runs: TransferRuns) -> Gain:
    """Return the gain over each control, paired by seed and sentence; its p-values are not known yet."""
    counts: dict[str, list[Counts]] = {arm: [] for arm in _CONTROLS}
    for run in runs.values():
        for arm in _CONTROLS:
            gained = np.array(run.arms[arm].losses) - np.array(run.arms["real"].losses)
            counts[arm].append(np.stack([gained, np.array(run.tokens, dtype=float)], axis=1))
    nothing = [counts["scratch"][0] * [0.0, 1.0]] * len(runs)
    return Gain(runs, counts, {arm: _compare(nothing, own) for arm, own in counts.items()}, {})


def _compare(first: list[Counts], second: list[Counts]) -> Difference | None:
    return over_seeds_and_sentences(first, second, lambda sums: sums[:, 0] / sums[:, 1], draws(len(first[0])))


def _corrected(gains: Gains) -> Gains:
    """Return the gains with p-values, Holm-corrected together."""
    known = {
        (model, share, arm): over.p()
        for model, share, gain in _iterate_gains(gains)
        for arm, over in gain.over.items()
        if over is not None
    }
    p = dict(zip(known, holm(list(known.values())), strict=True))
    return {
        model: {
            share: replace(gain, p={arm: p[model, share, arm] for arm in _CONTROLS if (model, share, arm) in p})
            for share, gain in own.items()
        }
        for model, own in gains.items()
    }


def gates(gain: Gain) -> list[Gate]:
    """Return the validity checks of a candidate's conditions."""
    runs = list(gain.runs.values())
    checks = [_equal_totals(runs)]
    if used := [use for run in runs if (use := run.arms["real"].before.source_use)]:
        right, exchanged = (statistics.mean(getattr(each, key) for each in used) for key in ("right", "exchanged"))
        learned = uses_its_source(right, exchanged)
        checks.append(replace(learned, sentence=f"after pre-training, {learned.sentence}"))
    best = max(statistics.mean(run.arms[arm].bleu for run in runs) for arm in ARMS)
    return [*checks, translates(best, "in the best condition"), *(_arm_converged(arm, gain) for arm in ARMS)]


def _equal_totals(runs: list[TransferRun]) -> Gate:
    """Check that all conditions have equal updates and nearly equal target tokens."""
    updates = {arm.before.updates + arm.updates[-1] for run in runs for arm in run.arms.values()}
    tokens = [statistics.mean(run.arms[arm].before.tokens + run.arms[arm].tokens for run in runs) for arm in ARMS]
    said = f"conditions have {min(tokens):,.0f} to {max(tokens):,.0f} target tokens in {min(updates)} updates"
    passed = len(updates) == 1 and max(tokens) / min(tokens) - 1 <= _TOKENS
    return Gate("equal totals", passed, f"{said} (a difference of ≤ {100 * _TOKENS:g} % required)")


def _arm_converged(arm: str, gain: Gain) -> Gate:
    """Check that a condition has converged.

    The worse control is exempt, unless another doubling of the tokens would bring its loss down to that of the better
    one. The loss is extrapolated linearly in the logarithm of the tokens; losses of real trainings fall less.
    """
    runs, control = list(gain.runs.values()), gain.control
    # without the first validation, which is before the first update
    updates = runs[0].arms[arm].updates[1:]
    losses = np.mean([run.arms[arm].curve for run in runs], axis=0)[1:].tolist()
    gate = converged(updates, losses)
    said = f"{ARMS[arm]}, {gate.sentence}"
    slope, least = slope_per_doubling(updates, losses), statistics.mean(run.arms[control].loss() for run in runs)
    if gate.passed or slope is None or arm in ("real", control) or losses[-1] + slope <= least:
        return Gate(gate.name, gate.passed, said)
    said += f"; the next would lower it to {losses[-1] + slope:.2f}, which is above {least:.2f} {ARMS[control]}"
    return Gate(gate.name, True, said)


def _quantity(share: int) -> str:
    return f"validation loss after fine-tuning on {share} % of the pairs, pre-trained on the other direction"


def worth(own: Mapping[int, Gain], share: int) -> float | str:
    """Return the number of pairs with which training from scratch reaches the loss after fine-tuning.

    Between two shares of the pairs, the loss from scratch is interpolated linearly in the logarithm of their number.

    Args:
        own: Gains of one candidate by share.
        share: Share of the pairs in the fine-tuning.

    Returns:
        The number of pairs, or a bound if it lies beyond the shares that were measured.
    """
    scratch = sorted((first_run(gain.runs).pairs, gain.loss("scratch")) for gain in own.values())
    pairs, losses = np.array(scratch).T
    reached, after = np.flatnonzero(losses <= own[share].loss()), own[share].loss()
    if not len(reached):
        return f"more than {pairs[-1]:,.0f}"
    if reached[0] == 0:
        return f"at most {pairs[0]:,.0f}"
    around = slice(reached[0] - 1, reached[0] + 1)
    return float(f"{np.exp(np.interp(-after, -losses[around], np.log(pairs[around]))):.2g}")


def _verdict(model: str, gains: Gains, checks: Mapping[tuple[str, int], list[Gate]]) -> Verdict:
    own = gains[model]
    share = _SHOWN if _SHOWN in own else min(own)
    gain = own[share]
    there = {name: each[share] for name, each in gains.items() if share in each}
    closed = {name: checks[name, share] for name in there}
    other = best_other(model, {name: -each.loss() for name, each in there.items()}, closed)
    after = {name: each.after for name, each in there.items()}
    pairs = Pairwise.of(there, lambda a, b: _compare(after[a], after[b]))
    test = "t-test over seeds and sentences, Holm"
    found = assess_pair(model, other, pairs, closed, "nats", MARGIN, 2, test=test)
    if found.difference:
        # tested as a score (higher is better), shown as a loss
        found = replace(found, difference=_negative(found.difference))
    reasons = tuple(gate.sentence for gate in failed(closed[model]))
    facts: dict[str, float | str] = {"BLEU after fine-tuning": round(gain.bleu.value, 1)}
    if not reasons:
        facts["pairs without pre-training that are as good"] = worth(own, share)
        for arm, over in (("unrelated", "unrelated pairs"), ("scratch", "training from scratch")):
            facts[f"gain over {over} (nats)"] = round(gain.mean(arm), 2)
            if arm in gain.p:
                facts[f"p of the gain over {over}"] = float(f"{gain.p[arm]:.2g}")
    elif not other:
        found = replace(found, reasons=reasons)
    kept = _variations(gains[model], gains[other], share) if found.decided else {}
    value = mean([run.arms["real"].loss() for run in gain.runs.values()])
    tokens = statistics.mean(run.arms["real"].before.tokens + run.arms["real"].tokens for run in gain.runs.values())
    found = replace(found, facts=facts, variations=kept)
    return verdict("fine-tuning", model, value, "nats per token", _quantity(share), found, "loss", tokens)


def _untrained_verdict(model: str, run: Untrained) -> Verdict:
    reason = f"its loss still falls by {-run.slope:.2f} nats per doubling of the tokens, with all pairs"
    found = Assessment("still learning", reasons=(reason,), facts={"updates with all pairs": run.updates})
    return verdict("fine-tuning", model, None, "nats per token", _quantity(run.share), found, "loss")


def _negative(difference: Estimate) -> Estimate:
    value, low, high = difference.value, difference.low, difference.high
    return Estimate(-value, None if high is None else -high, None if low is None else -low)


def _variations(own: Mapping[int, Gain], other: Mapping[int, Gain], share: int) -> dict[str, bool]:
    """Return whether the difference keeps its sign under other choices."""
    both = (own[share], other[share])

    def _has_lower_loss(gains: tuple[Gain, Gain]) -> bool:
        return gains[0].loss() < gains[1].loss()

    sign, kept = _has_lower_loss(both), {}
    for at in SHARES:
        if at != share and at in own and at in other:
            kept[f"{at} % of the pairs"] = _has_lower_loss((own[at], other[at])) == sign
    kept["BLEU"] = (both[0].bleu.value > both[1].bleu.value) == sign
    if all(len(run.arms["real"].curves) > 1 for gain in both for run in gain.runs.values()):
        one, two = (gain.loss(rate=f"{first_run(gain.runs).rate:g}") for gain in both)
        kept["the chosen rate alone"] = (one < two) == sign
    seeds = [seed for seed in both[0].runs if seed in both[1].runs]
    if len(seeds) > 2:
        kept[WITHOUT_A_SEED] = all(
            _has_lower_loss((_without(both[0], seed), _without(both[1], seed))) == sign for seed in seeds
        )
    return kept


def _without(gain: Gain, seed: int) -> Gain:
    return replace(gain, runs={each: run for each, run in gain.runs.items() if each != seed})


def _arms_figure(gains: Gains, name: str, words: str, label: str, unit: str, value: Callable[[Arm], float]) -> Figure:
    shown = [
        series(
            f"{model}, {share} %",
            model,
            list(ARMS.values()),
            [mean([value(run.arms[arm]) for run in gain.runs.values()]) for arm in ARMS],
            intervals=len(gain.runs) > 2,
        )
        for model, share, gain in _iterate_gains(gains)
    ]
    caption = (
        "All conditions have the same number of updates, tokens and validations; the best validation counts. Intervals "
        "(95 %): Student's over seeds, from three seeds on."
    )
    title = f"{words} with few pairs, by pre-training"
    return figure(name, title, (axis("condition"), axis(label, unit)), shown, caption, "bars")


def _curves(gains: Gains, share: int) -> Figure:
    """Draw the validation losses of each candidate's first seed, at the best learning rate."""
    shown = []
    for model, own in gains.items():
        arms = first_run(own[share].runs).arms if share in own else {}
        for name, called in ARMS.items() if arms else ():
            x = [arms[name].before.updates + update for update in arms[name].updates]
            shown.append(series(f"{model}, {called}", model, x, arms[name].curve))
    axes = (axis("updates, including pre-training"), axis("validation loss", "nats per token"))
    title = f"Validation loss in training on {share} % of the pairs, first seed"
    return figure(f"curve-{share}", title, axes, shown)


def _after_table(gains: Gains) -> Table:
    columns = [
        *("model", "pairs (%)", "pairs"),
        Interval("validation loss (nats per token)", itemgetter(3), 3, "loss"),
        Interval("BLEU, greedy", itemgetter(4), 1, "BLEU"),
        Column("pairs without pre-training that are as good", itemgetter(5)),
    ]
    rows = (
        (
            *(model, share, first_run(gain.runs).pairs),
            mean([run.arms["real"].loss() for run in gain.runs.values()]),
            gain.bleu,
            worth(gains[model], share),
        )
        for model, share, gain in _iterate_gains(gains)
    )
    return table("after", "Loss and BLEU with few pairs, pre-trained on the other direction", columns, rows)


def _gains_table(gains: Gains) -> Table:
    rows = []
    for model, share, gain in _iterate_gains(gains):
        for control in _CONTROLS:
            arms = [(run.arms[control], run.arms["real"]) for run in gain.runs.values()]
            last = statistics.mean(other.curve[-1] - real.curve[-1] for other, real in arms)
            bleu = statistics.mean(real.bleu - other.bleu for other, real in arms)
            rows.append({"model": model, "pairs (%)": share, "seeds": len(arms), "gain over": ARMS[control]})
            rows[-1] |= {"gain": gain.estimate(control), "p": gain.p.get(control), "over": gain.over[control]}
            rows[-1] |= {"last": last, "bleu": bleu}
    level = LEVEL / max(1, sum(row["over"] is not None for row in rows))
    columns = [
        *map(Column, ("model", "pairs (%)", "seeds", "gain over")),
        Interval("loss (nats per token)", "gain", 3),
        Column("p (Holm)", "p", 4),
        Column(
            "detectable with 80 % power (nats per token)",
            lambda row: row["over"] and row["over"].detectable(level=level),
            3,
        ),
        Column("loss at the last validation (nats per token)", "last", 3),
        Column("BLEU", "bleu", 2),
    ]
    return table("gains", "Gains of pre-training on the other direction", columns, rows)


def _arms_table(gains: Gains) -> Table:
    columns = [
        *("model", "pairs (%)", "seed", "condition", "pairs"),
        Column("updates of pre-training", lambda row: row[-1].before.updates),
        Column("updates", lambda row: row[-1].updates[-1]),
        Column("target tokens", lambda row: row[-1].before.tokens + row[-1].tokens),
        Column("learning rate", lambda row: float(min(row[-1].curves, key=lambda rate: min(row[-1].curves[rate])))),
        Column("updates to the best validation", lambda row: row[-1].updates[int(np.argmin(row[-1].curve))]),
        Column("validation loss (nats per token)", lambda row: row[-1].loss(), 4),
        Column("BLEU, greedy", lambda row: row[-1].bleu, 2),
        Column("training and validation (s)", lambda row: row[-1].seconds, 1),
        Column("pre-training (s)", lambda row: row[-1].before.seconds, 1),
    ]
    rows = [
        (model, share, seed, called, run.pairs, run.arms[arm])
        for model, share, gain in _iterate_gains(gains)
        for seed, run in gain.runs.items()
        for arm, called in ARMS.items()
    ]
    return table("arms", "All trainings", columns, rows)
