"""Scripts without spaces: detection, and statistics in characters instead of words."""

import datasets
import pytest

from s2s.data.pair_check import inspect, render
from s2s.data.pairs import broken_rule
from s2s.data.scripts import is_unspaced, sentence_separator, split_words, unspaced_script
from s2s.data.sources import Corpus
from s2s.recipe.pairs import FilterSettings, PairSettings
from s2s.tasks.translation.prepared import dataset_summary, join_short_pairs
from s2s.tasks.translation.recipe import DataSettings

CHINESE = "我今天去商店买了三个苹果和两个梨。"
JAPANESE = "彼は黒い車を家で買います。"
THAI = "ฉันอยากไปเที่ยวทะเลกับเพื่อน"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        (CHINESE, "Chinese"),
        (JAPANESE, "Japanese"),
        (THAI, "Thai"),
        ("ຂ້ອຍຮັກເຈົ້າຫຼາຍ", "Lao"),
        ("ខ្ញុំស្រឡាញ់អ្នកណាស់", "Khmer"),
        ("ကျွန်တော်မင်းကိုချစ်တယ်", "Burmese"),
        ("བོད་སྐད་སློབ་སྦྱོང་བྱེད།", "Tibetan"),
        ("用 PyTorch 训练一个翻译模型吧", "Chinese"),
        ("저는 오늘 사과를 샀습니다", None),
        ("मैं आज दुकान गया", None),
        ("The Chinese name of Beijing is 北京", None),
        ("Müller aß drei Äpfel", None),
        ("1 + 1 = 2", None),
        ("", None),
    ],
)
def test_unspaced_script_is_that_of_most_letters(text, script):
    assert unspaced_script(text) == unspaced_script([text, ""]) == script
    assert is_unspaced(text) == (script is not None)


def test_script_segmented_text_has_spaces_between_words():
    assert unspaced_script("我 今天 去 商店 买 了 苹果") == "Chinese"
    assert not is_unspaced("我 今天 去 商店 买 了 苹果")
    assert not is_unspaced("ฉัน อยาก ไป เที่ยว ทะเล")
    # natural Thai has spaces between clauses
    assert is_unspaced("ฉันอยากไปเที่ยวทะเล แต่วันนี้ฝนตกหนักมาก")


def test_script_split_words_gives_characters_where_spaces_separate_none():
    assert split_words("我爱你们， 大家好。") == list("我爱你们，大家好。")
    assert split_words(" a  bc\td ") == ["a", "bc", "d"]
    assert split_words("东京", unspaced=False) == ["东京"]


def test_max_words_counts_characters_of_scripts_without_spaces():
    settings = FilterSettings(max_words=10, max_ratio=None)
    assert broken_rule("short", CHINESE, settings) == "over max_words"
    assert broken_rule("short", CHINESE[:10], settings) is None
    assert broken_rule("a " * 10, "b " * 10, settings) is None
    assert broken_rule("a " * 11, "b", settings) == "over max_words"


def _pairs(target: str, count: int = 40) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"source": ["a dog sleeps here"] * count, "target": [target] * count})


def test_script_joined_sentences_have_no_space_in_chinese_and_japanese_and_count_characters():
    assert sentence_separator([JAPANESE]) == sentence_separator([CHINESE]) == ""
    assert sentence_separator([THAI]) == sentence_separator(["a dog"]) == " "
    examples = join_short_pairs(
        _pairs(CHINESE), DataSettings(join=9, filters=FilterSettings(max_words=4 * len(CHINESE)))
    )
    assert {target.count(CHINESE) for target in examples["target"]} == {1, 2, 3, 4}
    assert not any(" " in target for target in examples["target"])
    assert "".join(examples["target"]) == CHINESE * 40
    read = datasets.Dataset.from_dict({"source": [CHINESE], "target": ["x"]})
    assert f"sources have {len(CHINESE):.1f} characters" in dataset_summary(read, 1)


def test_script_data_check_counts_characters_where_spaces_separate_no_words():
    found = inspect(Corpus(_pairs(THAI), _pairs(THAI, 2), None), PairSettings())
    assert found.splits["train"].target.words == 40 * len(THAI)
    text = render(found)
    assert "target words" not in text
    assert "source words" in text
    assert "train: pairs by words of the source and characters of the target" in text
    spaced = render(inspect(Corpus(_pairs("ein Hund"), _pairs("x", 2), None), PairSettings()))
    assert "pairs by words of the source and of the target" in spaced
    assert "target words" in spaced
