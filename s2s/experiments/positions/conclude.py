"""What shuffled sources and trainings without positions say of what a model knows of order."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from s2s.evaluation.inference import Estimate, draws, estimate, mean, ratios
from s2s.experiments.contest import BySeed, Cells, Conclusion, Contest, Measured, by_model
from s2s.experiments.presenting import Column, Interval, axis, figure, filled, finding, series, table
from s2s.experiments.translating import corpus_score, resampled_scores
from s2s.experiments.verdicts import excludes_zero, in_words, listed, seeds_in_words, signed
from s2s.results import Figure, Finding, Table

TRAINED = "trained"


@dataclass(frozen=True)
class Order:
    """What shuffling does to a trained model."""

    seeds: int  # how many runs
    natural: float  # BLEU of sources as they are
    shuffled: float  # BLEU of shuffled ones
    drop: Estimate  # the first minus the second
    drops: np.ndarray  # the same, resample by resample
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
    shuffled: float  # by how much more it is on shuffled sources
    parameters: int  # of the model


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """What order is worth, and what a signal of position is."""
    runs = by_model(contest, measured, TRAINED)
    orders = {model: order_of(own) for model, own in runs.items()}
    signals = {model: own for model in contest.models if (own := _signals(contest, measured, model))}
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
    return Conclusion(
        findings=[_finding(model, orders, signals.get(model, [])) for model in orders],
        figures=[shuffling, _signal_figure(signals)],
        tables=filled(_order_table(orders), examples, _signal_table(signals)),
        seeds=sorted({cell.seed or 0 for cell in measured}),
    )


def order_of(runs: BySeed) -> Order:
    """What shuffling does, over the sentences of all seeds."""
    own = list(runs.values())
    counts = [[np.array(run[key]) for key in ("bleu", "bleu_shuffled")] for run in own]
    drawn = draws(len(counts[0][0]))
    natural, shuffled = (statistics.mean(corpus_score("bleu", each[i]) for each in counts) for i in (0, 1))
    drops = np.mean(
        [resampled_scores("bleu", a, drawn) - resampled_scores("bleu", b, drawn) for a, b in counts], axis=0
    )
    reordered = max(1, sum(own[0]["reordered"]))

    def share(key: str) -> float:
        """Of the sentences that shuffling changes, those with this mark, in percent."""
        each = [sum(np.array(run[key]) * np.array(run["reordered"])) / reordered for run in own]
        return 100 * float(np.mean(each))

    return Order(
        seeds=len(own),
        natural=natural,
        shuffled=shuffled,
        drop=estimate(natural - shuffled, drops),
        drops=drops,
        loss=_rise([(run["natural"], run["shuffled"]) for run in own], own[0]["tokens"]),
        changed=share("changed"),
        same_words=share("same_words"),
    )


def _rise(losses: list[tuple[list[float], list[float]]], tokens: list[int]) -> Estimate:
    """By how much the second loss is higher than the first, in nats per token: over seeds, or over sentences if one."""
    differences = [np.array(second) - np.array(first) for first, second in losses]
    values = [float(each.sum()) / sum(tokens) for each in differences]
    if len(values) > 1:
        return mean(values)
    return estimate(values[0], ratios(differences[0], np.array(tokens), draws(len(tokens))))


def _signals(contest: Contest, measured: Cells, model: str) -> list[Signal]:
    """Each choice of positions, the model's own first; none for a model that has no choice."""
    parts = sorted({cell.part for cell in measured if cell.model == model and cell.part != TRAINED})
    own = by_model(contest, measured, TRAINED).get(model, {})
    kinds = next((run["own"] for run in own.values()), None)
    signals = [] if kinds is None else [_signal(own, {}, (kinds[0], kinds[1]))]
    for part in parts:
        runs = by_model(contest, measured, part)[model]
        run = next(iter(runs.values()))
        signals.append(_signal(runs, own, (run["encoder"], run["decoder"])))
    return signals


def _signal(runs: BySeed, own: BySeed, kinds: tuple[str, str]) -> Signal:
    """One choice of positions, beside the model's own at the same seeds."""
    run = next(iter(runs.values()))
    pairs = [(own[seed]["natural"], runs[seed]["natural"]) for seed in runs if seed in own]
    return Signal(
        encoder=kinds[0],
        decoder=kinds[1],
        own=[*kinds] == run.get("own"),
        seeds=len(runs),
        loss=statistics.mean(_loss(each, "natural") for each in runs.values()),
        more=_rise(pairs, run["tokens"]) if pairs else None,
        shuffled=statistics.mean(_loss(e, "shuffled") - _loss(e, "natural") for e in runs.values()),
        parameters=run["parameters"],
    )


def _loss(run: Measured, key: str) -> float:
    return sum(run[key]) / sum(run["tokens"])


def _finding(model: str, orders: Mapping[str, Order], signals: list[Signal]) -> Finding:
    order = orders[model]
    if order.natural < 1:
        said = f"too weak for BLEU; its loss rises by {in_words(order.loss, 2)} nats per token when words are shuffled"
    elif not excludes_zero(order.drop):
        said = f"no loss to be seen when words are shuffled: {in_words(order.drop)} BLEU"
    else:
        way = "loses" if order.drop.value > 0 else "gains"
        said = f"{way} {abs(order.drop.value):.1f} of {order.natural:.1f} BLEU when words are shuffled"
    runs = "" if order.seeds == 1 else f", mean of {seeds_in_words(order.seeds)}"
    quantity = f"BLEU lost when the words of the source are shuffled, greedy (interval over sentences{runs})"
    verdict = f"{said}, {order.changed:.0f} % of translations change; {_worth(signals)}"
    return finding("position information", model, order.drop, "BLEU", quantity, verdict, "shuffled")


def _worth(signals: list[Signal]) -> str:
    """What the signal of position is worth, from the trainings without."""
    if not signals:
        return "without any signal of position: what it knows of order comes with its structure"
    words, sides = [], ("encoder", "decoder")
    own = next((each for each in signals if each.own), None)
    for signal in signals:
        left_out = [side for side in sides if getattr(signal, side) == "none"]
        if signal.own or not left_out or signal.more is None:
            continue
        # where one side is left out, the other is as in the comparison
        kept = [side for side in sides if side not in left_out]
        if kept and (own is None or getattr(own, kept[0]) != getattr(signal, kept[0])):
            continue
        where = "both" if len(left_out) == 2 else f"the {left_out[0]}"
        sure = "" if excludes_zero(signal.more) else ", not to be told from chance"
        words.append(f"{signed(signal.more.value, 2)} in {where}{sure}")
    seeds = max(signal.seeds for signal in signals)
    if not words:
        return "what its signal of position is worth was not measured"
    return f"loss in nats per token without positions: {listed(words)} ({seeds_in_words(seeds)})"


def _signal_figure(signals: Mapping[str, list[Signal]]) -> Figure:
    shown = []
    for model, own in signals.items():
        names = [f"{signal.encoder} / {signal.decoder}" for signal in own]
        shown.append(series(f"{model}, natural", model, names, [signal.loss for signal in own]))
        shown.append(series(f"{model}, shuffled", model, names, [signal.loss + signal.shuffled for signal in own]))
    return figure(
        "signals",
        "Validation loss with each kind of positions in encoder / decoder",
        (axis("positions in encoder / decoder"), axis("validation loss", "nats per token")),
        shown,
        "Equal in all else. Without positions in the encoder, shuffled sources are the same "
        "to a model that reads by attention alone.",
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
    for (a, first), (b, second) in combinations(orders.items(), 2):
        if len(first.drops) == len(second.drops):
            more = estimate(second.drop.value - first.drop.value, second.drops - first.drops)
            rows.append(dict.fromkeys(rows[0]) | {"model": f"{b} − {a}", "drop": more})
    return table("shuffling", "What shuffled sources cost", columns, rows)


def _signal_table(signals: Mapping[str, list[Signal]]) -> Table:
    columns = [
        *map(Column, ("model", "encoder", "decoder", "seeds", "parameters")),
        Column("validation loss (nats per token)", "loss", 4),
        Interval("more than its own", "more", 4),
        Column("more when shuffled", "shuffled", 4),
    ]
    rows = [{"model": model, **vars(signal)} for model, own in signals.items() for signal in own]
    title = "Trainings with each kind of positions; the first of each model is its own"
    return table("signals", title, columns, rows)
