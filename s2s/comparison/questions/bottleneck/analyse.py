"""Analyse the share of its BLEU that a model keeps on longer sources (fixed-size bottleneck)."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from s2s.comparison.claims import traits_of
from s2s.comparison.longer_texts import (
    Kinds,
    Translations,
    block_counts,
    drawn_texts,
    kept_share,
    longer_kinds,
    retained_bleu,
    split_by_length,
)
from s2s.comparison.paired_tests import WITHOUT_A_SEED, gates_of_training
from s2s.comparison.questions.bottleneck.claims import NEAR, translates_longer
from s2s.comparison.reporting import (
    Column,
    Interval,
    Runs,
    axis,
    figure,
    filled,
    first_run,
    gates_table,
    series,
    table,
    verdict,
)
from s2s.comparison.results import Claim, Figure, Table, Verdict
from s2s.comparison.runs import TrainedRun
from s2s.comparison.spec import Analysis, Comparison, Trial, by_model
from s2s.evaluation.differences import Difference, Pairwise, over_seeds_and_sentences
from s2s.evaluation.gates import Assessment, Gate, assess_pair, best_other, translates
from s2s.evaluation.inference import Estimate, estimate, mean

JOINED = "joined"
MARGIN = 5.0
"""Equivalence margin: percentage points of the kept BLEU."""


@dataclass(frozen=True, kw_only=True)
class BottleneckRun(TrainedRun):
    """Measurement of a trained translator on texts of one sentence, two, and so on."""

    parts: list[Translations]
    learned: int  # words of the longest training source


def analyse(comparison: Comparison, measured: Mapping[Trial, BottleneckRun]) -> Analysis:
    """Compare the share of BLEU that candidates keep on texts longer than all training sources."""
    runs = by_model(comparison, measured, JOINED)
    if not runs:
        return Analysis()
    kinds = {
        model: {seed: split_by_length(run.parts, run.learned) for seed, run in own.items()}
        for model, own in runs.items()
    }
    places = longer_kinds(kinds)
    pairs = Pairwise.of(runs, lambda a, b: compared(kinds[a], kinds[b], places))
    checks: dict[str, list[Gate]] = {}
    for model, own in runs.items():
        bleu = statistics.mean(each[0].bleu for each in kinds[model].values())
        checks[model] = [translates(bleu), *gates_of_training(own, MARGIN)]
    learned = max(run.learned for own in runs.values() for run in own.values())
    rows = [row for model, own in kinds.items() for row in _rows(model, own)]
    return Analysis(
        findings=[_verdict(model, runs, kinds, places, pairs, checks) for model in runs],
        figures=_figures(rows, learned),
        tables=[
            _lengths(rows),
            gates_table("the models", checks),
            *filled(_pairs(pairs, kinds, places)),
        ],
        claims=[_claim(comparison, kinds, places, checks, learned)],
    )


def _claim(
    comparison: Comparison,
    kinds: Mapping[str, Kinds],
    places: Sequence[int],
    checks: Mapping[str, Sequence[Gate]],
    learned: int,
) -> Claim | None:
    if not places:
        return None
    choices = {"all": places}
    if len(places) > 1:
        choices |= {NEAR: places[:1], "the longest texts": places[-1:]}
    shares = {
        name: {model: [retained_bleu(each, at) for each in runs.values()] for model, runs in kinds.items()}
        for name, at in choices.items()
    }
    estimates = {model: _estimate(runs, places) for model, runs in kinds.items()}
    return translates_longer(traits_of(comparison), estimates, shares, checks, learned, MARGIN)


def compared(first: Kinds, second: Kinds, places: Sequence[int]) -> Difference | None:
    """Test the difference of the kept share of BLEU (second minus first): the interaction of model and length.

    Texts are resampled within each kind.

    Returns:
        The difference in percentage points; None below two seeds, or without longer kinds.
    """
    if not places:
        return None
    one, two = ([block_counts(own, places) for own in runs.values()] for runs in (first, second))
    drawn = drawn_texts(first_run(first), places)
    return over_seeds_and_sentences(one, two, partial(kept_share, kinds=len(places)), drawn)


def _mean_retained_bleu(runs: Kinds, places: Sequence[int], without: int | None = None) -> float:
    return statistics.mean(retained_bleu(kinds, places) for seed, kinds in runs.items() if seed != without)


def _estimate(runs: Kinds, places: Sequence[int]) -> Estimate:
    """Estimate the kept share over seeds; with one seed, over resampled texts."""
    values = [retained_bleu(kinds, places) for kinds in runs.values()]
    if len(values) > 1:
        return mean(values)
    kinds = first_run(runs)
    return estimate(values[0], kept_share(drawn_texts(kinds, places) @ block_counts(kinds, places), len(places)))


def _verdict(
    model: str,
    runs: Runs[BottleneckRun],
    kinds: Mapping[str, Kinds],
    places: Sequence[int],
    pairs: Pairwise,
    checks: Mapping[str, Sequence[Gate]],
) -> Verdict:
    own, learned = kinds[model], first_run(runs[model]).learned
    quantity = "BLEU on texts longer than those trained on, in percent of the BLEU on single sentences"
    if places:
        words = np.concatenate([first_run(own)[i].words for i in places])
        quantity += f": mean over {len(places)} kinds of texts, {words.min()} to {words.max()} words"
        # a model that translates nothing keeps all of its BLEU, and fails its checks
        other = best_other(model, {name: _mean_retained_bleu(each, places) for name, each in kinds.items()}, checks)
        test = "t-test over seeds and texts, Holm"
        found = assess_pair(model, other, pairs, checks, "percentage points", MARGIN, test=test)
        facts = {"words of the longest training source": learned}
        kept = _variations(own, kinds[other], places) if found.decided else {}
        value, found = _estimate(own, places), replace(found, facts=facts, variations=kept)
    else:
        reason = f"no text is longer than the longest training source, {learned} words"
        value, found = None, Assessment("not measurable", reasons=(reason,))
    tokens = statistics.mean(run.tokens[-1] for run in runs[model].values())
    return verdict("text longer than trained on", model, value, "%", quantity, found, "share", tokens)


def _variations(own: Kinds, other: Kinds, places: Sequence[int]) -> dict[str, bool]:
    """Return whether the difference keeps its sign under other choices."""

    def _retains_more(at: Sequence[int], without: int | None = None) -> bool:
        return _mean_retained_bleu(own, at, without) > _mean_retained_bleu(other, at, without)

    ends = {NEAR: places[:1], "the longest texts": places[-1:]} if len(places) > 1 else {}
    sides = {name: _retains_more(at) for name, at in ends.items()}
    lost = [
        statistics.mean(kinds[0].bleu - kinds[i].bleu for kinds in runs.values() for i in places)
        for runs in (own, other)
    ]
    sides["BLEU lost, in points"] = lost[0] < lost[1]
    kept = {name: side == _retains_more(places) for name, side in sides.items()}
    if min(len(own), len(other)) > 2:
        kept[WITHOUT_A_SEED] = all(
            _retains_more(places, seed) == _retains_more(places) for seed in own if seed in other
        )
    return kept


@dataclass(frozen=True)
class _Row:
    """A row of the table of lengths: a model on a kind of texts."""

    model: str
    sentences: int
    words: float  # mean length of the sources
    span: str  # shortest to longest
    beyond: str
    texts: int
    bleu: Estimate
    share: Estimate  # BLEU in percent of that of single sentences
    exact: float  # percent
    unread: int


def _rows(model: str, runs: Kinds) -> list[_Row]:
    rows = []
    for i in range(min(map(len, runs.values()))):
        kinds = [own[i] for own in runs.values()]
        first = kinds[0]
        rows.append(
            _Row(
                model=model,
                sentences=first.sentences,
                words=float(first.words.mean()),
                span=f"{first.words.min()}–{first.words.max()}",
                beyond="yes" if first.beyond else "no",
                texts=len(first.words),
                bleu=mean([kind.bleu for kind in kinds]),
                share=_estimate(runs, [i]) if i else Estimate(100.0, 100.0, 100.0),
                exact=100 * statistics.mean(statistics.mean(kind.exact) for kind in kinds),
                unread=first.unread,
            )
        )
    return rows


def _figures(rows: Sequence[_Row], learned: int) -> list[Figure]:
    shown = []
    x = axis("mean length of the sources", "words")
    measures = {
        "share": ("BLEU in percent of the BLEU on single sentences", "BLEU kept"),
        "bleu": ("BLEU against the length of the source", "BLEU"),
    }
    caption = (
        "Texts with the same number of sentences are two points if enough of them are longer than the longest training "
        "source and enough are not. The score is the mean of the points beyond the dashed line. Intervals (95 %): "
        "Student's over seeds; with one seed, a bootstrap over texts."
    )
    for key, (title, label) in measures.items():
        lines = []
        for model in dict.fromkeys(row.model for row in rows):
            own = [row for row in rows if row.model == model]
            lines.append(series(model, model, [row.words for row in own], [getattr(row, key) for row in own]))
        lines.append(series("longest training source", "", [learned, learned], [0.0, 100.0], reference=True))
        shown.append(figure(key, title, (x, axis(label, "%")), lines, caption))
    return shown


def _lengths(rows: Sequence[_Row]) -> Table:
    columns = [
        Column("model"),
        Column("sentences"),
        Column("words", "words", 1),
        Column("words, range", "span"),
        Column("beyond the training lengths", "beyond"),
        Column("texts"),
        Interval("BLEU", "bleu", 2),
        Interval("BLEU kept (%)", "share", 1, "%"),
        Column("exact (%)", "exact", 1),
        Column("too long for the model", "unread"),
    ]
    title = "BLEU by the number of joined sentences; BLEU kept: in percent of the BLEU on single sentences"
    return table("lengths", title, columns, rows)


def _pairs(pairs: Pairwise, kinds: Mapping[str, Kinds], places: Sequence[int]) -> Table:
    rows = [
        {"models": f"{b} − {a}", "difference": pair, "p": pair.p(), "corrected": pairs.p[a, b]}
        | {"equal": pair.equivalence_p(MARGIN), "seen": pair.detectable(level=pairs.level)}
        | {str(i): _mean_retained_bleu(kinds[b], [i]) - _mean_retained_bleu(kinds[a], [i]) for i in places}
        for (a, b), pair in pairs.items()
    ]
    first = first_run(next(iter(kinds.values())))
    columns = [
        Column("models"),
        Interval("difference of BLEU kept (points)", "difference", 2),
        Column("p", "p", 4),
        Column("p (Holm)", "corrected", 4),
        Column(f"p (equal within {MARGIN:g})", "equal", 4),
        Column("detectable with 80 % power (points)", "seen", 2),
        *(Column(f"{first[i].sentences} sentences (points)", str(i), 2) for i in places),
    ]
    title = (
        "Differences in BLEU kept between models on texts longer than the longest training source: mean, and by number "
        "of sentences"
    )
    return table("pairs", title, columns, rows)
