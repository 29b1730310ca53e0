"""What the trainings of `transfer` say: the gain from having learned the other direction first."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from s2s.evaluation.inference import Estimate, draws, estimate, mean, ratios
from s2s.experiments.contest import Contest, Experiment, Measured, Task
from s2s.experiments.resampling import corpus_score, resampled_scores
from s2s.experiments.verdicts import BySeed, Row, by_model, ends, excludes_zero, line, listed, seeds_in_words
from s2s.results import Axis, Figure, Finding, Result, Series, Table

_ROW = "fine-tuning"
_SHOWN = 10  # per cent of the pairs: the table's cell
_ARMS = {"tuned": "fine-tuned", "scratch": "from scratch"}

METHOD = """\
Every other pair of the training data is used to learn the opposite direction of translation; of the other half, 1 %, \
10 % and all pairs are used to learn the direction of the comparison: once from the weights that learned the opposite \
direction, once from fresh ones, for the same number of updates with the same schedule and the same pairs in the same \
order; all trainings are shorter than the whole runs of "quality". No pair is in both halves. The one tokenizer was \
trained on both sides of all pairs, which every arm shares: it says nothing of which sentence translates which.

Validation loss is taken from time to time, before the first update, too, and the best one counts, in both arms \
alike: few pairs are soon known by heart. The best weights translate a part of the test set greedily. The gain is the \
loss from scratch minus the loss after fine-tuning. Its interval (95 %): Student's over seeds; with one seed, \
validation sentences drawn with replacement, 1,000 times."""

LIMITS = """\
The two tasks are close relatives: same sentences' grammar, same words, roles exchanged. What is gained from a task \
further off is not said. The learning rate is the one chosen for training from scratch. Updates are equal, so an arm \
that began with trained weights has had more updates in its life; how many is in the table. An interval over sentences \
doubts the choice of sentences, not that of the network."""


@dataclass(frozen=True)
class Gain:
    """What was gained at one share of the pairs.

    Attributes:
        seeds: how many.
        loss: from scratch minus fine-tuned, in nats per token.
        resampled: the same over sentences, resample by resample, mean of the seeds.
        bleu: fine-tuned minus from scratch.
        before: fresh minus trained weights before the first update, in nats per token.
    """

    seeds: int
    loss: Estimate
    resampled: np.ndarray
    bleu: Estimate
    before: float


Gains = dict[str, dict[int, Gain]]


def conclude(
    experiment: Experiment, contest: Contest, measured: Mapping[Task, Measured], shares: Sequence[int]
) -> Result:
    """The result of what was measured; what is missing is left out.

    Args:
        experiment: whose result it is.
        contest: gives the models.
        measured: by `Transfer.measure`.
        shares: of the pairs, in per cent.
    """
    runs = {share: by_model(contest, measured, f"share-{share}") for share in shares}
    gains: Gains = {}
    for model in contest.models:
        own = {share: gain_of(found[model]) for share, found in runs.items() if model in found}
        if own:
            gains[model] = own
    return Result(
        experiment=experiment.name,
        question=experiment.question,
        method=METHOD,
        limits=LIMITS,
        models=contest.models,
        seeds=sorted({task.seed or 0 for task in measured}),
        findings=[_finding(model, gains, runs) for model in gains],
        figures=[_against_pairs(runs, "loss"), _against_pairs(runs, "bleu"), *_curves(runs)] if gains else [],
        tables=[_gains(gains), _arms(runs)] if gains else [],
    )


def loss_of(found: Measured, arm: str) -> float:
    """The best validation loss of an arm, in nats per token."""
    return min(found["arms"][arm]["curve"])


def bleu_of(found: Measured, arm: str) -> float:
    """The BLEU of an arm's best weights."""
    return corpus_score("bleu", np.array(found["arms"][arm]["counts"]))


def gain_of(runs: BySeed) -> Gain:
    """What was gained, over seeds where there are some, otherwise over sentences."""
    differences = [loss_of(run, "scratch") - loss_of(run, "tuned") for run in runs.values()]
    bleus = [bleu_of(run, "tuned") - bleu_of(run, "scratch") for run in runs.values()]
    resampled = np.mean([_losses(run, "scratch") - _losses(run, "tuned") for run in runs.values()], axis=0)
    loss, bleu = mean(differences), mean(bleus)
    if len(runs) == 1:
        loss = estimate(loss.value, resampled)
        (run,) = runs.values()
        scores = [_bleus(run, arm) for arm in _ARMS]
        bleu = estimate(bleu.value, scores[0] - scores[1])
    before = [run["arms"]["scratch"]["curve"][0] - run["arms"]["tuned"]["curve"][0] for run in runs.values()]
    return Gain(len(runs), loss, resampled, bleu, statistics.mean(before))


def _losses(run: Measured, arm: str) -> np.ndarray:
    losses, tokens = np.array(run["arms"][arm]["losses"]), np.array(run["tokens"])
    return ratios(losses, tokens, draws(len(tokens)))


def _bleus(run: Measured, arm: str) -> np.ndarray:
    counts = np.array(run["arms"][arm]["counts"])
    return resampled_scores("bleu", counts, draws(len(counts)))


def _finding(model: str, gains: Gains, runs: Mapping[int, Mapping[str, BySeed]]) -> Finding:
    own = gains[model]
    share = _SHOWN if _SHOWN in own else min(own)
    gain = own[share]
    over = "interval over sentences, 1 seed" if gain.seeds == 1 else f"mean of {seeds_in_words(gain.seeds)}"
    each = listed([f"{gain.loss.value:.2f}" for gain in own.values()])
    at = f"{each} nats per token at {listed([str(share) for share in own])} % of the pairs"
    return Finding(
        row=_ROW,
        model=model,
        value=gain.loss.value,
        low=gain.loss.low,
        high=gain.loss.high,
        unit="nats per token",
        quantity=f"gain in validation loss from pre-training, with {share} % of the pairs ({over})",
        verdict=f"{_whether(own)}: {at}; {_against(model, share, gains)}",
        figure="loss",
    )


def _whether(own: Mapping[int, Gain]) -> str:
    better = [f"{share} %" for share, gain in own.items() if excludes_zero(gain.loss) and gain.loss.value > 0]
    worse = [f"{share} %" for share, gain in own.items() if excludes_zero(gain.loss) and gain.loss.value < 0]
    if worse:
        return f"loses by pre-training at {' and '.join(worse)}"
    if not better:
        return "no gain from pre-training to be told from chance"
    return "gains from pre-training at every share" if len(better) == len(own) else f"gains at {' and '.join(better)}"


def _against(model: str, share: int, gains: Gains) -> str:
    """How its gain stands to the largest of the others; both were told the same sentences."""
    others = [name for name in gains if name != model and share in gains[name]]
    if not others:
        return "no other model was measured"
    other = max(others, key=lambda name: gains[name][share].loss.value)
    mine, theirs = gains[model][share], gains[other][share]
    if len(mine.resampled) != len(theirs.resampled):
        return "no other model was measured"
    difference = estimate(mine.loss.value - theirs.loss.value, mine.resampled - theirs.resampled)
    if not excludes_zero(difference):
        return f"at {share} % no different from {other}"
    return f"at {share} % {abs(difference.value):.2f} {'more' if difference.value > 0 else 'less'} than {other}"


def _against_pairs(runs: Mapping[int, Mapping[str, BySeed]], what: str) -> Figure:
    """Both arms of every model against the number of pairs."""
    of = loss_of if what == "loss" else bleu_of
    series = []
    for model in dict.fromkeys(model for found in runs.values() for model in found):
        own = [found[model] for found in runs.values() if model in found]
        for arm, words in _ARMS.items():
            values = [mean([of(run, arm) for run in each.values()]) for each in own]
            places = [statistics.mean(run["pairs"] for run in each.values()) for each in own]
            certain = all(len(each) > 2 for each in own)
            series.append(line(f"{model}, {words}", model, places, values, certain))
    y = Axis(label="validation loss", unit="nats per token") if what == "loss" else Axis(label="BLEU, greedy", unit="%")
    return Figure(
        name=what,
        title=f"{'Validation loss' if what == 'loss' else 'BLEU'} against pairs, fine-tuned and from scratch",
        x=Axis(label="pairs to learn from", log=True),
        y=y,
        series=series,
        caption="Equal updates in both arms; the best of several looks counts. Intervals (95 %): Student's over seeds, "
        "from three seeds on.",
    )


def _curves(runs: Mapping[int, Mapping[str, BySeed]]) -> list[Figure]:
    """Validation loss while training, of each model's first seed."""
    figures = []
    for share, found in runs.items():
        series = []
        for model, own in found.items():
            run = next(iter(own.values()))
            for arm, words in _ARMS.items():
                its = run["arms"][arm]
                x = [float(update) for update in its["updates"]]
                series.append(Series(label=f"{model}, {words}", model=model, x=x, y=its["curve"]))
        if series:
            figures.append(
                Figure(
                    name=f"curve-{share}",
                    title=f"Validation loss while learning from {share} % of the pairs, first seed",
                    x=Axis(label="updates"),
                    y=Axis(label="validation loss", unit="nats per token"),
                    series=series,
                )
            )
    return figures


def _gains(gains: Gains) -> Table:
    rows: list[Row] = [
        [model, share, gain.seeds, *ends(gain.loss, 3), *ends(gain.bleu, 2), round(gain.before, 3)]
        for model, own in gains.items()
        for share, gain in own.items()
    ]
    return Table(
        name="gains",
        title="What pre-training gains",
        columns=[
            "model",
            "pairs (%)",
            "seeds",
            "loss (nats per token)",
            "low",
            "high",
            "BLEU",
            "low (BLEU)",
            "high (BLEU)",
            "loss before the first update (nats per token)",
        ],
        rows=rows,
    )


def _arms(runs: Mapping[int, Mapping[str, BySeed]]) -> Table:
    rows: list[Row] = [
        [
            model,
            share,
            seed,
            words,
            run["pairs"],
            (run["pretraining_updates"] if arm == "tuned" else 0),
            run["updates"],
            run["arms"][arm]["updates"][int(np.argmin(run["arms"][arm]["curve"]))],
            round(loss_of(run, arm), 4),
            round(bleu_of(run, arm), 2),
            round(run["arms"][arm]["seconds"], 1),
            round(run["pretraining_seconds"], 1) if arm == "tuned" else None,
        ]
        for share, found in runs.items()
        for model, own in found.items()
        for seed, run in own.items()
        for arm, words in _ARMS.items()
    ]
    return Table(
        name="arms",
        title="Every training",
        columns=[
            "model",
            "pairs (%)",
            "seed",
            "arm",
            "pairs",
            "updates before",
            "updates",
            "best after",
            "validation loss (nats per token)",
            "BLEU, greedy",
            "training and looks (s)",
            "pre-training (s)",
        ],
        rows=rows,
    )
