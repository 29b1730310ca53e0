"""What length costs translators: how much of their BLEU on single sentences is left on longer texts."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Shaped

from s2s.evaluation.differences import Difference, Pairwise, over_seeds_and_sentences
from s2s.evaluation.gates import Gate, Judgement, beside, best_other, translates
from s2s.evaluation.inference import RESAMPLES, Estimate, draws, estimate, mean
from s2s.evaluation.metrics import metrics, scores_of
from s2s.experiments.contest import BySeed, Cells, Conclusion, Contest, Measured, by_model
from s2s.experiments.presenting import Column, Interval, Runs, axis, figure, filled, finding, gates_table, series, table
from s2s.experiments.verdicts import gates_of_training
from s2s.results import Figure, Finding, Table

JOINED = "joined"
MARGIN = 5.0
"""Points of what is left that nobody cares about."""
_ROW = "fixed-size bottleneck"
# texts on each side of the longest one that was learned from; with fewer, they stay together
_LEAST = 100
_OF_TEXTS = ("words", "counts", "exact")


@dataclass(frozen=True)
class Left:
    """What is left of a model's BLEU on single sentences when so many are read at once."""

    model: str
    place: int  # among the parts, from the shortest texts on
    together: int  # sentences of a text
    words: float  # of their sources, on average
    span: str  # from the shortest to the longest
    texts: int  # how many
    bleu: Estimate
    share: Estimate  # of the BLEU of single sentences, in percent
    exact: float  # texts translated as the reference, in percent
    unread: int  # texts that are longer than the model can read


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """How much of its own quality each model keeps on long texts, and whether another one keeps more."""
    found = by_model(contest, measured, JOINED)
    runs = {model: {seed: cut(run) for seed, run in own.items()} for model, own in found.items()}
    if not runs:
        return Conclusion()
    left = {model: [_left(model, own, i) for i in range(_parts(own))] for model, own in runs.items()}
    last = min(_parts(own) for own in runs.values()) - 1
    pairs = Pairwise.of(runs, lambda a, b: compared(runs[a], runs[b], last))
    closed = {model: gates(own) for model, own in runs.items()}
    learned = max(run["learned"] for own in runs.values() for run in own.values())
    return Conclusion(
        findings=[_finding(left[model][last], runs, _judgement(model, last, runs, pairs, closed)) for model in runs],
        figures=_figures(left, learned),
        tables=[
            _lengths(left),
            gates_table("a model before length is spoken of", closed),
            *filled(_pairs(pairs, next(iter(left.values()))[last].together)),
        ],
    )


def compared(first: BySeed, second: BySeed, place: int) -> Difference | None:
    """How much more of its own BLEU the second keeps, in points: the interaction of model and length.

    Texts of both lengths are drawn with replacement, each among its own. None below two seeds.
    """
    if not place:
        return None
    one, two = ([_both(run, place) for run in runs.values()] for runs in (first, second))
    return over_seeds_and_sentences(one, two, shares, _drawn(next(iter(first.values())), place))


def cut(run: Measured) -> Measured:
    """The measurement with texts of as many sentences in two parts where some are longer than all learned from."""
    parts = []
    for sentences, part in enumerate(run["parts"], start=1):
        longer = np.array(part["words"]) > run["learned"]
        sides = [~longer, longer] if min(longer.sum(), (~longer).sum()) >= _LEAST else [longer | True]
        for chosen in sides:
            own = {key: [each for each, here in zip(part[key], chosen, strict=True) if here] for key in _OF_TEXTS}
            # no model has fewer positions than it learned from
            parts.append({**own, "sentences": sentences, "unread": part["unread"] if chosen is sides[-1] else 0})
    return {**run, "parts": parts}


def gates(runs: BySeed) -> list[Gate]:
    """What must be true of a model before it is asked what length costs it."""
    return [translates(statistics.mean(_bleu(run, 0) for run in runs.values())), *gates_of_training(runs)]


def shares(sums: Shaped[np.ndarray, "rows counts"]) -> Shaped[np.ndarray, " rows"]:
    """BLEU of the right half of the counts, the long texts, in percent of that of the left half, the short ones."""
    short, long = (scores_of(metrics()["bleu"], half) for half in np.split(sums, 2, axis=1))
    return 100 * long / np.maximum(short, 1e-9)


def _both(run: Measured, place: int) -> Shaped[np.ndarray, "texts counts"]:
    """Counts of single sentences, and beside and below them those of long texts; zeros elsewhere."""
    short, long = (np.array(run["parts"][i]["counts"]) for i in (0, place))
    return np.block([[short, np.zeros_like(short)], [np.zeros_like(long), long]])


def _drawn(run: Measured, place: int) -> np.ndarray:
    return np.hstack([draws(len(run["parts"][i]["counts"]), stream=1 + i) for i in (0, place)])


def _parts(runs: BySeed) -> int:
    return min(len(run["parts"]) for run in runs.values())


def _bleu(run: Measured, place: int) -> float:
    return float(scores_of(metrics()["bleu"], np.array(run["parts"][place]["counts"]).sum(axis=0)[None])[0])


def _left(model: str, runs: BySeed, place: int) -> Left:
    made = list(runs.values())
    parts = [run["parts"][place] for run in made]
    words = parts[0]["words"]
    values = [float(shares(_both(run, place).sum(axis=0)[None])[0]) for run in made]
    share = mean(values)
    if len(made) == 1:
        resampled = shares(_drawn(made[0], place) @ _both(made[0], place)) if place else np.full(RESAMPLES, 100.0)
        share = estimate(values[0], resampled)
    return Left(
        model=model,
        place=place,
        together=parts[0]["sentences"],
        words=statistics.mean(words),
        span=f"{min(words)}–{max(words)}",
        texts=len(words),
        bleu=mean([_bleu(run, place) for run in made]),
        share=share,
        exact=100 * statistics.mean(statistics.mean(part["exact"]) for part in parts),
        unread=parts[0]["unread"],
    )


def _finding(own: Left, runs: Runs, said: Judgement) -> Finding:
    quantity = f"BLEU on texts of {own.words:.0f} words, in percent of its own on single sentences"
    tokens = statistics.mean(run["tokens"][-1] for run in runs[own.model].values())
    return finding(_ROW, own.model, own.share, "%", quantity, said, "share", tokens)


def _judgement(model: str, place: int, runs: Runs, pairs: Pairwise, closed: Mapping[str, Sequence[Gate]]) -> Judgement:
    # what translates nothing keeps all of it, and is no measure
    other = best_other(model, {name: _share(own, place) for name, own in runs.items()}, closed)
    said = beside(model, other, pairs, closed, "% of its own BLEU", MARGIN)
    return replace(said, variations=_variations(runs[model], runs[other], place)) if said.decided else said


def _share(runs: BySeed, place: int, without: int | None = None) -> float:
    return statistics.mean(
        float(shares(_both(run, place).sum(axis=0)[None])[0]) for seed, run in runs.items() if seed != without
    )


def _variations(own: BySeed, other: BySeed, place: int) -> dict[str, bool]:
    """Whether the first of two models stays on its side of the other, by what was chosen instead."""
    ahead = _share(own, place) > _share(other, place)
    sides = {"shorter texts": _share(own, place - 1) > _share(other, place - 1)} if place > 1 else {}
    lost = [statistics.mean(_bleu(run, 0) - _bleu(run, place) for run in runs.values()) for runs in (own, other)]
    sides["BLEU lost, in points"] = lost[0] < lost[1]
    if min(len(own), len(other)) > 2:
        seeds = [seed for seed in own if seed in other]
        sides |= {f"without seed {seed}": _share(own, place, seed) > _share(other, place, seed) for seed in seeds}
    return {name: side == ahead for name, side in sides.items()}


def _figures(left: Mapping[str, list[Left]], learned: int) -> list[Figure]:
    shown = []
    x = axis("words of the source, mean of its texts")
    measures = {
        "share": ("BLEU in percent of its own on single sentences", "BLEU kept"),
        "bleu": ("BLEU against the length of the source", "BLEU"),
    }
    for key, (title, label) in measures.items():
        lines = [
            series(m, m, [each.words for each in own], [getattr(each, key) for each in own]) for m, own in left.items()
        ]
        lines.append(series("longest text learned from", "", [learned, learned], [0.0, 100.0], reference=True))
        caption = (
            "Texts of as many sentences are two points where some are longer than all that was learned from. "
            "Intervals (95 %): Student's over seeds; of texts drawn with replacement where there is one seed."
        )
        shown.append(figure(key, title, (x, axis(label, "%")), lines, caption))
    return shown


def _lengths(left: Mapping[str, list[Left]]) -> Table:
    columns = [
        *(Column("model"), Column("sentences", "together"), Column("words", "words", 1), Column("from–to", "span")),
        *(
            Column("texts"),
            Interval("BLEU", "bleu", 2),
            Interval("of its own on single sentences (%)", "share", 1, "%"),
        ),
        *(Column("exact (%)", "exact", 1), Column("too long to be read", "unread")),
    ]
    rows = [vars(each) for own in left.values() for each in own]
    return table("lengths", "BLEU by the number of sentences that are read at once", columns, rows)


def _pairs(pairs: Pairwise, sentences: int) -> Table:
    rows = [
        {"models": f"{b} − {a}", "difference": pair, "p": pair.p(), "corrected": pairs.p[a, b]}
        | {"equal": pair.equivalence_p(MARGIN), "seen": pair.detectable(level=pairs.level)}
        for (a, b), pair in pairs.items()
    ]
    columns = [
        *(Column("models"), Interval("points of what is kept", "difference", 2), Column("p", "p", 4)),
        *(Column("p, of all pairs (Holm)", "corrected", 4), Column(f"p (equal within {MARGIN:g})", "equal", 4)),
        Column("seen in 80 % (points)", "seen", 2),
    ]
    title = f"How much more of its own BLEU one model keeps than another with {sentences} sentences at once"
    return table("pairs", title, columns, rows)
