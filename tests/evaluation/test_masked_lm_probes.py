"""Pseudo-log-likelihood, fillers and the bias probe, compared with direct computations."""

import csv
import io
import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from s2s.data.phrasebook import phrases
from s2s.data.tokenizers import BOS, EOS, Tokenizer, train
from s2s.errors import UserError
from s2s.evaluation.inference import holm
from s2s.models import transformer
from s2s.models.masked_lm import MaskedLM
from s2s.recipe.schema import TokenizerSettings
from s2s.tasks.masked_lm import bias, filling
from s2s.tasks.masked_lm.bias import Pair, Preference, bias_picture, prefer, read_pairs, report, shared_places
from s2s.tasks.masked_lm.filling import fill, find_blank, masked_log_probabilities, weigh_words

PEOPLE = ["man", "woman", "doctor", "nurse", "teacher", "old man", "young woman"]
SAID = [f"The {a} saw his friend, and the {b} found her bag." for a in PEOPLE for b in PEOPLE]
LINES = [*SAID, *(p.source for p in phrases("train", 300, seed=5))]
HEAD = ["", "sent_more", "sent_less", "stereo_antistereo", "bias_type", "annotations"]


def _tokenizer(kind: str, size: int = 250) -> Tokenizer:
    return train(LINES, TokenizerSettings(kind=kind, size=size, byte_fallback=False), "shared")


@pytest.fixture(scope="module")
def subwords() -> Tokenizer:
    return _tokenizer("unigram")


def _model(size: int, **options) -> MaskedLM:
    torch.manual_seed(0)
    settings = transformer.Settings(width=16, heads=2, feedforward=32, encoder_layers=2, **options)
    encoder, width = transformer.build_encoder(settings, size + 1)
    model = MaskedLM(encoder, width, size).double().eval()
    # far from even probabilities
    with torch.no_grad():
        model.encoder.embedding.tokens.weight *= 3
    return model


@pytest.fixture(scope="module")
def model(subwords) -> MaskedLM:
    return _model(subwords.size)


def _asked(model: MaskedLM, pieces: list[int], place: int, begin: bool) -> torch.Tensor:
    """All log probabilities at one place, one text alone, without our batches."""
    source = torch.tensor([[*[BOS] * begin, *pieces, EOS]])
    with torch.no_grad():
        states = model.encoder(source, torch.ones_like(source, dtype=torch.bool)).states[0, place + begin]
        return (model.projection.weight[: model.size] @ model.transform(states)).log_softmax(0)


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("budget", [1, 40, 100_000])
def test_masked_lm_probes_pseudo_log_likelihood_is_that_of_a_loop_piece_by_piece(model, subwords, begin, budget):
    texts = [subwords.encode(line) for line in (LINES[0], "The man", "his bag, her bag.", LINES[9])]
    places = [list(range(len(texts[0]))), [], [1], [3, 0]]
    found = masked_log_probabilities(model, texts, places, begin, budget)
    for text, asked, ours in zip(texts, places, found, strict=True):
        expected = []
        for place in asked:
            masked = [*text[:place], subwords.mask, *text[place + 1 :]]
            expected.append(float(_asked(model, masked, place, begin)[text[place]]))
        np.testing.assert_allclose(ours, expected, rtol=1e-10)


def test_masked_lm_probes_text_longer_than_the_learned_positions_is_refused(subwords):
    model = _model(subwords.size, encoder_positions="learned", max_positions=8)
    with pytest.raises(UserError, match="8 positions"):
        masked_log_probabilities(model, [subwords.encode(LINES[0])], [[0]], False)


def test_masked_lm_probes_shared_pieces_are_the_longest_common_ones_in_order():
    assert shared_places([5, 6, 7, 8], [5, 9, 9, 7, 8]) == ([0, 2, 3], [0, 3, 4])
    assert shared_places([5, 6], [7, 8]) == ([], [])


def test_masked_lm_probes_pair_is_scored_by_its_shared_pieces_given_all_others(model, subwords):
    pair = Pair(2, "The doctor found his bag.", "The young woman found her bag.", "stereo", "gender")
    (found,) = prefer(model, subwords, [pair], False)
    more, less = subwords.encode(pair.more), subwords.encode(pair.less)
    changed = [i for i, piece in enumerate(more) if piece not in less]
    assert changed
    for text, score, places in zip((more, less), (found.more, found.less), shared_places(more, less), strict=True):
        expected = sum(
            float(_asked(model, [*text[:p], subwords.mask, *text[p + 1 :]], p, False)[text[p]]) for p in places
        )
        assert score == pytest.approx(expected, rel=1e-10)
    assert found.shared == len(shared_places(more, less)[0]) < min(len(more), len(less))
    assert not found.unknown


def _preference(more: float, less: float, kind: str = "gender", direction: str = "stereo") -> Preference:
    return Preference(Pair(2, "a", "b", direction, kind), 3, False, more, less)


def test_masked_lm_probes_shares_intervals_and_tests_are_those_of_scipy():
    found = report(
        [
            *[_preference(-1, -2)] * 30,
            *[_preference(-2, -1, direction="antistereo")] * 12,
            *[_preference(-2, -1, kind="age")] * 9,
            _preference(-1, -3, kind="age"),
            # the same to three digits
            _preference(-1.00001, -1.00002, kind="age"),
        ]
    )
    assert (found.all.pairs, found.all.ties) == (53, 1)
    for group, more, decided in ((found.all, 31, 52), (found.kinds[0], 30, 42), (found.kinds[1], 1, 10)):
        test = stats.binomtest(more, decided)
        interval = test.proportion_ci(0.95, method="wilson")
        assert group.share.value == pytest.approx(100 * more / decided)
        assert (group.share.low, group.share.high) == pytest.approx((100 * interval.low, 100 * interval.high))
        assert group.p_value == pytest.approx(test.pvalue)
    assert [g.name for g in found.kinds] == ["gender", "age"]
    assert [(g.name, g.pairs) for g in found.directions] == [("stereo", 41), ("antistereo", 12)]
    assert [g.adjusted for g in found.kinds] == holm([g.p_value for g in found.kinds])
    assert "1 ties are in none" in str(found)
    assert len(bias_picture(found).axes[0].get_yticks()) == 5


def test_masked_lm_probes_filler_of_several_words_is_refused():
    words = _tokenizer("word")
    with pytest.raises(UserError, match=r"no filler has 2 tokens: each token of this tokenizer \(word\)"):
        fill(_model(words.size), words, "The ___ sleeps.", False, count=2)


def test_masked_lm_probes_all_of_the_picture_is_in_the_picture():
    figure = bias_picture(report([_preference(-1, -2, kind="physical-appearance")]))
    figure.draw_without_rendering()
    drawn, paper = figure.get_tightbbox(), figure.bbox_inches
    assert 0 <= drawn.x0 < drawn.x1 <= paper.width
    assert 0 <= drawn.y0 < drawn.y1 <= paper.height


def test_masked_lm_probes_only_ties_say_nothing():
    found = report([_preference(-1, -1)] * 3)
    assert (found.all.ties, found.all.p_value, found.all.share.low, found.all.share.high) == (3, 1.0, 0, 100)
    assert str(found.all).split() == ["all", "3", "–", "only", "equal", "scores"]
    assert "%" not in str(found.all)


def test_masked_lm_probes_holm_is_the_step_down_of_bonferroni():
    # by hand: 0.01 · 4, 0.02 · 3, then 0.03 · 2 and 0.04 · 1, none below the one before
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]


def _table(path, rows, head=HEAD):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def test_masked_lm_probes_pairs_are_read_with_their_lines(tmp_path):
    rows = [
        [0, "The man\ncried.", "The woman, he said, cried.", "antistereo", "gender", "[]"],
        [1, "A", "B", "stereo", "age", "[]"],
    ]
    pairs, digest = read_pairs(_table(tmp_path / "pairs.csv", rows))
    assert pairs == [
        Pair(2, "The man\ncried.", "The woman, he said, cried.", "antistereo", "gender"),
        Pair(4, "A", "B", "stereo", "age"),
    ]
    signed = b"\xef\xbb\xbf" + (tmp_path / "pairs.csv").read_bytes().removeprefix(b",")
    (tmp_path / "signed.csv").write_bytes(signed.replace(b"\n0,", b"\n").replace(b"\n1,", b"\n"))
    again, other = read_pairs(tmp_path / "signed.csv")
    assert [pair.more for pair in again] == [pair.more for pair in pairs]
    assert digest != other


def test_masked_lm_probes_empty_lines_are_counted_and_skipped(tmp_path):
    rows = [[], [0, "A", "B", "stereo", "age", ""], [], [], [1, "C", "D", "stereo", "age"]]
    assert [pair.line for pair in read_pairs(_table(tmp_path / "pairs.csv", rows))[0]] == [3, 6]


@pytest.mark.parametrize(
    ("rows", "head", "words"),
    [
        (
            [[0, "A", "B", "stereo", "age", ""]],
            ["", "more", "sent_less", "stereo_antistereo", "bias_type"],
            "sent_more",
        ),
        ([[0, "A", "B", "stereo", "age", ""], [1, "A", "B", "stero", "age", ""]], HEAD, r"pairs\.csv:3: .*'stero'"),
        ([[0, "A", " ", "stereo", "age", ""]], HEAD, r"pairs\.csv:2: .*empty"),
        ([], HEAD, "no pairs"),
    ],
)
def test_masked_lm_probes_table_that_is_none_is_named_with_its_line(tmp_path, rows, head, words):
    with pytest.raises(UserError, match=words):
        read_pairs(_table(tmp_path / "pairs.csv", rows, head))


def test_masked_lm_probes_preferences_are_written_line_by_line():
    table = bias.preferences_table([_preference(-1.5, -2, "=1+1"), _preference(-2, -1)])
    rows = list(csv.DictReader(io.StringIO(table, newline="")))
    assert [(r["score_more"], r["score_less"], r["preferred"]) for r in rows] == [
        ("-1.5000", "-2.0000", "more"),
        ("-2.0000", "-1.0000", "less"),
    ]
    # what a spreadsheet would compute is text
    assert [r["bias_type"] for r in rows] == ["'=1+1", "gender"]


def _spelling(tokenizer: Tokenizer, begins: bool, count: int) -> list[tuple[int, ...]]:
    shown = tokenizer.tokens(range(tokenizer.size))
    begin = [i for i in range(4, tokenizer.size) if shown[i].startswith("▁") and shown[i] != "▁"]
    go_on = [i for i in range(4, tokenizer.size) if not shown[i].startswith("▁")]
    return list(itertools.product(begin if begins else go_on, *[go_on] * (count - 1)))


@pytest.mark.parametrize(("text", "begins"), [("The ___ saw her bag.", True), ("The doc___ saw her bag.", False)])
def test_masked_lm_probes_one_piece_fillers_are_the_softmax_over_what_fits(model, subwords, text, begins):
    left, right = text.split("___")
    pieces = [*subwords.encode(left), subwords.mask, *subwords.encode(right)]
    scores = _asked(model, pieces, len(subwords.encode(left)), False)
    fitting = [p for (p,) in _spelling(subwords, begins, 1)]
    best = sorted(fitting, key=lambda p: -scores[p])[:4]
    found = fill(model, subwords, text, False, best=4)
    assert [f.text.removeprefix("…") for f in found.fillers] == [subwords.decode([p]) for p in best]
    assert [f.probability for f in found.fillers] == pytest.approx([math.exp(scores[p]) for p in best])
    assert found.fitting == pytest.approx(float(scores.exp()[fitting].sum()))
    assert "%" in str(found)


def test_masked_lm_probes_two_piece_fillers_are_the_best_of_all_by_the_chain_rule(model, subwords, monkeypatch):
    monkeypatch.setattr(filling, "_BEAM", subwords.size)
    left, right, mask = subwords.encode("The"), subwords.encode("saw her bag."), subwords.mask
    scores = {}
    first = _asked(model, [*left, mask, mask, *right], len(left), False)
    for one, two in _spelling(subwords, True, 2):
        second = _asked(model, [*left, one, mask, *right], len(left) + 1, False) if (one,) not in scores else None
        scores.setdefault((one,), second)
        scores[one, two] = float(first[one] + scores[(one,)][two])
    pairs = sorted((k for k in scores if len(k) == 2), key=lambda k: -scores[k])[:5]
    found = fill(model, subwords, "The ___ saw her bag.", False, count=2, best=5)
    assert [f.text for f in found.fillers] == [subwords.decode(k) for k in pairs]
    assert [f.probability for f in found.fillers] == pytest.approx([math.exp(scores[k]) for k in pairs])
    assert "2 masked tokens" in str(found)


def test_masked_lm_probes_words_are_weighed_by_the_probability_of_their_pieces(model, subwords):
    text = "The woman saw ___ bag."
    words = [word for word in ("his", "her", "the", "a", "old") if len(subwords.encode(word)) == 1][:2]
    found = weigh_words(model, subwords, text, words, False)
    assert found.pieces == 1
    pieces = [*subwords.encode("The woman saw"), subwords.mask, *subwords.encode("bag.")]
    scores = _asked(model, pieces, len(subwords.encode("The woman saw")), False)
    expected = [float(scores[subwords.encode(word)[0]]) for word in words]
    assert found.log_probabilities == pytest.approx(expected)
    assert f"{words[0]} : {words[1]} = {math.exp(expected[0] - expected[1]):.3g} : 1" in str(found)


def test_masked_lm_probes_longer_words_are_weighed_by_the_chain_rule(model):
    tokenizer = _tokenizer("unigram", 90)
    model = _model(tokenizer.size)
    words = ["doctor", "nurse", "teacher", "man", "woman", "friend"]
    by_length = {n: [w for w in words if len(tokenizer.encode(w)) == n] for n in range(2, 8)}
    same = next(found for found in by_length.values() if len(found) > 1)[:2]
    found = weigh_words(model, tokenizer, "The ___ saw her bag.", same, False)
    left, right = tokenizer.encode("The"), tokenizer.encode("saw her bag.")
    for word, ours in zip(same, found.log_probabilities, strict=True):
        pieces = tokenizer.encode(word)
        total = 0.0
        for i, piece in enumerate(pieces):
            row = [*left, *pieces[:i], *[tokenizer.mask] * (len(pieces) - i), *right]
            total += float(_asked(model, row, len(left) + i, False)[piece])
        assert ours == pytest.approx(total)
    assert f"each of {found.pieces} tokens" in str(found)


def test_masked_lm_probes_words_of_different_numbers_of_pieces_are_not_compared(model, subwords):
    with pytest.raises(UserError, match="different numbers of tokens"):
        weigh_words(model, subwords, "The ___ saw.", ["man", "womanly"], False)


@pytest.mark.parametrize("text", ["___ saw the man.", "The man saw ___", "The man saw ___.", "The wo___ saw a man."])
def test_masked_lm_probes_pieces_around_a_blank_are_those_of_the_whole_text(subwords, text):
    blank = find_blank(text, subwords)
    filler = subwords.encode("man") if blank.begins else subwords.encode_continuation("man")
    assert subwords.decode([*blank.left, *filler, *blank.right]) == text.replace("___", "man")
    assert blank.begins == (text.split("___")[0][-1:] in ("", " "))


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("unigram", "no blank", "0 blanks"),
        ("unigram", "___ and ___", "2 blanks"),
        ("char", "The ___ saw.", "single characters"),
        ("bytes", "The ___ saw.", "single bytes"),
        ("word", "The ___.", "whole words"),
    ],
)
def test_masked_lm_probes_text_that_cannot_be_filled_is_refused(kind, text, words):
    with pytest.raises(UserError, match=words):
        find_blank(text, _tokenizer(kind))


def test_fill_uses_whole_words_for_a_blank_between_spaces():
    tokenizer = _tokenizer("word")
    blank = find_blank("The ___ saw his", tokenizer)
    assert (blank.left, blank.right) == (tokenizer.encode("The"), tokenizer.encode("saw his"))
    found = fill(_model(tokenizer.size), tokenizer, "The ___ saw his", False, best=3)
    assert len(found.fillers) == 3
