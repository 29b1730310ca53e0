"""Translations longer than trained on, by kind of positions: planted scores, compared with sacreBLEU itself."""

import random
import statistics
from dataclasses import replace

import pytest
import sacrebleu

from s2s.comparison.longer_texts import TextScores
from s2s.comparison.questions.positions.longer import (
    LongerTexts,
    bleu_without,
    longer_figure,
    longer_table,
    reaches_farther,
    relative_bleus,
)
from s2s.comparison.traits import Traits
from s2s.comparison.translation import counts_of
from s2s.evaluation.differences import welch
from s2s.evaluation.gates import Gate
from s2s.evaluation.inference import holm

_LEARNED = 12
_TEXTS = 120
TRAITS = {
    "gru": Traits("steps", False, False, False),
    "transformer": Traits("none", True, True, False),
}


def _pairs(together, wrong, seed):
    """Texts of so many sentences of six words, with a share of wrong words."""
    chance = random.Random(f"{together} {seed}")
    references = [" ".join(f"w{chance.randrange(50)}" for _ in range(6 * together)) for _ in range(_TEXTS)]
    return [" ".join("x" if chance.random() < wrong else w for w in text.split()) for text in references], references


def _scores(slope, seed):
    """Scores where longer texts have more wrong words by `slope`, for one to four sentences."""
    parts = []
    for together in (1, 2, 3, 4):
        texts, references = _pairs(together, 0.1 + slope * (together - 1), seed)
        parts.append(
            TextScores(
                words=[6 * together] * _TEXTS,
                counts=counts_of("bleu", texts, references),
                exact=[int(a == b) for a, b in zip(texts, references, strict=True)],
                unread=0,
            )
        )
    return LongerTexts(parts, _LEARNED)


def _kinds(seeds=(1, 2, 3), **slopes):
    return {kind: {seed: _scores(slope, seed) for seed in seeds} for kind, slope in slopes.items()}


def _claim(seeds=(1, 2, 3), gates=(), **slopes):
    return reaches_farther(
        TRAITS, {"transformer": relative_bleus(_kinds(seeds, **slopes))}, {"transformer": list(gates)}
    )


def test_kept_share_is_that_of_sacrebleus_corpus_scores():
    own, relative = relative_bleus(_kinds(sinusoidal=0.2, relative=0.05))
    for kept, slope in ((own, 0.2), (relative, 0.05)):
        for seed, share in zip((1, 2, 3), kept.shares, strict=True):
            bleu = [
                sacrebleu.corpus_bleu(texts, [references]).score
                for texts, references in (_pairs(n, 0.1 + slope * (n - 1), seed) for n in (1, 3, 4))
            ]
            # two sentences have the words of the longest training source
            assert share == pytest.approx(100 * statistics.mean(bleu[1:]) / bleu[0])
    assert (own.positions, own.more, own.p) == ("sinusoidal", None, None)
    assert relative.more.value == pytest.approx(statistics.mean(relative.shares) - statistics.mean(own.shares))
    assert (own.learned, own.seeds, own.written) == (_LEARNED, 3, 100)


def test_bleu_without_positions_stands_beside_that_of_the_models_own():
    own, alibi, none = relative_bleus(
        _kinds(sinusoidal=0.2, alibi=0.05) | {"none": {1: _scores(0.1, 8), 2: _scores(0.1, 9)}}
    )
    assert own.bleu != none.bleu
    found = bleu_without({"transformer": [own, alibi, none], "conv": [own, alibi]})
    assert found == {"transformer": (own.bleu, none.bleu)}


def test_words_written_are_counted_on_the_longest_texts():
    scores = _kinds(sinusoidal=0.2, relative=0.05)
    texts, references = _pairs(4, 0.1, 1)
    half = [" ".join(text.split()[:12]) for text in texts]
    for seed, own in scores["relative"].items():
        parts = [*own.parts[:3], replace(own.parts[3], counts=counts_of("bleu", half, references))]
        scores["relative"][seed] = LongerTexts(parts, _LEARNED)
    assert [each.written for each in relative_bleus(scores)] == [100, 50]


def test_other_kinds_are_compared_with_the_models_own_and_corrected():
    kept = relative_bleus(_kinds(sinusoidal=0.2, relative=0.18, alibi=0.05, rope=0.19))
    expected = holm([welch(kept[0].shares, each.shares).p() for each in kept[1:]])
    assert [each.p for each in kept[1:]] == pytest.approx(expected)


def test_claim_holds_where_relative_positions_keep_more():
    claim = _claim(sinusoidal=0.2, relative=0.05, learned=0.2, alibi=0.06)
    assert (claim.name, claim.verdict) == ("reaches-farther", "yes")
    assert claim.stable == {"learned positions": False, "alibi positions": True}
    numbers = {number.model: number for number in claim.numbers}
    assert numbers["gru"].value is None
    assert numbers["transformer"].note.startswith("sinusoidal ")
    assert "with relative positions" in claim.sentence


@pytest.mark.parametrize(("relative", "verdict"), [(0.4, "no"), (0.2, "undecided")])
def test_claim_fails_where_relative_positions_keep_less_and_is_open_where_they_keep_as_much(relative, verdict):
    assert _claim(sinusoidal=0.2, relative=relative).verdict == verdict


def test_claim_is_undecided_with_one_seed_or_a_failed_check():
    one, failed = (
        _claim((1,), sinusoidal=0.2, relative=0.05),
        _claim(gates=[Gate("converged", False, "it still learns")], sinusoidal=0.2, relative=0.05),
    )
    assert (one.verdict, failed.verdict) == ("undecided", "undecided")
    assert "one seed" in one.sentence
    assert "it still learns" in failed.sentence


def test_there_is_no_claim_without_relative_positions_or_without_longer_texts():
    assert _claim(sinusoidal=0.2, alibi=0.05) is None
    assert _claim(sinusoidal=0.2) is None
    scores = _kinds(sinusoidal=0.2, relative=0.05)
    short = {kind: {seed: LongerTexts(own.parts, 100) for seed, own in runs.items()} for kind, runs in scores.items()}
    assert relative_bleus(short) == []
    assert relative_bleus({}) == []


def test_figure_and_table_have_every_kind():
    scores = _kinds(sinusoidal=0.2, relative=0.05)
    figure = longer_figure("transformer", scores)
    assert [line.label for line in figure.series] == ["sinusoidal", "relative", "longest training source"]
    assert figure.series[0].x == [6, 12, 18, 24]
    table = longer_table({"transformer": relative_bleus(scores)})
    assert [row[:3] for row in table.rows] == [["transformer", "sinusoidal", 3], ["transformer", "relative", 3]]
