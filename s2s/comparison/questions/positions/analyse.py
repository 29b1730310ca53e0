"""Analyse the use of word order: shuffled sources, and trainings with other positional encodings."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from s2s.comparison.claims import traits_of
from s2s.comparison.paired_tests import excludes_zero, gate_of_rate, mean_curve, seeds_in_words
from s2s.comparison.questions.positions.claims import Without, needs_order
from s2s.comparison.questions.positions.longer import (
    LongerTexts,
    Scores,
    bleu_without,
    longer_figure,
    longer_table,
    reaches_farther,
    relative_bleus,
)
from s2s.comparison.reporting import Column, Interval, axis, figure, filled, gates_table, series, table, verdict
from s2s.comparison.results import Figure, Series, Table, Verdict
from s2s.comparison.runs import LearningCurve
from s2s.comparison.spec import Analysis, Comparison, RateChoice, Trial, by_model
from s2s.comparison.translation import corpus_score, resampled_scores
from s2s.evaluation.differences import LEVEL, welch
from s2s.evaluation.gates import Assessment, Gate, converged, failed, translates
from s2s.evaluation.inference import Estimate, draws, estimate, holm, mean, ratios

TRAINED = "trained"
"""Part of the trials of the trained models; the other parts are trainings with other positional encodings."""
_POINTS = 5.0
"""Gain per doubling (see `converged`) that a trained model may have, because effects are tens of BLEU."""


@dataclass(frozen=True)
class Places:
    """Mean loss by position in the target, in bins of ten positions."""

    start: list[int]  # first position of each bin
    losses: list[float]  # nats per token


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Losses of a model on the validation pairs; base class of the measurements."""

    tokens: list[int]  # target tokens of each pair
    natural: list[float]  # summed loss of each pair, in nats
    shuffled: list[float]  # likewise with its source shuffled
    places: Places  # on long texts
    learned: int  # tokens of the longest target trained on
    parameters: int
    # None for a model without a choice of positions, and for one with different kinds in encoder and decoder
    longer: LongerTexts | None = None

    @property
    def loss(self) -> float:
        """Loss in nats per token."""
        return sum(self.natural) / sum(self.tokens)

    @property
    def shuffled_loss(self) -> float:
        """Loss with shuffled sources in nats per token."""
        return sum(self.shuffled) / sum(self.tokens)


@dataclass(frozen=True, kw_only=True)
class TrainedPositions(Losses):
    """Measurement of a model of `quality`; lists have an item for each test sentence."""

    bleu: list[list[int]]  # statistics of the translations, see `counts_of`
    bleu_shuffled: list[list[int]]  # likewise of shuffled sources
    reordered: list[int]  # 1 if shuffling changed the source
    changed: list[int]  # 1 if it changed the translation
    same_words: list[int]  # 1 if both translations have the same words
    examples: list[tuple[str, str, str, str]]  # source and translation, in order and shuffled
    own: tuple[str, str] | None  # positional encodings of encoder and decoder; None for a model without a choice
    curve: LearningCurve
    rate: RateChoice | None = None


@dataclass(frozen=True, kw_only=True)
class OtherPositions(Losses):
    """Measurement of a short training with other positional encodings."""

    encoder: str
    decoder: str
    updates: int
    seconds: float  # training time


@dataclass(frozen=True)
class Spared:
    """Skipped measurement: the loss without any positional encoding hardly rises."""

    spared: float  # rise of the loss without positional encodings, in nats per token


@dataclass(frozen=True)
class Order:
    """Effect of shuffled sources on a trained model."""

    seeds: int  # number of runs
    natural: float  # BLEU on natural sources
    shuffled: float  # BLEU on shuffled sources
    drop: Estimate  # natural minus shuffled; interval over seeds, or over sentences with one seed
    gates: list[Gate]
    tokens: float  # target tokens trained on
    loss: Estimate  # rise of the validation loss, in nats per token
    changed: float  # share of shuffled sources whose translation changes, in percent
    same_words: float  # share of shuffled sources whose translation keeps the same words, in percent


@dataclass(frozen=True)
class Signal:
    """Trainings with one choice of positional encodings."""

    encoder: str
    decoder: str
    own: bool  # True if it is the model's own in the comparison
    seeds: int  # number of runs
    loss: float  # on validation pairs, in nats per token
    more: Estimate | None  # rise above the loss with the model's own encodings; None for its own
    p: float | None  # p-value of the rise over seeds, corrected for all choices (Holm 1979); None below two seeds
    shuffled: float  # rise of the loss with shuffled sources
    parameters: int  # number of parameters


def analyse(comparison: Comparison, measured: Mapping[Trial, TrainedPositions | OtherPositions | Spared]) -> Analysis:
    """Analyse the effect of word order and of positional encodings."""
    every = {trial: each for trial, each in measured.items() if not isinstance(each, Spared)}
    own = {trial: each for trial, each in every.items() if isinstance(each, TrainedPositions)}
    others = {trial: each for trial, each in every.items() if isinstance(each, OtherPositions)}
    runs = by_model(comparison, own, TRAINED)
    parts = sorted({trial.part for trial in others})
    # by candidate and part
    variants: dict[str, dict[str, dict[int, OtherPositions]]] = {model: {} for model in comparison.models}
    for part in parts:
        for model, each in by_model(comparison, others, part).items():
            variants[model][part] = each
    orders = {model: order_of(own) for model, own in runs.items()}
    signals = {model: found for model in comparison.models if (found := _signals(runs.get(model, {}), variants[model]))}
    gates = {model: order.gates for model, order in orders.items()}
    longer = {model: _scores(own, variants[model]) for model, own in runs.items()}
    kept = {model: found for model, scores in longer.items() if (found := relative_bleus(scores))}
    shuffling = figure(
        "shuffled",
        "BLEU on natural and shuffled sources",
        (axis("source"), axis("BLEU, greedy search", "%")),
        [series(m, m, ["natural", "shuffled"], [order.natural, order.shuffled]) for m, order in orders.items()],
        "The table has the intervals of the differences.",
        "bars",
    )
    examples = table(
        "examples",
        "Example translations of natural and shuffled sources",
        ("model", "source", "translation", "shuffled source", "its translation"),
        [(model, *texts) for model, own in runs.items() for texts in next(iter(own.values())).examples],
    )
    return Analysis(
        findings=[_verdict(model, orders, signals.get(model, [])) for model in orders],
        figures=[
            shuffling,
            _signal_figure(signals),
            *_places(runs, variants, max((each.learned for each in every.values()), default=0)),
            *(longer_figure(model, longer[model]) for model in kept),
        ],
        tables=filled(
            _order_table(orders),
            gates_table("the trained models", {model: order.gates for model, order in orders.items()}),
            examples,
            _signal_table(signals),
            longer_table(kept),
        ),
        seeds=sorted({trial.seed or 0 for trial in every}),
        claims=[
            needs_order(traits_of(comparison), _without(signals), gates, bleu_without(kept)),
            reaches_farther(traits_of(comparison), kept, gates),
        ],
    )


def _scores(own: Mapping[int, TrainedPositions], variants: Mapping[str, Mapping[int, OtherPositions]]) -> Scores:
    """Return the scores of longer texts by kind of positions, the model's own first.

    Only seeds count that have scores with the model's own kind.
    """
    usual = {seed: run.longer for seed, run in own.items() if run.longer}
    scores: dict[str, dict[int, LongerTexts]] = {run.own[0]: usual for run in own.values() if run.own}
    for runs in variants.values():
        for seed, run in runs.items():
            if run.longer and seed in usual:
                scores.setdefault(run.encoder, {})[seed] = run.longer
    seeds = {seed for kind, runs in scores.items() if runs is not usual for seed in runs}
    return {kind: {seed: each for seed, each in runs.items() if seed in seeds} for kind, runs in scores.items()}


def _without(signals: Mapping[str, list[Signal]]) -> dict[str, dict[str, Without]]:
    """Return rises of the loss without positional encodings, by side (`both`, `encoder`, `decoder`) and model."""
    found: dict[str, dict[str, Without]] = {"both": {}, "encoder": {}, "decoder": {}}
    for model, signal in ((model, signal) for model, own in signals.items() for signal in own):
        absent = [side for side in ("encoder", "decoder") if getattr(signal, side) == "none"]
        if signal.more is not None and absent:
            found[absent[0] if len(absent) == 1 else "both"][model] = Without(signal.more, signal.p)
    return found


def order_of(runs: Mapping[int, TrainedPositions]) -> Order:
    """Estimate the effect of shuffling the source, over the sentences of all seeds."""
    own = list(runs.values())
    first = own[0]
    counts = [[np.array(run.bleu), np.array(run.bleu_shuffled)] for run in own]
    scores = [[corpus_score("bleu", each) for each in both] for both in counts]
    natural, shuffled = (statistics.mean(both[i] for both in scores) for i in (0, 1))
    drop = mean([before - after for before, after in scores])
    if len(own) == 1:
        drawn = draws(len(counts[0][0]))
        before, after = (resampled_scores("bleu", each, drawn) for each in counts[0])
        drop = estimate(natural - shuffled, before - after)
    reordered = max(1, sum(first.reordered))
    changed, same_words = (
        100 * float(np.mean([sum(np.array(which) * np.array(run.reordered)) / reordered for run, which in each]))
        for each in ([(run, run.changed) for run in own], [(run, run.same_words) for run in own])
    )
    convergence = converged(*mean_curve({seed: run.curve for seed, run in runs.items()}), _POINTS)
    return Order(
        seeds=len(own),
        natural=natural,
        shuffled=shuffled,
        drop=drop,
        gates=[translates(natural), convergence, *([gate_of_rate(first.rate)] if first.rate else [])],
        tokens=statistics.mean(run.curve.tokens[-1] for run in own),
        loss=_rise([(run.natural, run.shuffled) for run in own], first.tokens),
        changed=changed,
        same_words=same_words,
    )


def _rise(losses: list[tuple[list[float], list[float]]], tokens: list[int]) -> Estimate:
    """Estimate the rise of the loss (second minus first) in nats per token, over seeds, or over sentences with one."""
    differences = [np.array(second) - np.array(first) for first, second in losses]
    values = [float(each.sum()) / sum(tokens) for each in differences]
    if len(values) > 1:
        return mean(values)
    return estimate(values[0], ratios(differences[0], np.array(tokens), draws(len(tokens))))


def _signals(own: Mapping[int, TrainedPositions], variants: Mapping[str, Mapping[int, OtherPositions]]) -> list[Signal]:
    """Return each choice of positional encodings, the model's own first; none for a model without a choice."""
    kinds = next((run.own for run in own.values()), None)
    signals = [] if kinds is None else [_signal(own, {}, kinds, is_own=True)]
    for runs in variants.values():
        run = next(iter(runs.values()))
        signals.append(_signal(runs, own, (run.encoder, run.decoder)))
    known = [i for i, signal in enumerate(signals) if signal.p is not None]
    for i, p in zip(known, holm([signals[i].p or 0.0 for i in known]), strict=True):
        signals[i] = replace(signals[i], p=p)
    return signals


def _signal(
    runs: Mapping[int, Losses], own: Mapping[int, Losses], kinds: tuple[str, str], is_own: bool = False
) -> Signal:
    """Compare one choice of positional encodings with the model's own."""
    run = next(iter(runs.values()))
    losses = [each.loss for each in runs.values()]
    # the same seeds on both sides, as the model's own encodings may have more
    both = [(own[seed], runs[seed]) for seed in runs if seed in own]
    apart = welch(*([pair[side].loss for pair in both] for side in (0, 1)))
    pairs = [(one.natural, other.natural) for one, other in both]
    more = Estimate(apart.value, *apart.interval()) if apart else _rise(pairs, run.tokens) if pairs else None
    return Signal(
        encoder=kinds[0],
        decoder=kinds[1],
        own=is_own,
        seeds=len(runs),
        loss=statistics.mean(losses),
        more=more,
        p=apart and apart.p(),
        shuffled=statistics.mean(each.shuffled_loss - each.loss for each in runs.values()),
        parameters=run.parameters,
    )


def _verdict(model: str, orders: Mapping[str, Order], signals: list[Signal]) -> Verdict:
    order = orders[model]
    runs = "sentences, 1 seed" if order.seeds == 1 else seeds_in_words(order.seeds)
    quantity = f"BLEU lost with shuffled sources, greedy search (interval over {runs})"
    closed = failed(order.gates)
    outcome = "" if not closed else "still learning" if [g.name for g in closed] == ["converged"] else "not measurable"
    facts: dict[str, float | str] = {
        "BLEU on natural sources": round(order.natural, 1),
        "translations that change (%)": round(order.changed),
    }
    facts |= _signal_facts(signals)
    found = Assessment(outcome, reasons=tuple(gate.sentence for gate in closed), facts=facts)
    return verdict("position information", model, order.drop, "BLEU", quantity, found, "shuffled", order.tokens)


def _signal_facts(signals: list[Signal]) -> dict[str, float | str]:
    """Return the significant rises of the loss with other positional encodings."""
    found: dict[str, float | str] = {}
    for signal in signals:
        if signal.own or signal.more is None:
            continue
        certain = excludes_zero(signal.more) if signal.p is None else signal.p < LEVEL
        kinds = signal.encoder if signal.encoder == signal.decoder else f"{signal.encoder} / {signal.decoder}"
        if certain:
            found[f"rise of the loss with positions {kinds} (nats per token)"] = round(signal.more.value, 3)
    return found


def _signal_figure(signals: Mapping[str, list[Signal]]) -> Figure:
    shown = []
    for model, own in signals.items():
        names = [f"{signal.encoder} / {signal.decoder}" for signal in own]
        shown.append(series(model, model, names, [signal.loss for signal in own]))
    return figure(
        "signals",
        "Validation loss by positional encoding in encoder / decoder",
        (axis("positional encoding in encoder / decoder"), axis("validation loss", "nats per token")),
        shown,
        "All else is equal. The table has tests of the differences, and the rises of the loss with shuffled sources. "
        "Without positions in its encoder, a model with attention alone cannot distinguish shuffled sources.",
        "bars",
    )


def _order_table(orders: Mapping[str, Order]) -> Table:
    columns = [
        *map(Column, ("model", "seeds")),
        Column("BLEU", "natural", 2),
        Column("BLEU, shuffled", "shuffled", 2),
        Interval("BLEU lost", "drop", 2),
        Column("translations that change (%)", "changed", 1),
        Column("translations with the same words (%)", "same_words", 1),
        Interval("rise of the loss (nats per token)", "loss", 3, "loss"),
    ]
    rows = [{"model": model, **vars(order)} for model, order in orders.items()]
    return table("shuffling", "Effect of shuffled sources", columns, rows)


def _places(
    own: Mapping[str, Mapping[int, TrainedPositions]],
    variants: Mapping[str, Mapping[str, Mapping[int, OtherPositions]]],
    learned: int,
) -> list[Figure]:
    """Draw the loss against the position in the target, of all candidates, and of each with other encodings."""

    def _line(label: str, model: str, runs: Mapping[int, Losses]) -> Series:
        places = [run.places for run in runs.values()]
        values = [statistics.mean(each.losses[i] for each in places) for i in range(len(places[0].start))]
        return series(label, model, places[0].start, values)

    def _draw(name: str, title: str, lines: list[Series]) -> Figure:
        if lines:
            tall = max(y or 0 for line in lines for y in line.y)
            lines.append(series("longest training target", "", [learned, learned], [0.0, tall], reference=True))
        axes = axis("target position, start of bins of ten", "tokens"), axis("validation loss", "nats per token")
        note = "Teacher forcing; means over seeds. The longest training target ends at the vertical line."
        return figure(name, title, axes, lines, note)

    title = "Validation loss by position of the target token, on texts of several sentences"
    found = [_draw("places", title, [_line(model, model, runs) for model, runs in own.items()])]
    for model, parts in variants.items():
        if not parts or model not in own:
            continue
        lines = [_line("own encodings", model, own[model])]
        for runs in parts.values():
            run = next(iter(runs.values()))
            kinds = f"{run.encoder} / {run.decoder}"
            # one colour each, because eight dash patterns of one colour are hard to distinguish
            lines.append(_line(kinds, f"{model}, {kinds}", runs))
        title = f"Validation loss of {model} by position, with other encodings in encoder / decoder"
        found.append(_draw(f"places-{model}", title, lines))
    return found


def _signal_table(signals: Mapping[str, list[Signal]]) -> Table:
    columns = [
        *map(Column, ("model", "encoder", "decoder", "seeds", "parameters")),
        Column("validation loss (nats per token)", "loss", 4),
        Interval("rise above its own", "more", 4),
        Column("p (Holm)", "p", 4),
        Column("rise with shuffled sources", "shuffled", 4),
    ]
    rows = [{"model": model, **vars(signal)} for model, own in signals.items() for signal in own]
    title = "Trainings with each positional encoding; the first of each model is its own"
    return table("signals", title, columns, rows)
