"""What the measurements of `positions` say: what order is worth to a model, and what a signal of position is."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from s2s.evaluation.inference import Estimate, draws, estimate, mean, ratios
from s2s.experiments.contest import Contest, Experiment, Measured, Task
from s2s.experiments.resampling import corpus_score, resampled_scores
from s2s.experiments.verdicts import (
    BySeed,
    Row,
    by_model,
    ends,
    excludes_zero,
    in_words,
    listed,
    seeds_in_words,
    signed,
)
from s2s.results import Axis, Figure, Finding, Result, Series, Table

_ROW = "position information"
TRAINED = "trained"

METHOD = """\
The words of each source are put in another order, always the same one; what ends the sentence stays at its end, and \
so does nothing else. The models of the experiment "quality", which have never seen such sources, translate sentences \
of the test set greedily, as they are and shuffled, and both are scored against the references of the natural order. \
A model that knows nothing of order would write the same; how many translations change, and how many keep the same \
words, is in the table. The loss on validation pairs is taken in both orders, too.

Models whose encoder and decoder can be told the places of words in several ways, or not at all, are trained anew for \
each choice, all else being equal, the seed included: what their validation loss rises by without the signal is what \
the signal is worth. Models that have no such choice know of order what their structure gives them for free; for them, \
only shuffling can tell. All weights are those after the last update.

Intervals (95 %): sentences drawn with replacement, 1,000 times, the same ones for all; Student's over seeds where a \
training is repeated with two seeds or more."""

LIMITS = """\
A shuffled source is like nothing that was learned from, so a drop says that order is used, not how well it is known; \
the first word's capital still tells which one it was. A decoder that is asked for the next word knows how many came \
before it even without a signal, since it may not look at those that follow (Haviv et al. 2022). Learned positions add \
parameters, and need longer to be learned. Where training is short, what would be learned of order later is not seen. \
An interval over sentences doubts the choice of sentences, not that of the network."""


@dataclass(frozen=True)
class Order:
    """What shuffling does to a trained model.

    Attributes:
        seeds: how many runs.
        natural: BLEU of sources as they are.
        shuffled: BLEU of shuffled ones.
        drop: the first minus the second.
        drops: the same, resample by resample.
        loss: what the validation loss rises by, in nats per token.
        changed: share of the shuffled sources that are translated otherwise, in percent.
        same_words: share of them whose translation has the same words, in percent.
    """

    seeds: int
    natural: float
    shuffled: float
    drop: Estimate
    drops: np.ndarray
    loss: Estimate
    changed: float
    same_words: float


@dataclass(frozen=True)
class Signal:
    """A training with one choice of positions.

    Attributes:
        encoder: the kind that tells the encoder.
        decoder: the kind that tells the decoder.
        own: whether it is what the model has in the comparison.
        seeds: how many.
        loss: on validation pairs, in nats per token.
        more: by how much that is higher than with its own; None for its own.
        shuffled: by how much more it is on shuffled sources.
        parameters: of the model.
    """

    encoder: str
    decoder: str
    own: bool
    seeds: int
    loss: float
    more: Estimate | None
    shuffled: float
    parameters: int


def conclude(experiment: Experiment, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
    """The result of what was measured; what is missing is left out.

    Args:
        experiment: whose result it is.
        contest: gives the models.
        measured: by `Positions.measure`.
    """
    runs = by_model(contest, measured, TRAINED)
    orders = {model: order_of(own) for model, own in runs.items()}
    signals = {model: found for model in contest.models if (found := _signals(contest, measured, model))}
    figures = [_shuffling(orders)] if orders else []
    tables = [_order_table(orders), _examples(runs)] if orders else []
    return Result(
        experiment=experiment.name,
        question=experiment.question,
        method=METHOD,
        limits=LIMITS,
        models=contest.models,
        seeds=sorted({task.seed or 0 for task in measured}),
        findings=[_finding(model, orders, signals.get(model, [])) for model in orders],
        figures=[*figures, *([_signal_figure(signals)] if signals else [])],
        tables=[*tables, *([_signal_table(signals)] if signals else [])],
    )


def order_of(runs: BySeed) -> Order:
    """What shuffling does, over the sentences of all seeds."""
    found = list(runs.values())
    counts = [[np.array(run[key]) for key in ("bleu", "bleu_shuffled")] for run in found]
    drawn = draws(len(counts[0][0]))
    natural, shuffled = (statistics.mean(corpus_score("bleu", each[i]) for each in counts) for i in (0, 1))
    drops = np.mean(
        [resampled_scores("bleu", a, drawn) - resampled_scores("bleu", b, drawn) for a, b in counts], axis=0
    )
    reordered = max(1, sum(found[0]["reordered"]))

    def share(key: str) -> float:
        """Of the sentences that shuffling changes, those with this mark, in percent."""
        each = [sum(np.array(run[key]) * np.array(run["reordered"])) / reordered for run in found]
        return 100 * float(np.mean(each))

    return Order(
        seeds=len(found),
        natural=natural,
        shuffled=shuffled,
        drop=estimate(natural - shuffled, drops),
        drops=drops,
        loss=_rise([(run["natural"], run["shuffled"]) for run in found], found[0]["tokens"]),
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


def _signals(contest: Contest, measured: Mapping[Task, Measured], model: str) -> list[Signal]:
    """Each choice of positions, the model's own first; none for a model that has no choice."""
    parts = sorted({task.part for task in measured if task.model == model and task.part != TRAINED})
    own = by_model(contest, measured, TRAINED).get(model, {})
    kinds = next((run["own"] for run in own.values()), None)
    found = [] if kinds is None else [_signal(own, {}, (kinds[0], kinds[1]))]
    for part in parts:
        runs = by_model(contest, measured, part)[model]
        run = next(iter(runs.values()))
        found.append(_signal(runs, own, (run["encoder"], run["decoder"])))
    return found


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
    runs = "" if order.seeds == 1 else f", mean of {seeds_in_words(order.seeds)}"
    return Finding(
        row=_ROW,
        model=model,
        value=order.drop.value,
        low=order.drop.low,
        high=order.drop.high,
        unit="BLEU",
        quantity=f"BLEU lost when the words of the source are shuffled, greedy (interval over sentences{runs})",
        verdict=f"{_own(order)}; {_worth(signals)}",
        figure="shuffled",
    )


def _own(order: Order) -> str:
    if order.natural < 1:
        said = f"too weak for BLEU; its loss rises by {in_words(order.loss, 2)} nats per token when words are shuffled"
    elif not excludes_zero(order.drop):
        said = f"no loss to be seen when words are shuffled: {in_words(order.drop)} BLEU"
    else:
        way = "loses" if order.drop.value > 0 else "gains"
        said = f"{way} {abs(order.drop.value):.1f} of {order.natural:.1f} BLEU when words are shuffled"
    return f"{said}, {order.changed:.0f} % of translations change"


def _worth(signals: list[Signal]) -> str:
    """What the signal of position is worth, from the trainings without."""
    if not signals:
        return "without any signal of position: what it knows of order comes with its structure"
    words = []
    for signal in signals:
        left_out = [side for side in ("encoder", "decoder") if getattr(signal, side) == "none"]
        if signal.own or not left_out or signal.more is None:
            continue
        if len(left_out) == 1 and not _rest_is_own(signal, left_out[0], signals):
            continue
        where = "both" if len(left_out) == 2 else f"the {left_out[0]}"
        sure = "" if excludes_zero(signal.more) else ", not to be told from chance"
        words.append(f"{signed(signal.more.value, 2)} in {where}{sure}")
    seeds = max(signal.seeds for signal in signals)
    if not words:
        return "what its signal of position is worth was not measured"
    return f"loss in nats per token without positions: {listed(words)} ({seeds_in_words(seeds)})"


def _rest_is_own(signal: Signal, left_out: str, signals: list[Signal]) -> bool:
    """Whether the other side is as in the comparison."""
    own = next((each for each in signals if each.own), None)
    other = "decoder" if left_out == "encoder" else "encoder"
    return own is not None and getattr(own, other) == getattr(signal, other)


def _shuffling(orders: Mapping[str, Order]) -> Figure:
    return Figure(
        name="shuffled",
        title="BLEU of sources as they are, and with their words shuffled",
        kind="bars",
        x=Axis(label="source"),
        y=Axis(label="BLEU, greedy", unit="%"),
        series=[
            Series(label=model, model=model, x=["natural", "shuffled"], y=[order.natural, order.shuffled])
            for model, order in orders.items()
        ],
        caption="The interval of the difference is in the table.",
    )


def _signal_figure(signals: Mapping[str, list[Signal]]) -> Figure:
    series = []
    for model, found in signals.items():
        names = [f"{signal.encoder} / {signal.decoder}" for signal in found]
        rises = [signal.loss + signal.shuffled for signal in found]
        series.append(Series(label=f"{model}, natural", model=model, x=names, y=[signal.loss for signal in found]))
        series.append(Series(label=f"{model}, shuffled", model=model, x=names, y=list(rises)))
    return Figure(
        name="signals",
        title="Validation loss with each kind of positions in encoder / decoder",
        kind="bars",
        x=Axis(label="positions in encoder / decoder"),
        y=Axis(label="validation loss", unit="nats per token"),
        series=series,
        caption="Equal in all else. Without positions in the encoder, shuffled sources are the same "
        "to a model that reads by attention alone.",
    )


def _order_table(orders: Mapping[str, Order]) -> Table:
    rows: list[Row] = [
        [
            model,
            order.seeds,
            round(order.natural, 2),
            round(order.shuffled, 2),
            *ends(order.drop, 2),
            round(order.changed, 1),
            round(order.same_words, 1),
            *ends(order.loss, 3),
        ]
        for model, order in orders.items()
    ]
    names = list(orders)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            first, second = orders[a], orders[b]
            if len(first.drops) == len(second.drops):
                more = estimate(second.drop.value - first.drop.value, second.drops - first.drops)
                rows.append([f"{b} − {a}", None, None, None, *ends(more, 2), None, None, None, None, None])
    return Table(
        name="shuffling",
        title="What shuffled sources cost",
        columns=[
            "model",
            "seeds",
            "BLEU",
            "BLEU, shuffled",
            "drop",
            "low",
            "high",
            "translations that change (%)",
            "translations with the same words (%)",
            "loss rises by (nats per token)",
            "low (loss)",
            "high (loss)",
        ],
        rows=rows,
    )


def _signal_table(signals: Mapping[str, list[Signal]]) -> Table:
    rows: list[Row] = [
        [
            model,
            signal.encoder,
            signal.decoder,
            signal.seeds,
            signal.parameters,
            round(signal.loss, 4),
            *ends(signal.more, 4),
            round(signal.shuffled, 4),
        ]
        for model, found in signals.items()
        for signal in found
    ]
    return Table(
        name="signals",
        title="Trainings with each kind of positions; the first of each model is its own",
        columns=[
            "model",
            "encoder",
            "decoder",
            "seeds",
            "parameters",
            "validation loss (nats per token)",
            "more than its own",
            "low",
            "high",
            "more when shuffled",
        ],
        rows=rows,
    )


def _examples(runs: Mapping[str, BySeed]) -> Table:
    rows: list[Row] = []
    for model, own in runs.items():
        rows += [[model, *texts] for texts in next(iter(own.values()))["examples"]]
    return Table(
        name="examples",
        title="Some translations of sources as they are, and of shuffled ones",
        columns=["model", "source", "translation", "shuffled source", "its translation"],
        rows=rows,
    )
