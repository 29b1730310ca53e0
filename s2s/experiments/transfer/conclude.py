"""What fine-tuning gains over training from scratch."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from s2s.evaluation.inference import Estimate, draws, estimate, mean, ratios
from s2s.experiments.contest import BySeed, Cells, Conclusion, Contest, Measured, by_model
from s2s.experiments.presenting import Column, Interval, axis, figure, finding, series, table
from s2s.experiments.translating import corpus_score, resampled_scores
from s2s.experiments.verdicts import excludes_zero, listed, seeds_in_words
from s2s.results import Figure, Finding, Table

SHARES = (1, 10, 100)  # per cent of the pairs
_SHOWN = 10  # of them: the table's cell
_ARMS = {"tuned": "fine-tuned", "scratch": "from scratch"}

# by share and model
Runs = Mapping[int, Mapping[str, BySeed]]


@dataclass(frozen=True)
class Gain:
    """What was gained at one share of the pairs."""

    seeds: int  # how many
    loss: Estimate  # from scratch minus fine-tuned, in nats per token
    resampled: np.ndarray  # the same over sentences, resample by resample, mean of the seeds
    bleu: Estimate  # fine-tuned minus from scratch
    before: float  # fresh minus trained weights before the first update, in nats per token


Gains = dict[str, dict[int, Gain]]


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """What was gained, share by share."""
    runs = {share: by_model(contest, measured, f"share-{share}") for share in SHARES}
    gains: Gains = {}
    for model in contest.models:
        own = {share: gain_of(each[model]) for share, each in runs.items() if model in each}
        if own:
            gains[model] = own
    seeds = sorted({cell.seed or 0 for cell in measured})
    if not gains:
        return Conclusion(seeds=seeds)
    return Conclusion(
        findings=[_finding(model, gains) for model in gains],
        figures=[_against_pairs(runs, "loss"), _against_pairs(runs, "bleu"), *map(_curve, runs.items())],
        tables=[_gains(gains), _arms(runs)],
        seeds=seeds,
    )


def loss_of(run: Measured, arm: str) -> float:
    """The best validation loss of an arm, in nats per token."""
    return min(run["arms"][arm]["curve"])


def bleu_of(run: Measured, arm: str) -> float:
    """The BLEU of an arm's best weights."""
    return corpus_score("bleu", np.array(run["arms"][arm]["counts"]))


def gain_of(runs: BySeed) -> Gain:
    """What was gained, over seeds where there are some, otherwise over sentences."""
    differences = [loss_of(run, "scratch") - loss_of(run, "tuned") for run in runs.values()]
    bleus = [bleu_of(run, "tuned") - bleu_of(run, "scratch") for run in runs.values()]
    resampled = np.mean([_losses(run, "scratch") - _losses(run, "tuned") for run in runs.values()], axis=0)
    loss, bleu = mean(differences), mean(bleus)
    if len(runs) == 1:
        loss = estimate(loss.value, resampled)
        (run,) = runs.values()
        counts = (np.array(run["arms"][arm]["counts"]) for arm in _ARMS)
        tuned, scratch = (resampled_scores("bleu", each, draws(len(each))) for each in counts)
        bleu = estimate(bleu.value, tuned - scratch)
    before = [run["arms"]["scratch"]["curve"][0] - run["arms"]["tuned"]["curve"][0] for run in runs.values()]
    return Gain(len(runs), loss, resampled, bleu, statistics.mean(before))


def _losses(run: Measured, arm: str) -> np.ndarray:
    losses, tokens = np.array(run["arms"][arm]["losses"]), np.array(run["tokens"])
    return ratios(losses, tokens, draws(len(tokens)))


def _finding(model: str, gains: Gains) -> Finding:
    own = gains[model]
    share = _SHOWN if _SHOWN in own else min(own)
    gain = own[share]
    over = "interval over sentences, 1 seed" if gain.seeds == 1 else f"mean of {seeds_in_words(gain.seeds)}"
    each = listed([f"{gain.loss.value:.2f}" for gain in own.values()])
    at = f"{each} nats per token at {listed([str(share) for share in own])} % of the pairs"
    quantity = f"gain in validation loss from pre-training, with {share} % of the pairs ({over})"
    better = [f"{share} %" for share, gain in own.items() if excludes_zero(gain.loss) and gain.loss.value > 0]
    worse = [f"{share} %" for share, gain in own.items() if excludes_zero(gain.loss) and gain.loss.value < 0]
    whether = "no gain from pre-training to be told from chance"
    if worse:
        whether = f"loses by pre-training at {' and '.join(worse)}"
    elif better:
        every = len(better) == len(own)
        whether = "gains from pre-training at every share" if every else f"gains at {' and '.join(better)}"
    verdict = f"{whether}: {at}; {_against(model, share, gains)}"
    return finding("fine-tuning", model, gain.loss, "nats per token", quantity, verdict, "loss")


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


def _against_pairs(runs: Runs, what: str) -> Figure:
    """Both arms of every model against the number of pairs."""
    of, words, y = {
        "loss": (loss_of, "Validation loss", axis("validation loss", "nats per token")),
        "bleu": (bleu_of, "BLEU", axis("BLEU, greedy", "%")),
    }[what]
    shown = []
    for model in dict.fromkeys(model for of_share in runs.values() for model in of_share):
        own = [of_share[model] for of_share in runs.values() if model in of_share]
        places = [statistics.mean(run["pairs"] for run in each.values()) for each in own]
        for arm, called in _ARMS.items():
            values = [mean([of(run, arm) for run in each.values()]) for each in own]
            certain = all(len(each) > 2 for each in own)
            shown.append(series(f"{model}, {called}", model, places, values, certain))
    return figure(
        what,
        f"{words} against pairs, fine-tuned and from scratch",
        (axis("pairs to learn from", log=True), y),
        shown,
        "Equal updates in both arms; the best of several looks counts. Intervals (95 %): Student's over seeds, "
        "from three seeds on.",
    )


def _curve(of_share: tuple[int, Mapping[str, BySeed]]) -> Figure:
    """Validation loss while training, of each model's first seed."""
    share, models = of_share
    arms = [(model, arm, next(iter(own.values()))["arms"][arm]) for model, own in models.items() for arm in _ARMS]
    return figure(
        f"curve-{share}",
        f"Validation loss while learning from {share} % of the pairs, first seed",
        (axis("updates"), axis("validation loss", "nats per token")),
        [series(f"{model}, {_ARMS[arm]}", model, its["updates"], its["curve"]) for model, arm, its in arms],
    )


def _gains(gains: Gains) -> Table:
    columns = [
        Column("model"),
        Column("pairs (%)", "share"),
        Column("seeds"),
        Interval("loss (nats per token)", "loss", 3),
        Interval("BLEU", "bleu", 2, "BLEU"),
        Column("loss before the first update (nats per token)", "before", 3),
    ]
    rows = [
        {"model": model, "share": share, **vars(gain)} for model, own in gains.items() for share, gain in own.items()
    ]
    return table("gains", "What pre-training gains", columns, rows)


def _arms(runs: Runs) -> Table:
    def before(row: Measured, key: str) -> float | None:
        return row[key] if row["arm"] == "tuned" else None

    columns = [
        Column("model"),
        Column("pairs (%)", "share"),
        Column("seed"),
        Column("arm", lambda row: _ARMS[row["arm"]]),
        Column("pairs"),
        Column("updates before", lambda row: before(row, "pretraining_updates") or 0),
        Column("updates"),
        Column("best after", lambda row: row["its"]["updates"][int(np.argmin(row["its"]["curve"]))]),
        Column("validation loss (nats per token)", lambda row: loss_of(row, row["arm"]), 4),
        Column("BLEU, greedy", lambda row: bleu_of(row, row["arm"]), 2),
        Column("training and looks (s)", lambda row: row["its"]["seconds"], 1),
        Column("pre-training (s)", lambda row: before(row, "pretraining_seconds"), 1),
    ]
    rows = [
        {**run, "model": model, "seed": seed, "arm": arm, "its": run["arms"][arm]}
        for of_share in runs.values()
        for model, own in of_share.items()
        for seed, run in own.items()
        for arm in _ARMS
    ]
    return table("arms", "Every training", columns, rows)
