"""Metrics of scripts without spaces, sacreBLEU's tokenizers, and several references."""

import contextlib
import sys
from importlib.util import find_spec
from unittest import mock

import pytest
import sacrebleu
from click.testing import CliRunner
from sacrebleu.metrics.bleu import BLEU

import s2s
from s2s.cli.main import main
from s2s.errors import UserError
from s2s.evaluation import tokenization
from s2s.evaluation.file_scores import FileScores, score_files
from s2s.evaluation.metrics import by_source_length, score, scores, word_accuracy
from s2s.evaluation.significance import compare
from s2s.evaluation.signs import unit_of
from s2s.evaluation.tokenization import (
    SPACED,
    TOKENIZERS,
    Tokenization,
    check_tokenizer,
    choose_tokenization,
    describe_tokenizer,
)
from s2s.run.tasks import task_of

CHINESE = ["我今天去商店买了三个苹果和两个梨。", "明天早上八点我们在火车站门口见面。", "请把窗户关上，外面的风太大了。"]
WRONG = ["我今天去商店买了四个苹果和两个梨。", "明天早上九点我们在火车站门口见面。", "请把窗户关上，外面的风很大了。"]
THAI = ["ฉันอยากไปเที่ยวทะเลกับเพื่อน", "วันนี้ฝนตกหนักมากจนออกไปไหนไม่ได้"]
JAPANESE = ["彼は黒い車を家で買います。", "明日の朝八時に駅で会いましょう。"]


def test_tokenization_chinese_is_scored_as_sacrebleu_scores_it_with_its_tokenizer():
    found = scores(WRONG, CHINESE)
    assert found["bleu"].value == pytest.approx(sacrebleu.corpus_bleu(WRONG, [CHINESE], tokenize="zh").score)
    assert found["bleu"].value > 50
    assert "tok:zh" in found["bleu"].signature
    assert "tok:zh" in found["ter"].signature
    # one of so many characters is wrong
    edits = 100 * 3 / sum(map(len, CHINESE))
    assert found["ter"].value == pytest.approx(edits)
    assert found["cer"].value == found["wer"].value == pytest.approx(edits)
    assert found["wer"].name == "CER"
    assert score(WRONG, CHINESE) == pytest.approx({name: found[name].value for name in score(WRONG, CHINESE)})


def test_character_error_rate_is_reported_and_tested_once():
    found = scores(WRONG, CHINESE)
    assert str(FileScores("hyp", "ref", 3, False, found)).count("CER") == 1
    tested = compare({"one": WRONG, "other": CHINESE}, CHINESE)
    assert [each.metric for each in tested if each.system == "one"] == ["bleu", "chrf", "ter", "exact", "cer"]
    assert tested[0].value == pytest.approx(found["bleu"].value)


@pytest.mark.parametrize(
    ("references", "chosen"),
    [
        (CHINESE, Tokenization("zh", True)),
        (THAI, Tokenization("char", True)),
        (["a dog", "ein Hund"], SPACED),
        (["저는 오늘 사과를 샀습니다"], SPACED),
        ([CHINESE, CHINESE[:1]], Tokenization("zh", True)),
        (["我 爱 你 们 大家"], Tokenization("zh", False)),
        ([""], SPACED),
    ],
)
def test_tokenization_script_of_the_references_chooses_the_tokenizer(references, chosen):
    assert choose_tokenization(references) == chosen


def test_tokenization_japanese_takes_mecab_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(tokenization, "find_spec", lambda name: None)
    assert choose_tokenization(JAPANESE) == Tokenization("char", True)
    assert "sacrebleu[ja]" in describe_tokenizer("char", JAPANESE)
    monkeypatch.setattr(tokenization, "find_spec", lambda name: object())
    assert choose_tokenization(JAPANESE).tokenizer == "ja-mecab"


@pytest.mark.skipif(not (find_spec("MeCab") and find_spec("ipadic")), reason="sacrebleu[ja] is not installed")
def test_tokenization_mecab_scores_are_sacrebleus():
    found = scores(JAPANESE, JAPANESE[::-1])
    assert "tok:ja-mecab" in found["bleu"].signature
    assert "tok:ja-mecab" in found["ter"].signature
    expected = sacrebleu.corpus_bleu(JAPANESE, [JAPANESE[::-1]], tokenize="ja-mecab").score
    assert found["bleu"].value == pytest.approx(expected)


@pytest.mark.parametrize(("tokenizer", "module"), [("ja-mecab", "ja"), ("ko-mecab", "ko")])
def test_tokenization_missing_package_is_named(tokenizer, module, monkeypatch):
    def missing(name: str) -> object:
        raise RuntimeError("requires extra dependencies")

    monkeypatch.setattr(tokenization, "load_tokenizer", missing)
    with pytest.raises(UserError, match=rf"validation.bleu_tokenizer: (.|\n)*sacrebleu\[{module}\]"):
        check_tokenizer(tokenizer, "validation.bleu_tokenizer")


@pytest.mark.parametrize("recipe", ["translate", "captioning"])
def test_tokenization_recipe_with_a_missing_tokenizer_is_refused_before_training(recipe, monkeypatch):
    def missing(name: str) -> object:
        raise RuntimeError("requires extra dependencies")

    monkeypatch.setattr(tokenization, "load_tokenizer", missing)
    found = s2s.read_recipe(recipe, {"validation.bleu_tokenizer": "ja-mecab"})
    with pytest.raises(UserError, match=r"validation.bleu_tokenizer: (.|\n)*sacrebleu\[ja\]"):
        task_of(found).check(found)
    fine = s2s.read_recipe(recipe, {"validation.bleu_tokenizer": "char"})
    task_of(fine).check(fine)


def test_tokenization_missing_model_of_flores_is_named(monkeypatch):
    def offline(name: str) -> object:
        raise OSError("no route to host")

    monkeypatch.setattr(tokenization, "load_tokenizer", offline)
    with pytest.raises(UserError, match=r"sentencepiece model(.|\n)*\.sacrebleu/models"):
        choose_tokenization(["a dog"], "flores200")


def test_tokenization_all_tokenizers_are_sacrebleus():
    assert set(TOKENIZERS) - {"auto"} <= set(BLEU.TOKENIZERS)


def test_tokenization_choice_is_described_unless_it_is_the_usual_one():
    assert describe_tokenizer("13a", ["a dog"]) == ""
    assert "zh (Chinese references); WER counts characters" in describe_tokenizer("zh", CHINESE)
    # who asks for 13a is told what it does there
    assert "Chinese has no spaces between words" in describe_tokenizer("13a", CHINESE)
    assert describe_tokenizer("char", ["a dog"]) == "tokenizer of BLEU and TER: char"


def test_tokenization_tokenizer_that_is_asked_for_is_used():
    chosen = choose_tokenization(["a dog runs"], "char")
    found = scores(["a dog rums"], ["a dog runs"], tokenization=chosen)
    assert "tok:char" in found["bleu"].signature
    assert found["ter"].value == pytest.approx(100 / len("adogruns"))
    assert found["wer"].name == "WER"


def test_tokenization_text_with_spaces_is_scored_as_ever():
    texts, wanted = ["The cat sat .", "a Dog"], ["the cat sat down.", "a dog"]
    found = scores(texts, wanted)
    for name, metric in (("bleu", sacrebleu.BLEU()), ("ter", sacrebleu.TER(case_sensitive=True))):
        assert found[name].value == metric.corpus_score(texts, [wanted]).score
        assert found[name].signature == str(metric.get_signature())


def test_tokenization_lengths_and_signs_are_of_characters():
    buckets = by_source_length(CHINESE, WRONG, CHINESE)
    assert {bucket.unit for bucket in buckets} == {"characters"}
    assert [bucket.longest for bucket in buckets] == sorted({len(text) for text in CHINESE})
    assert word_accuracy(CHINESE, WRONG, CHINESE) is None
    # clauses stand between spaces
    assert unit_of([f"{text} {text}" for text in THAI])("ไป มา") == ["ไ", "ป", " ", "ม", "า"]


def test_tokenization_cider_of_chinese_captions_is_of_characters():
    several = [[text, other] for text, other in zip(CHINESE, WRONG, strict=True)]
    found = scores(WRONG, several, names=("cider", "bleu"))
    assert found["cider"].value > 100
    assert "unit:characters" in found["cider"].signature
    assert "unit" not in scores(["a dog"], [["a dog"]], names=("cider",))["cider"].signature


def test_tokenization_several_references_are_scored_together():
    written = ["A cat was sitting on the mat.", "A dog runs in the park today."]
    one = ["The cat sat on the mat.", "A dog runs in the park today."]
    other = ["A cat was sitting on the mat.", "Today a dog is running in the park."]
    found = scores(written, list(zip(one, other, strict=True)))
    assert found["bleu"].value == pytest.approx(sacrebleu.corpus_bleu(written, [one, other]).score) == 100
    assert all("nrefs:2" in each.signature for each in found.values())
    assert by_source_length(written, written, [[a, b] for a, b in zip(one, other, strict=True)])[
        0
    ].bleu == pytest.approx(100)


def _files(folder, **lines):
    for name, texts in lines.items():
        (folder / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return [folder / name for name in lines]


def test_tokenization_files_of_several_references_and_systems(tmp_path):
    hyp, other, one, two = _files(tmp_path, hyp=["a b c d"], other=["a b x d"], one=["a b c e"], two=["a b c d"])
    (found,), tested = score_files([hyp], [one, two], False, ["bleu", "wer"])
    assert (found.scores["bleu"].value, found.scores["wer"].value, tested) == (pytest.approx(100), 0, [])
    assert found.reference == [str(one), str(two)]
    assert "against each of 2 references" in str(found)
    both, tested = score_files([hyp, other], [one], False, ["wer"])
    assert [each.scores["wer"].value for each in both] == [25, 50]
    assert [each.system for each in tested] == [str(hyp), str(other)]
    assert both[0].reference == str(one)


def test_tokenization_tokenizer_is_said_unless_it_is_the_usual_one(tmp_path):
    hyp, ref, said = *_files(tmp_path, hyp=WRONG, ref=CHINESE), list[str]()
    (found,), _ = score_files([hyp], [ref], False, ["bleu"], print_fn=said.append)
    assert found.scores["bleu"].value > 50
    assert said == [describe_tokenizer("zh", CHINESE)]
    score_files(*([path] for path in _files(tmp_path, a=["x y"], b=["x z"])), False, ["bleu"], print_fn=said.append)
    assert len(said) == 1


def _score(folder, hypotheses: str, *words: str) -> tuple[int, str, str]:
    """The status, output and errors of `s2s evaluate --hypotheses`; words before the options are references."""
    status, first = 0, next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    references = [word for reference in words[:first] for word in ("--reference", reference)]
    command = ["s2s", "evaluate", "--hypotheses", hypotheses, *references, *words[first:]]
    with contextlib.chdir(folder), mock.patch.object(sys, "argv", command):
        with CliRunner().isolation() as (out, err, _):
            try:
                main()
            except SystemExit as end:
                status = int(end.code or 0)
        return status, out.getvalue().decode(), err.getvalue().decode()


def test_tokenization_command_scores_several_references_and_says_the_tokenizer(tmp_path):
    _files(tmp_path, hyp=["a b c d"], one=["a b c e"], two=["a b c d"], short=["x", "y"], zh=CHINESE, wrong=WRONG)
    status, shown, said = _score(tmp_path, "hyp", "one", "two", "--metric", "bleu")
    assert (status, said) == (0, "")
    assert "100.00" in shown
    assert "nrefs:2" in shown
    _, shown, _ = _score(tmp_path, "hyp", "one", "--against", "two", "--metric", "bleu")
    assert "p = " in shown
    assert "nrefs:1" in shown
    _, shown, said = _score(tmp_path, "wrong", "zh")
    assert "tok:zh" in shown
    assert "zh (Chinese references)" in said
    for words, message in {
        ("hyp", "one", "short"): "short has 2",
        ("hyp", "one", "one"): "given twice",
        ("hyp",): "--reference FILE",
        ("hyp", "one", "--against", "hyp"): "given twice",
        ("hyp", "one", "--tokenize", "flores"): "flores200",
    }.items():
        status, _, said = _score(tmp_path, *words)
        assert status == 2
        assert message in said
