import itertools
import random

import pytest
import sacrebleu

from s2s.errors import UserError
from s2s.evaluation.metrics import (
    bootstrap_interval,
    by_source_length,
    exact_share,
    metrics,
    score,
    scores,
    word_accuracy,
)
from s2s.evaluation.significance import compare


@pytest.fixture
def texts() -> tuple[list[str], list[str]]:
    generator = random.Random(1)
    words = ["der", "die", "das", "Hund", "Katze", "Haus", "sieht", "geht", "im", "am", "Ein"]
    references = [" ".join(generator.choices(words, k=generator.randint(3, 12))) + "." for _ in range(120)]
    translations = [" ".join(w if generator.random() < 0.8 else "nicht" for w in r.split()) for r in references]
    return translations, references


@pytest.mark.parametrize("lowercase", [False, True])
def test_values_are_those_of_sacrebleu(texts, lowercase):
    translations, references = texts
    found = scores(translations, references, lowercase)
    assert found["bleu"].value == sacrebleu.corpus_bleu(translations, [references], lowercase=lowercase).score
    chrf = sacrebleu.CHRF(word_order=2, lowercase=lowercase).corpus_score(translations, [references])
    assert found["chrf"].value == chrf.score
    ter = sacrebleu.TER(case_sensitive=not lowercase).corpus_score(translations, [references])
    assert found["ter"].value == ter.score
    assert score(translations, references) == (
        sacrebleu.corpus_bleu(translations, [references]).score,
        sacrebleu.CHRF(word_order=2).corpus_score(translations, [references]).score,
    )


def test_signatures_say_how_it_was_computed(texts):
    assert "case:mixed" in scores(*texts)["bleu"].signature
    assert "case:lc" in scores(*texts, lowercase=True)["bleu"].signature
    assert "tok:13a" in scores(*texts)["bleu"].signature
    assert "nw:2" in scores(*texts)["chrf"].signature


def test_lower_casing_forgives_case_and_nothing_else(texts):
    translations, references = texts
    shouted = [t.upper() for t in translations]
    assert scores(shouted, references)["bleu"].value < scores(translations, references)["bleu"].value
    assert scores(shouted, references, True)["bleu"].value == scores(translations, references, True)["bleu"].value


def test_the_interval_is_that_of_sacrebleus_own_bootstrap(texts):
    translations, references = texts
    metric = metrics()["bleu"]
    low, high = bootstrap_interval(metric, translations, references)
    theirs = metrics()["bleu"]
    theirs.corpus_score(translations, [references], n_bootstrap=1000)
    result = metrics()["bleu"].corpus_score(translations, [references], n_bootstrap=1000)
    assert low < result.score < high
    assert (high - low) / 2 == pytest.approx(result._ci, rel=0.1)


def test_the_perfect_translation_is_perfect(texts):
    _, references = texts
    found = scores(references, references)
    assert found["bleu"].value == pytest.approx(100)
    assert found["ter"].value == 0
    assert found["bleu"].low == pytest.approx(100)
    assert exact_share(references, references) == 100
    assert exact_share(["x", *references[1:60], *["x"] * 60], references) == pytest.approx(100 * 59 / 120)


def test_length_buckets_have_equal_counts_and_together_hold_everything(texts):
    translations, references = texts
    buckets = by_source_length(references, translations, references)
    assert [b.sentences for b in buckets] == [30] * 4
    assert all(a.longest <= b.shortest for a, b in itertools.pairwise(buckets))
    shortest = sorted(range(120), key=lambda i: len(references[i].split()))[:30]
    alone = sacrebleu.corpus_bleu([translations[i] for i in shortest], [[references[i] for i in shortest]])
    assert buckets[0].bleu == alone.score


def test_a_real_difference_is_significant_and_none_is_not(texts):
    translations, references = texts
    worse = [" ".join(t.split()[:-2]) for t in translations]
    found = {
        (c.system, c.metric): c for c in compare({"a": translations, "b": worse, "c": list(translations)}, references)
    }
    assert found["b", "bleu"].p_value < 0.01
    assert found["c", "bleu"].p_value == 1.0
    assert found["a", "bleu"].p_value is None
    assert found["b", "chrf"].value == sacrebleu.CHRF(word_order=2).corpus_score(worse, [references]).score


def test_systems_must_have_translated_the_same_sentences(texts):
    translations, references = texts
    with pytest.raises(UserError, match=r"'b': 119"):
        compare({"a": translations, "b": translations[1:]}, references)


def test_words_are_counted_in_place_where_each_source_word_is_answered_by_one():
    sources, references = ["Der Hund sieht ihn", "Ja"], ["nom nom - acc", "-"]
    assert word_accuracy(sources, references, references) == 100
    # one wrong, two missing, one too many
    assert word_accuracy(sources, ["nom acc", "- -"], references) == pytest.approx(100 * 2 / 5)
    assert word_accuracy(sources, ["NOM nom - acc", "-"], references) == pytest.approx(80)
    assert word_accuracy(sources, ["NOM nom - acc", "-"], references, lowercase=True) == 100
    assert word_accuracy(sources, references, ["nom nom - acc", "- -"]) is None
