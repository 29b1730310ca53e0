"""Analyse the loss of BLEU with the length of the source (fixed-size bottleneck)."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Shaped
from scipy.linalg import block_diag

from s2s.comparison.paired_tests import WITHOUT_A_SEED, gates_of_training
from s2s.comparison.reporting import Column, Interval, Runs, axis, figure, filled, gates_table, series, table, verdict
from s2s.comparison.results import Figure, Table, Verdict
from s2s.comparison.spec import Analysis, BySeed, Comparison, Measured, Trials, by_model
from s2s.evaluation.differences import Difference, Pairwise, over_seeds_and_sentences
from s2s.evaluation.gates import Assessment, Gate, beside, best_other, translates
from s2s.evaluation.inference import Estimate, draws, estimate, mean
from s2s.evaluation.metrics import metrics, scores_of

JOINED = "joined"
MARGIN = 5.0
"""Points of what is left that nobody cares about."""
_ROW = "sentence length (fixed-size bottleneck)"
# texts that make a kind of their own where most of as many sentences lie on the other side of the training's longest
_LEAST = 100
_OF_TEXTS = ("words", "counts", "exact")


@dataclass(frozen=True)
class Left:
    """BLEU of a candidate on texts of some number of sentences, relative to single sentences."""

    model: str
    place: int  # among the parts, from the shortest texts on
    together: int  # sentences of a text
    words: float  # of their sources, on average
    span: str  # from the shortest to the longest
    beyond: str  # whether they are longer than anything learned from
    texts: int  # how many
    bleu: Estimate
    share: Estimate  # of the BLEU of single sentences, in percent
    exact: float  # texts translated as the reference, in percent
    unread: int  # texts that are longer than the model can read


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Compare the share of BLEU that candidates keep on texts longer than any trained on."""
    found = by_model(comparison, measured, JOINED)
    runs = {model: {seed: cut(run) for seed, run in own.items()} for model, own in found.items()}
    if not runs:
        return Analysis()
    left = {model: [_left(model, own, i) for i in range(_parts(own))] for model, own in runs.items()}
    places = beyond(runs)
    pairs = Pairwise.of(runs, lambda a, b: compared(runs[a], runs[b], places))
    closed = {model: gates(own) for model, own in runs.items()}
    learned = max(run["learned"] for own in runs.values() for run in own.values())
    assessed = {model: _assess(model, places, runs, pairs, closed) for model in runs}
    return Analysis(
        findings=[_verdict(model, own, places, assessed[model]) for model, own in runs.items()],
        figures=_figures(left, learned),
        tables=[
            _lengths(left),
            gates_table("a model before length is spoken of", closed),
            *filled(_pairs(pairs, runs, places)),
        ],
    )


def beyond(runs: Runs) -> list[int]:
    """The places of all kinds of texts that are longer than anything learned from, the shortest first.

    Single sentences are what they are measured by. They are the kinds that all models translated.
    """
    run = next(iter(next(iter(runs.values())).values()))
    return [i for i in range(1, min(map(_parts, runs.values()))) if min(run["parts"][i]["words"]) > run["learned"]]


def compared(first: BySeed, second: BySeed, places: Sequence[int]) -> Difference | None:
    """Difference of the kept share of BLEU (second minus first), in points: the interaction of model and length.

    Texts are resampled within each kind. None below two seeds, or without any kind.
    """
    if not places:
        return None
    one, two = ([_together(run, places) for run in runs.values()] for runs in (first, second))
    drawn = _drawn(next(iter(first.values())), places)
    return over_seeds_and_sentences(one, two, partial(kept_share, kinds=len(places)), drawn)


def cut(run: Measured) -> Measured:
    """The measurement with texts that are all longer than anything learned from, or all not, in each of its parts.

    Texts of as many sentences make two parts, or one without the fewer ones where these are not enough.
    """
    parts = []
    for sentences, part in enumerate(run["parts"], start=1):
        longer = np.array(part["words"]) > run["learned"]
        sides = [~longer, longer]
        if min(side.sum() for side in sides) < _LEAST:
            sides = [max(sides, key=lambda side: side.sum())]
        for chosen in sides:
            own = {key: [each for each, here in zip(part[key], chosen, strict=True) if here] for key in _OF_TEXTS}
            # no model has fewer positions than it learned from
            unread = part["unread"] if longer[chosen].all() else 0
            parts.append({**own, "sentences": sentences, "unread": unread})
    return {**run, "parts": parts}


def gates(runs: BySeed) -> list[Gate]:
    """Validity checks of a candidate."""
    return [translates(statistics.mean(_bleu(run, 0) for run in runs.values())), *gates_of_training(runs)]


def kept_share(sums: Shaped[np.ndarray, "rows counts"], kinds: int) -> Shaped[np.ndarray, " rows"]:
    """BLEU of longer texts in percent of that of single sentences: the mean over kinds of texts.

    Args:
        sums: of the counts of single sentences, and beside them those of each kind of longer texts.
        kinds: how many there are.
    """
    single, *longer = (scores_of(metrics()["bleu"], part) for part in np.split(sums, 1 + kinds, axis=1))
    return np.mean([100 * each / np.maximum(single, 1e-9) for each in longer], axis=0)


def _together(run: Measured, places: Sequence[int]) -> Shaped[np.ndarray, "texts counts"]:
    """Counts of single sentences, and beside and below them those of each kind of texts; zeros elsewhere."""
    # sums of so many whole numbers are exact in floats, and much faster
    return np.asarray(block_diag(*(np.array(run["parts"][i]["counts"], dtype=float) for i in (0, *places))))


def _drawn(run: Measured, places: Sequence[int]) -> np.ndarray:
    return np.hstack([draws(len(run["parts"][i]["counts"]), stream=1 + i) for i in (0, *places)])


def _kept(run: Measured, places: Sequence[int]) -> float:
    return float(kept_share(_together(run, places).sum(axis=0)[None], len(places))[0])


def _estimate(runs: BySeed, places: Sequence[int]) -> Estimate:
    """Kept share over seeds; with one seed, over resampled texts."""
    values = [_kept(run, places) for run in runs.values()]
    if len(values) > 1:
        return mean(values)
    (run,) = runs.values()
    return estimate(values[0], kept_share(_drawn(run, places) @ _together(run, places), len(places)))


def _parts(runs: BySeed) -> int:
    return min(len(run["parts"]) for run in runs.values())


def _bleu(run: Measured, place: int) -> float:
    return float(scores_of(metrics()["bleu"], np.array(run["parts"][place]["counts"]).sum(axis=0)[None])[0])


def _left(model: str, runs: BySeed, place: int) -> Left:
    made = list(runs.values())
    parts = [run["parts"][place] for run in made]
    words = parts[0]["words"]
    return Left(
        model=model,
        place=place,
        together=parts[0]["sentences"],
        words=statistics.mean(words),
        span=f"{min(words)}–{max(words)}",
        beyond="yes" if min(words) > made[0]["learned"] else "no",
        texts=len(words),
        bleu=mean([_bleu(run, place) for run in made]),
        share=_estimate(runs, [place]) if place else Estimate(100.0, 100.0, 100.0),
        exact=100 * statistics.mean(statistics.mean(part["exact"]) for part in parts),
        unread=parts[0]["unread"],
    )


def _verdict(model: str, runs: BySeed, places: Sequence[int], found: Assessment) -> Verdict:
    tokens = statistics.mean(run["tokens"][-1] for run in runs.values())
    value = _estimate(runs, places) if places else None
    quantity = "BLEU on texts longer than any learned from, in percent of its own on single sentences"
    if places:
        words = [n for i in places for n in next(iter(runs.values()))["parts"][i]["words"]]
        quantity += f": mean over {len(places)} kinds of {min(words)} to {max(words)} words"
    return verdict(_ROW, model, value, "%", quantity, found, "share", tokens)


def _assess(
    model: str, places: Sequence[int], runs: Runs, pairs: Pairwise, checks: Mapping[str, Sequence[Gate]]
) -> Assessment:
    own = runs[model]
    learned = next(iter(own.values()))["learned"]
    if not places:
        reason = f"no texts were longer than the {learned} words of the longest learned from"
        return Assessment("not measurable", reasons=(reason,))
    # what translates nothing keeps all of it, and is no measure
    other = best_other(model, {name: _mean_kept(each, places) for name, each in runs.items()}, checks)
    test = "t-test over seeds and texts, Holm"
    found = beside(model, other, pairs, checks, "% of its own BLEU", MARGIN, test=test)
    facts = {"words of the longest text learned from": learned}
    return replace(found, facts=facts, variations=_variations(own, runs[other], places) if found.decided else {})


def _mean_kept(runs: BySeed, places: Sequence[int], without: int | None = None) -> float:
    return statistics.mean(_kept(run, places) for seed, run in runs.items() if seed != without)


def _variations(own: BySeed, other: BySeed, places: Sequence[int]) -> dict[str, bool]:
    """Recompute the difference under other choices, to see whether its sign stays."""

    def _more(at: Sequence[int], without: int | None = None) -> bool:
        return _mean_kept(own, at, without) > _mean_kept(other, at, without)

    ends = {"the first texts beyond": places[:1], "the longest texts": places[-1:]} if len(places) > 1 else {}
    sides = {name: _more(at) for name, at in ends.items()}
    lost = [
        statistics.mean(_bleu(run, 0) - _bleu(run, i) for run in runs.values() for i in places) for runs in (own, other)
    ]
    sides["BLEU lost, in points"] = lost[0] < lost[1]
    kept = {name: side == _more(places) for name, side in sides.items()}
    if min(len(own), len(other)) > 2:
        kept[WITHOUT_A_SEED] = all(_more(places, seed) == _more(places) for seed in own if seed in other)
    return kept


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
            "Texts of as many sentences are two points where enough are longer than all that was learned from, and "
            "enough are not. The table has the mean of the points beyond the dashed line. "
            "Intervals (95 %): Student's over seeds; of texts drawn with replacement where there is one seed."
        )
        shown.append(figure(key, title, (x, axis(label, "%")), lines, caption))
    return shown


def _lengths(left: Mapping[str, list[Left]]) -> Table:
    columns = [
        *(Column("model"), Column("sentences", "together"), Column("words", "words", 1), Column("from–to", "span")),
        Column("longer than all learned from", "beyond"),
        *(
            Column("texts"),
            Interval("BLEU", "bleu", 2),
            Interval("of its own on single sentences (%)", "share", 1, "%"),
        ),
        *(Column("exact (%)", "exact", 1), Column("too long to be read", "unread")),
    ]
    rows = [vars(each) for own in left.values() for each in own]
    return table("lengths", "BLEU by the number of sentences that are read at once", columns, rows)


def _pairs(pairs: Pairwise, runs: Runs, places: Sequence[int]) -> Table:
    rows = [
        {"models": f"{b} − {a}", "difference": pair, "p": pair.p(), "corrected": pairs.p[a, b]}
        | {"equal": pair.equivalence_p(MARGIN), "seen": pair.detectable(level=pairs.level)}
        | {i: _mean_kept(runs[b], [i]) - _mean_kept(runs[a], [i]) for i in places}
        for (a, b), pair in pairs.items()
    ]
    parts = next(iter(next(iter(runs.values())).values()))["parts"]
    columns = [
        *(Column("models"), Interval("points of what is kept", "difference", 2), Column("p", "p", 4)),
        *(Column("p, of all pairs (Holm)", "corrected", 4), Column(f"p (equal within {MARGIN:g})", "equal", 4)),
        Column("seen in 80 % (points)", "seen", 2),
        *(Column(f"{parts[i]['sentences']} sentences (points)", lambda row, at=i: row[at], 2) for i in places),
    ]
    title = (
        "How much more of its own BLEU one model keeps than another on texts longer than all that was learned from: "
        "mean over them, and with so many sentences at once"
    )
    return table("pairs", title, columns, rows)
