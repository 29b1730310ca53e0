"""Analyse translations of texts longer than the training texts, by positional encoding."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from s2s.comparison.claims import Pair, claim_numbers, decide, describe_each
from s2s.comparison.longer_texts import Kinds, TextScores, longer_kinds, retained_bleu, split_by_length
from s2s.comparison.reporting import Column, Interval, axis, figure, series, table
from s2s.comparison.results import Claim, Figure, Table
from s2s.comparison.traits import Traits
from s2s.evaluation.differences import Difference, welch
from s2s.evaluation.gates import Gate, failed, translates
from s2s.evaluation.inference import Estimate, holm, mean

# Encoding that the claim is about, and the name of no encoding.
_RELATIVE, _NONE = "relative", "none"


@dataclass(frozen=True)
class LongerTexts:
    """Scores of translated texts of one sentence, of two, and so on, beyond the length of the training texts."""

    parts: list[TextScores]
    learned: int  # words of the longest training source


@dataclass(frozen=True)
class RelativeBleu:
    """BLEU of a model with one positional encoding on long texts, relative to its BLEU on single sentences.

    Attributes:
        positions: Positional encoding of encoder and decoder.
        bleu: BLEU of single sentences.
        shares: BLEU of longer texts in percent of `bleu`, mean over numbers of sentences, one for each seed.
        more: Difference of the shares to those with the model's own encoding; None for its own, and below two seeds.
        p: Its p-value, corrected for the number of other encodings (Holm 1979).
        written: Words of the translations of the longest texts in percent of those of the references.
        learned: Words of the longest training source.
    """

    positions: str
    bleu: float
    shares: list[float]
    more: Difference | None
    p: float | None
    written: float
    learned: int

    @property
    def share(self) -> Estimate:
        """Mean share over seeds, in percent."""
        return mean(self.shares)

    @property
    def seeds(self) -> int:
        """Number of trainings."""
        return len(self.shares)


Scores = Mapping[str, Mapping[int, LongerTexts]]
"""Scores of each seed by positional encoding, the model's own first."""


def relative_bleus(scores: Scores) -> list[RelativeBleu]:
    """Compare the BLEU on longer texts of each positional encoding with that of the model's own, the first one.

    Returns:
        A row for each encoding; none without texts that are longer than all training sources.
    """
    if len(scores) < 2 or not all(scores.values()):
        return []
    kinds = _split(scores)
    places = longer_kinds(kinds)
    if not places:
        return []
    shares = {name: [retained_bleu(each, places) for each in runs.values()] for name, runs in kinds.items()}
    own, *others = shares
    apart = {name: welch(shares[own], shares[name]) for name in others}
    tested = {name: found for name, found in apart.items() if found}
    corrected = dict(zip(tested, holm([found.p() for found in tested.values()]), strict=True))
    return [
        RelativeBleu(
            positions=name,
            bleu=statistics.mean(each[0].bleu for each in runs.values()),
            shares=shares[name],
            more=apart.get(name),
            p=corrected.get(name),
            written=_written(runs, places[-1]),
            learned=max(each.learned for each in scores[name].values()),
        )
        for name, runs in kinds.items()
    ]


def bleu_without(kept: Mapping[str, list[RelativeBleu]]) -> dict[str, tuple[float, float]]:
    """Return the BLEU of single sentences with a model's own positional encoding and without any.

    Args:
        kept: Rows of each model, its own encoding first.

    Returns:
        Both scores by model, if both were measured.
    """
    found = {model: {each.positions: each.bleu for each in rows} for model, rows in kept.items()}
    return {model: (rows[0].bleu, found[model][_NONE]) for model, rows in kept.items() if _NONE in found[model]}


def _split(scores: Scores) -> dict[str, Kinds]:
    """Split the texts of each positional encoding by length; see `split_by_length`."""
    return {
        name: {seed: split_by_length(each.parts, each.learned) for seed, each in runs.items()}
        for name, runs in scores.items()
    }


def _written(runs: Kinds, place: int) -> float:
    """Return the length of the translations at this index in percent of the references, in words."""
    # sacreBLEU's counts begin with the lengths of translation and reference
    lengths = np.sum([kinds[place].counts[:, :2].sum(axis=0) for kinds in runs.values()], axis=0)
    return 100 * float(lengths[0] / lengths[1])


def longer_figure(model: str, scores: Scores) -> Figure:
    """Draw BLEU relative to single sentences against source length, a line for each positional encoding."""
    lines = []
    for name, runs in _split(scores).items():
        places = range(min(map(len, runs.values())))
        first = next(iter(runs.values()))
        words = [float(first[i].words.mean()) for i in places]
        own = runs.values()
        kept = [mean([retained_bleu(each, [i]) for each in own]) if i else Estimate(100, 100, 100) for i in places]
        lines.append(series(name, f"{model}, {name}", words, kept))
    learned = max(each.learned for runs in scores.values() for each in runs.values())
    lines.append(series("longest training source", "", [learned, learned], [0.0, 100.0], reference=True))
    return figure(
        f"longer-{model}",
        f"BLEU of {model} in percent of the BLEU on single sentences, by positional encoding",
        (axis("mean source length", "words"), axis("BLEU kept", "%")),
        lines,
        "Encoder and decoder have the same encoding. Intervals (95 %): Student's over seeds.",
    )


def longer_table(kept: Mapping[str, list[RelativeBleu]]) -> Table:
    """Build the table of BLEU on longer texts, by model and positional encoding."""
    columns = [
        *map(Column, ("model", "positions", "seeds")),
        Column("BLEU of single sentences", "bleu", 2),
        Interval("BLEU kept on longer texts (%)", "share", 1, "%"),
        Interval("difference to its own (points)", "more", 1, "points"),
        Column("p (Holm)", "p", 4),
        Column("length of the longest translations (% of the references)", "written", 1),
    ]
    rows = [
        {"model": model, "positions": each.positions, "seeds": each.seeds, "bleu": each.bleu, "share": each.share}
        | {"more": each.more and Estimate(each.more.value, *each.more.interval()), "p": each.p, "written": each.written}
        for model, own in kept.items()
        for each in own
    ]
    return table("longer", "Translations of texts longer than trained on, by positional encoding", columns, rows)


def reaches_farther(
    traits: Mapping[str, Traits], kept: Mapping[str, list[RelativeBleu]], gates: Mapping[str, list[Gate]]
) -> Claim | None:
    """Decide whether relative positions keep more of a Transformer's BLEU beyond its training length.

    Args:
        traits: Traits of the candidates.
        kept: BLEU on longer texts by model, the model's own encoding first.
        gates: Validity checks of the trained models.

    Returns:
        The claim; None without a Transformer that was trained with relative positions and has others by default.
    """
    found = {model: {each.positions: each for each in own[1:]} for model, own in kept.items()}
    model = next((each for each, kinds in found.items() if traits[each].is_transformer and _RELATIVE in kinds), None)
    if model is None:
        return None
    own, by_kind, checks = kept[model][0], found[model], gates.get(model, [])
    decision = decide([_pair(by_kind[_RELATIVE], checks)])
    shares = {_name(kind): f"{each.share.value:.0f} %" for kind, each in by_kind.items() if kind != _RELATIVE}
    sentence = (
        f"Beyond the {own.learned} words trained on, {model} keeps {by_kind[_RELATIVE].share.value:.0f} % of its BLEU "
        f"on single sentences with relative positions and {own.share.value:.0f} % with {own.positions} "
        f"ones{decision.because}."
    )
    if shares:
        sentence += f" Other positions: {describe_each(shares)}."
    others = {own.positions: f"{own.share.value:.0f} %", **shares}
    return Claim(
        name="reaches-farther",
        measured=f"BLEU kept on texts longer than the {own.learned} words trained on, with relative positions (others)",
        unit="%",
        verdict=decision.verdict,
        sentence=sentence,
        numbers=claim_numbers(
            {each: by_kind[_RELATIVE].share if each == model else None for each in traits},
            notes={model: ", ".join(f"{kind} {share}" for kind, share in others.items())},
        ),
        p=decision.p,
        test="" if decision.p is None else "Welch's t-test over seeds, Holm",
        figure=f"longer-{model}",
        stable={
            f"{kind} positions": decide([_pair(each, checks)]).verdict == decision.verdict
            for kind, each in by_kind.items()
            if kind not in (_RELATIVE, _NONE)
        },
    )


def _name(kind: str) -> str:
    return "no positions" if kind == _NONE else kind


def _pair(kept: RelativeBleu, checks: list[Gate]) -> Pair:
    """Compare the share with that of the model's own encoding; a model that does not translate decides nothing."""
    closed = failed([*checks, translates(kept.bleu)])
    if closed or kept.more is None or kept.p is None:
        reason = closed[0].sentence if closed else "one seed, so no test"
        return Pair(kept.positions, "", 0.0, 1.0, reason=reason)
    return Pair(kept.positions, "", kept.more.value, kept.p)
