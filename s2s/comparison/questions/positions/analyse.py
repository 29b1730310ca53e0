"""Analyse the use of word order: shuffled sources, and trainings with other positional encodings."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from s2s.comparison.paired_tests import LEVEL, excludes_zero, gate_of_rate, seeds_in_words
from s2s.comparison.reporting import Column, Interval, axis, figure, filled, gates_table, series, table, verdict
from s2s.comparison.results import Figure, Series, Table, Verdict
from s2s.comparison.spec import Analysis, BySeed, Comparison, Measured, RateChoice, Trials, by_model
from s2s.comparison.translation import corpus_score, resampled_scores
from s2s.evaluation.differences import welch
from s2s.evaluation.gates import Assessment, Gate, converged, failed, translates
from s2s.evaluation.inference import Estimate, draws, estimate, holm, mean, ratios

TRAINED = "trained"
# under this key, what was left out because it cannot matter
SPARED = "spared"


@dataclass(frozen=True)
class Order:
    """Effect of shuffled sources on a trained model."""

    seeds: int  # how many runs
    natural: float  # BLEU of sources as they are
    shuffled: float  # BLEU of shuffled ones
    drop: Estimate  # the first minus the second; over seeds, or over sentences if one
    gates: list[Gate]  # what must be true before anything is said of it
    tokens: float  # target tokens that were learned from
    loss: Estimate  # what the validation loss rises by, in nats per token
    changed: float  # share of the shuffled sources that are translated otherwise, in percent
    same_words: float  # share of them whose translation has the same words, in percent


@dataclass(frozen=True)
class Signal:
    """A training with one choice of positions."""

    encoder: str  # the kind that tells the encoder
    decoder: str  # the kind that tells the decoder
    own: bool  # whether it is what the model has in the comparison
    seeds: int  # how many
    loss: float  # on validation pairs, in nats per token
    more: Estimate | None  # by how much that is higher than with its own; None for its own
    p: float | None  # of that, over seeds, corrected for how many choices there are (Holm 1979); None below two seeds
    shuffled: float  # by how much more it is on shuffled sources
    parameters: int  # of the model


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Analyse the effect of word order and of positional encodings."""
    measured = {trial: found for trial, found in measured.items() if SPARED not in found}
    runs = by_model(comparison, measured, TRAINED)
    orders = {model: order_of(own) for model, own in runs.items()}
    signals = {model: own for model in comparison.models if (own := _signals(comparison, measured, model))}
    shuffling = figure(
        "shuffled",
        "BLEU of sources as they are, and with their words shuffled",
        (axis("source"), axis("BLEU, greedy", "%")),
        [series(m, m, ["natural", "shuffled"], [order.natural, order.shuffled]) for m, order in orders.items()],
        "The interval of the difference is in the table.",
        "bars",
    )
    examples = table(
        "examples",
        "Some translations of sources as they are, and of shuffled ones",
        ("model", "source", "translation", "shuffled source", "its translation"),
        [(model, *texts) for model, own in runs.items() for texts in next(iter(own.values()))["examples"]],
    )
    return Analysis(
        findings=[_verdict(model, orders, signals.get(model, [])) for model in orders],
        figures=[shuffling, _signal_figure(signals), *_places(comparison, measured)],
        tables=filled(
            _order_table(orders),
            gates_table("a model before order is spoken of", {model: order.gates for model, order in orders.items()}),
            examples,
            _signal_table(signals),
        ),
        seeds=sorted({trial.seed or 0 for trial in measured}),
    )


def order_of(runs: BySeed) -> Order:
    """Estimate the effect of shuffling the source, over the sentences of all seeds."""
    own = list(runs.values())
    counts = [[np.array(run[key]) for key in ("bleu", "bleu_shuffled")] for run in own]
    scores = [[corpus_score("bleu", each) for each in both] for both in counts]
    natural, shuffled = (statistics.mean(both[i] for both in scores) for i in (0, 1))
    drop = mean([before - after for before, after in scores])
    if len(own) == 1:
        drawn = draws(len(counts[0][0]))
        before, after = (resampled_scores("bleu", each, drawn) for each in counts[0])
        drop = estimate(natural - shuffled, before - after)
    reordered = max(1, sum(own[0]["reordered"]))

    def share(key: str) -> float:
        each = [sum(np.array(run[key]) * np.array(run["reordered"])) / reordered for run in own]
        return 100 * float(np.mean(each))

    return Order(
        seeds=len(own),
        natural=natural,
        shuffled=shuffled,
        drop=drop,
        gates=[translates(natural), _converged(own), *_rate(own)],
        tokens=statistics.mean(run["curve"]["tokens"][-1] for run in own),
        loss=_rise([(run["natural"], run["shuffled"]) for run in own], own[0]["tokens"]),
        changed=share("changed"),
        same_words=share("same_words"),
    )


def _converged(runs: list[Measured]) -> Gate:
    curves = [run["curve"] for run in runs]
    looks = min(len(curve["losses"]) for curve in curves)
    tokens, losses = (np.mean([curve[key][:looks] for curve in curves], axis=0) for key in ("tokens", "losses"))
    return converged(tokens.tolist(), losses.tolist())


def _rate(runs: list[Measured]) -> list[Gate]:
    rate = runs[0].get("rate")
    return [gate_of_rate(RateChoice(**rate))] if rate else []


def _rise(losses: list[tuple[list[float], list[float]]], tokens: list[int]) -> Estimate:
    """Rise of the loss (second minus first) in nats per token: over seeds, or over sentences with one seed."""
    differences = [np.array(second) - np.array(first) for first, second in losses]
    values = [float(each.sum()) / sum(tokens) for each in differences]
    if len(values) > 1:
        return mean(values)
    return estimate(values[0], ratios(differences[0], np.array(tokens), draws(len(tokens))))


def _signals(comparison: Comparison, measured: Trials, model: str) -> list[Signal]:
    """Each choice of positions, the model's own first; none for a model that has no choice."""
    parts = sorted({trial.part for trial in measured if trial.model == model and trial.part != TRAINED})
    own = by_model(comparison, measured, TRAINED).get(model, {})
    kinds = next((run["own"] for run in own.values()), None)
    signals = [] if kinds is None else [_signal(own, {}, (kinds[0], kinds[1]))]
    for part in parts:
        runs = by_model(comparison, measured, part)[model]
        run = next(iter(runs.values()))
        signals.append(_signal(runs, own, (run["encoder"], run["decoder"])))
    known = [i for i, signal in enumerate(signals) if signal.p is not None]
    for i, p in zip(known, holm([signals[i].p or 0.0 for i in known]), strict=True):
        signals[i] = replace(signals[i], p=p)
    return signals


def _signal(runs: BySeed, own: BySeed, kinds: tuple[str, str]) -> Signal:
    """One choice of positions, beside the model's own at the same seeds."""
    run = next(iter(runs.values()))
    pairs = [(own[seed]["natural"], runs[seed]["natural"]) for seed in runs if seed in own]
    losses = [_loss(each, "natural") for each in runs.values()]
    # of the model's own kinds there are all seeds, of the others some
    apart = welch([_loss(each, "natural") for each in own.values()], losses)
    more = Estimate(apart.value, *apart.interval()) if apart else _rise(pairs, run["tokens"]) if pairs else None
    return Signal(
        encoder=kinds[0],
        decoder=kinds[1],
        own=[*kinds] == run.get("own"),
        seeds=len(runs),
        loss=statistics.mean(losses),
        more=more,
        p=apart and apart.p(),
        shuffled=statistics.mean(_loss(e, "shuffled") - _loss(e, "natural") for e in runs.values()),
        parameters=run["parameters"],
    )


def _loss(run: Measured, key: str) -> float:
    return sum(run[key]) / sum(run["tokens"])


def _verdict(model: str, orders: Mapping[str, Order], signals: list[Signal]) -> Verdict:
    order = orders[model]
    runs = "sentences, 1 seed" if order.seeds == 1 else seeds_in_words(order.seeds)
    quantity = f"BLEU lost when the words of the source are shuffled, greedy (interval over {runs})"
    closed = failed(order.gates)
    outcome = "" if not closed else "still learning" if [g.name for g in closed] == ["converged"] else "not measurable"
    facts: dict[str, float | str] = {
        "BLEU in order": round(order.natural, 1),
        "translations that change (%)": round(order.changed),
    }
    facts |= _signal_facts(signals)
    found = Assessment(outcome, reasons=tuple(gate.sentence for gate in closed), facts=facts)
    return verdict("position information", model, order.drop, "BLEU", quantity, found, "shuffled", order.tokens)


def _signal_facts(signals: list[Signal]) -> dict[str, float | str]:
    """Significant rises of the loss with other positional encodings."""
    found: dict[str, float | str] = {}
    for signal in signals:
        if signal.own or signal.more is None:
            continue
        certain = excludes_zero(signal.more) if signal.p is None else signal.p < LEVEL
        kinds = signal.encoder if signal.encoder == signal.decoder else f"{signal.encoder} / {signal.decoder}"
        if certain:
            found[f"loss added by positions {kinds} (nats per token)"] = round(signal.more.value, 3)
    return found


def _signal_figure(signals: Mapping[str, list[Signal]]) -> Figure:
    shown = []
    for model, own in signals.items():
        names = [f"{signal.encoder} / {signal.decoder}" for signal in own]
        shown.append(series(model, model, names, [signal.loss for signal in own]))
    return figure(
        "signals",
        "Validation loss with each kind of positions in encoder / decoder",
        (axis("positions in encoder / decoder"), axis("validation loss", "nats per token")),
        shown,
        "Equal in all else. How sure the differences are, and how far each loss rises when sources are shuffled, is in "
        "the table: without positions in the encoder, shuffled sources are the same to a model of attention alone.",
        "bars",
    )


def _order_table(orders: Mapping[str, Order]) -> Table:
    columns = [
        *map(Column, ("model", "seeds")),
        Column("BLEU", "natural", 2),
        Column("BLEU, shuffled", "shuffled", 2),
        Interval("drop", "drop", 2),
        Column("translations that change (%)", "changed", 1),
        Column("translations with the same words (%)", "same_words", 1),
        Interval("loss rises by (nats per token)", "loss", 3, "loss"),
    ]
    rows = [{"model": model, **vars(order)} for model, order in orders.items()]
    return table("shuffling", "What shuffled sources cost", columns, rows)


def _places(comparison: Comparison, measured: Trials) -> list[Figure]:
    """Loss against the place of a piece in its text: of the models as they are, and of each with other positions."""
    own = by_model(comparison, measured, TRAINED)
    title = "Validation loss against the place of a piece in its text, on texts of several sentences"
    found = [_place_figure("places", title, [_by_place(model, model, runs) for model, runs in own.items()], measured)]
    others = sorted({trial.part for trial in measured} - {TRAINED})
    for model in comparison.models:
        variants = [runs for part in others if (runs := by_model(comparison, measured, part).get(model))]
        if not variants or model not in own:
            continue
        lines = [_by_place("its own", model, own[model])]
        for runs in variants:
            run = next(iter(runs.values()))
            kinds = f"{run['encoder']} / {run['decoder']}"
            # a colour of its own: eight dashes of one could not be told from each other
            lines.append(_by_place(kinds, f"{model}, {kinds}", runs))
        title = f"The same of {model} with other positions in encoder / decoder"
        found.append(_place_figure(f"places-{model}", title, lines, measured))
    return found


def _by_place(label: str, model: str, runs: BySeed) -> Series:
    made = list(runs.values())
    starts = made[0]["places"]["start"]
    values = [statistics.mean(run["places"]["losses"][i] for run in made) for i in range(len(starts))]
    return series(label, model, starts, values)


def _place_figure(name: str, title: str, lines: list[Series], measured: Trials) -> Figure:
    if lines:
        learned = max(run["learned"] for run in measured.values())
        tall = max(y or 0 for line in lines for y in line.y)
        lines.append(series("longest target learned from", "", [learned, learned], [0.0, tall], reference=True))
    axes = axis("place in the target, in pieces; first of ten"), axis("validation loss", "nats per token")
    note = "What comes before is given; nothing was learned right of the line. Means over seeds."
    return figure(name, title, axes, lines, note)


def _signal_table(signals: Mapping[str, list[Signal]]) -> Table:
    columns = [
        *map(Column, ("model", "encoder", "decoder", "seeds", "parameters")),
        Column("validation loss (nats per token)", "loss", 4),
        Interval("more than its own", "more", 4),
        Column("p, of all choices (Holm)", "p", 4),
        Column("more when shuffled", "shuffled", 4),
    ]
    rows = [{"model": model, **vars(signal)} for model, own in signals.items() for signal in own]
    title = "Trainings with each kind of positions; the first of each model is its own"
    return table("signals", title, columns, rows)
