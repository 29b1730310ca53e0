"""The tokenizer that `s2s new` chooses."""

import pytest

from s2s.data.tokenizers import UNK
from s2s.tasks.recipe_generation import choose_tokenizer, count_words

COLOURS = ("red", "green", "blue", "pink")
TEXTS = [f"a {one} and a {other} box" for one in COLOURS for other in COLOURS] * 4


def test_tokenizer_choice_texts_of_few_words_are_cut_into_words():
    pieces = choose_tokenizer(TEXTS, [count_words(TEXTS, TEXTS[:5])], "identity")
    assert pieces.kind == "word"
    assert not any(UNK in text for text in pieces.tokenizer.encode_batch(TEXTS))


@pytest.mark.parametrize("between", ["\t", "\r\n", "\u2003"])
def test_words_that_stand_between_other_white_space_are_none_to_the_tokenizer(between):
    texts = [text.replace(" and ", f"{between}and ") for text in TEXTS]
    pieces = choose_tokenizer(texts, [count_words(texts, ())], "identity")
    assert not any(UNK in text for text in pieces.tokenizer.encode_batch(texts))


def test_tokenizer_choice_word_that_only_held_out_texts_have_is_a_new_one():
    assert choose_tokenizer(TEXTS, [count_words(TEXTS, ["a violet box"])], "identity").kind != "word"
