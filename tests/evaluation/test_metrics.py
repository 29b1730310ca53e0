"""Translation metrics compared with sacreBLEU."""

import dataclasses
import itertools
import random
from functools import partial

import jiwer
import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import ter

from s2s.cli.evaluate import evaluate
from s2s.errors import UserError
from s2s.evaluation.differences import over_seeds_and_sentences
from s2s.evaluation.file_scores import score_files
from s2s.evaluation.inference import draws, holm, mean
from s2s.evaluation.metrics import (
    KNOWN,
    by_source_length,
    exact_share,
    interval,
    metrics,
    score,
    scores,
    scores_of,
    word_accuracy,
)
from s2s.evaluation.significance import compare, compare_text_groups


@pytest.fixture
def texts() -> tuple[list[str], list[str]]:
    generator = random.Random(1)
    words = ["der", "die", "das", "Hund", "Katze", "Haus", "sieht", "geht", "im", "am", "Ein"]
    references = [" ".join(generator.choices(words, k=generator.randint(3, 12))) + "." for _ in range(120)]
    translations = [" ".join(w if generator.random() < 0.8 else "nicht" for w in r.split()) for r in references]
    return translations, references


@pytest.mark.parametrize("lowercase", [False, True])
def test_metrics_values_are_those_of_sacrebleu(texts, lowercase):
    translations, references = texts
    found = scores(translations, references, lowercase)
    assert found["bleu"].value == sacrebleu.corpus_bleu(translations, [references], lowercase=lowercase).score
    chrf = sacrebleu.CHRF(word_order=2, lowercase=lowercase).corpus_score(translations, [references])
    assert found["chrf"].value == chrf.score
    ter = sacrebleu.TER(case_sensitive=not lowercase).corpus_score(translations, [references])
    assert found["ter"].value == ter.score
    quick = score(translations, references)
    cased = scores(translations, references)
    assert quick == {name: cased[name].value for name in ("bleu", "chrf", "exact", "cer", "wer")}


@pytest.mark.parametrize("lowercase", [False, True])
def test_metrics_error_rates_are_those_of_jiwer(texts, lowercase):
    translations, references = texts
    shouted = [t.upper() if i % 2 else t for i, t in enumerate(translations)]
    found = scores(shouted, references, lowercase, ("cer", "wer", "exact"))
    seen = [[text.lower() if lowercase else text for text in lines] for lines in (references, shouted)]
    assert found["wer"].value == pytest.approx(100 * jiwer.wer(*seen))
    assert found["cer"].value == pytest.approx(100 * jiwer.cer(*seen))
    assert found["exact"].value == pytest.approx(100 * np.mean([a == b for a, b in zip(*seen, strict=True)]))
    assert list(found) == ["cer", "wer", "exact"]
    assert f"case:{'lc' if lowercase else 'mixed'}|unit:words|version:jiwer" in found["wer"].signature


def test_metrics_error_rates_count_edits_over_what_the_references_hold():
    # one substitution, one deletion, one insertion; 3 + 2 + 1 phones
    written, wanted = ["h a t", "ʃ", " aː  b\n"], ["h ɑ t", "ʃ iː", "aː"]
    found = scores(written, wanted)
    assert found["wer"].value == pytest.approx(100 * 3 / 6)
    assert found["exact"].value == 0
    # characters: ɑ, the space and iː, the two spaces and b
    assert found["cer"].value == pytest.approx(100 * (1 + 3 + 3) / (5 + 4 + 2))
    assert scores([" a  b "], ["a b"], names=("wer", "exact"))["wer"].value == 0
    assert scores([""], ["a b"], names=("cer", "wer"))["wer"].value == 100
    # where nothing was to be written, as TER has it
    for translation, expected in (("", 0), ("x", 100)):
        assert {s.value for s in scores([translation], [""], names=("ter", "cer", "wer")).values()} == {expected}


def test_metrics_white_space_between_words_matters_for_all_rates_but_that_of_words():
    assert score([" a  b\t"], ["a b"], names=("exact", "wer")) == {"exact": 0, "wer": 0}
    assert score(["a  b"], ["a b"], names=("cer",)) == {"cer": pytest.approx(100 / 3)}


def test_metrics_exact_matches_have_wilsons_interval_which_is_no_point_at_the_ends(texts):
    _, references = texts
    found = scores(references, references, names=("exact", "wer"))
    assert (found["exact"].value, found["exact"].high) == (100, 100)
    assert 95 < found["exact"].low < 98
    assert (found["wer"].low, found["wer"].high) == (0, 0)


def test_metrics_interval_of_a_comparison_is_that_of_the_table(texts):
    translations, references = texts
    tables = {"one": scores(translations, references), "two": scores(references, references)}
    compared = compare({"one": translations, "two": references}, references, sources=references)
    assert {(each.system, each.metric): (each.value, each.low, each.high) for each in compared} == {
        (system, name): (each.value, each.low, each.high)
        for system, table in tables.items()
        for name, each in table.items()
    }


def test_metrics_one_sentence_has_an_interval_for_exact_match_only():
    found = scores(["a small dog runs"], ["a small dog ran"])
    exact = found.pop("exact")
    assert (exact.low, round(exact.high, 1)) == (0, 79.3)
    assert {(each.low, each.high) for each in found.values()} == {(None, None)}
    assert "   no interval   " in str(found["bleu"])
    assert [each.low for each in compare({"one": ["a"], "two": ["b"]}, ["a"], names=["bleu"])] == [None, None]


def test_metrics_every_sentences_edit_distance_is_computed_once(texts, monkeypatch):
    calls = []
    plain = ter.translation_edit_rate
    monkeypatch.setattr(ter, "translation_edit_rate", lambda *words: (calls.append(words), plain(*words))[1])
    scores(*texts)
    assert len(calls) == len(texts[0])


def test_help_of_the_command_names_all_metrics():
    (option,) = [option for option in evaluate.params if option.name == "names"]
    assert ", ".join(KNOWN) in option.help


def test_metrics_signatures_say_how_it_was_computed(texts):
    assert "case:mixed" in scores(*texts)["bleu"].signature
    assert "case:lc" in scores(*texts, lowercase=True)["bleu"].signature
    assert "tok:13a" in scores(*texts)["bleu"].signature
    assert "nw:2" in scores(*texts)["chrf"].signature


def test_metrics_lower_casing_forgives_case_and_nothing_else(texts):
    translations, references = texts
    shouted = [t.upper() for t in translations]
    assert scores(shouted, references)["bleu"].value < scores(translations, references)["bleu"].value
    assert scores(shouted, references, True)["bleu"].value == scores(translations, references, True)["bleu"].value


def test_metrics_interval_is_that_of_sacrebleus_own_bootstrap(texts):
    translations, references = texts
    metric = metrics()["bleu"]
    counts = np.array(metric._extract_corpus_statistics(translations, [references]))
    low, high = interval("bleu", metric, counts)
    # the same draws, taken all at once
    drawn = np.random.default_rng(12345).choice(len(counts), size=(1000, len(counts)), replace=True)
    values = [metric._aggregate_and_compute(counts[rows].tolist()).score for rows in drawn]
    assert [low, high] == pytest.approx(np.quantile(values, [0.025, 0.975]))
    result = metrics()["bleu"].corpus_score(translations, [references], n_bootstrap=1000)
    assert low < result.score < high
    assert (high - low) / 2 == pytest.approx(result._ci, rel=0.1)


def test_metrics_perfect_translation_is_perfect(texts):
    _, references = texts
    found = scores(references, references)
    assert found["bleu"].value == pytest.approx(100)
    assert found["ter"].value == 0
    assert found["bleu"].low == pytest.approx(100)
    assert exact_share(references, references) == 100
    assert exact_share(["x", *references[1:60], *["x"] * 60], references) == pytest.approx(100 * 59 / 120)


def test_metrics_length_buckets_share_no_length_and_together_hold_everything(texts):
    translations, references = texts
    buckets = by_source_length(references, translations, references)
    assert sum(b.sentences for b in buckets) == 120
    assert all(15 <= b.sentences <= 45 for b in buckets)
    assert len(buckets) == 4
    assert all(a.longest < b.shortest for a, b in itertools.pairwise(buckets))
    shortest = [i for i in range(120) if len(references[i].split()) <= buckets[0].longest]
    assert len(shortest) == buckets[0].sentences
    alone = sacrebleu.corpus_bleu([translations[i] for i in shortest], [[references[i] for i in shortest]])
    assert buckets[0].bleu == alone.score


def test_metrics_length_buckets_of_single_words_are_counted_in_letters():
    words = ["at", "to", "hut", "word", "house", "window", "curtain", "elephant"]
    found = by_source_length(words, words, words)
    assert [(b.shortest, b.longest, b.sentences) for b in found] == [(2, 2, 2), (3, 4, 2), (5, 6, 2), (7, 8, 2)]
    assert [str(b).split(":")[0] for b in found[:2]] == ["2 characters", "3–4 characters"]
    # one length, one bucket: no two with the same label
    assert len(by_source_length(["a", "b", "c"], ["a"] * 3, ["a"] * 3)) == 1
    mixed = by_source_length(["a"] * 50 + ["a b"], ["x"] * 51, ["y"] * 51)
    assert [str(b).split(":")[0] for b in mixed] == ["1 words", "2 words"]


def test_metrics_real_difference_is_significant_and_none_is_not(texts):
    translations, references = texts
    worse = [" ".join(t.split()[:-2]) for t in translations]
    found = {
        (c.system, c.metric): c for c in compare({"a": translations, "b": worse, "c": list(translations)}, references)
    }
    assert found["b", "bleu"].p_value < 0.01
    assert found["c", "bleu"].p_value == 1.0
    assert found["a", "bleu"].p_value is None
    assert found["b", "chrf"].value == sacrebleu.CHRF(word_order=2).corpus_score(worse, [references]).score


def test_metrics_systems_must_have_translated_the_same_sentences(texts):
    translations, references = texts
    with pytest.raises(UserError, match=r"'b': 119"):
        compare({"a": translations, "b": translations[1:]}, references)


def test_metrics_words_are_counted_in_place_where_each_source_word_is_answered_by_one():
    sources, references = ["Der Hund sieht ihn", "Ja"], ["nom nom - acc", "-"]
    assert word_accuracy(sources, references, references) == 100
    # one wrong, two missing, one too many
    assert word_accuracy(sources, ["nom acc", "- -"], references) == pytest.approx(100 * 2 / 5)
    assert word_accuracy(sources, ["NOM nom - acc", "-"], references) == pytest.approx(80)
    assert word_accuracy(sources, ["NOM nom - acc", "-"], references, lowercase=True) == 100
    assert word_accuracy(sources, references, ["nom nom - acc", "- -"]) is None


def test_files_are_compared_by_the_named_metrics_alone(texts, tmp_path, monkeypatch):
    translations, references = texts
    files = [tmp_path / name for name in ("one", "other", "reference")]
    for file, lines in zip(files, (translations, references, references), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr("sacrebleu.metrics.ter.TER", lambda **settings: pytest.fail("nobody asked for it"))
    found, tested = score_files(files[:2], files[2:], lowercase=False, names=["chrf"])
    assert [list(each.scores) for each in found] == [["chrf"]] * 2
    assert [(each.system, each.metric) for each in tested] == [(str(file), "chrf") for file in files[:2]]


def test_several_groups_of_seeds_have_corrected_p_values(texts):
    translations, references = texts
    turned = [*translations[1:], translations[0]]
    groups = {"a": [translations, turned], "b": [references, translations], "c": [turned, turned]}
    found = compare_text_groups(groups, references, names=("exact",))
    tested = [each.p_value for each in found[1:]]
    assert [each.corrected for each in found] == [None, *holm(tested)]
    assert f"{found[1].corrected:.4f} after Holm" in str(found[1])
    assert compare_text_groups({"a": groups["a"], "b": groups["b"]}, references, names=("exact",))[1].corrected is None


def test_groups_of_seeds_are_tested_over_seeds_and_sentences(texts):
    translations, references = texts
    turned = [*translations[1:], translations[0]]
    groups = {"a": [translations, turned], "b": [references, translations, references]}
    compared = compare_text_groups(groups, references, names=("bleu", "exact"))
    found = {(each.group, each.metric): each for each in compared}
    for name, metric in metrics(names=("bleu", "exact")).items():
        counts = {
            group: [np.array(metric._extract_corpus_statistics(list(lines), [list(references)])) for lines in runs]
            for group, runs in groups.items()
        }
        drawn = draws(len(references))
        direct = over_seeds_and_sentences(counts["a"], counts["b"], partial(scores_of, metric), drawn)
        assert (found["b", name].difference, found["b", name].p_value) == (direct.estimate(), direct.p())
        assert (found["a", name].difference, found["a", name].p_value) == (None, None)
        for group, runs in groups.items():
            scores = [metric.corpus_score(list(lines), [list(references)]).score for lines in runs]
            assert dataclasses.astuple(found[group, name].mean) == pytest.approx(dataclasses.astuple(mean(scores)))
            assert found[group, name].seeds == len(runs)
