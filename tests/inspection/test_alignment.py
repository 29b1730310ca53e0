"""Word alignments compared with a hand-made table of weights."""

import numpy as np

from s2s.data.tokenizers import EOS, train
from s2s.inspection.words import Word, links, pharaoh, words_of
from s2s.recipe.schema import PieceSettings

# "the cat|s sleep </s>" and "die Katze|n schla|fen </s>"
SOURCE = [Word("the", (0,)), Word("cats", (1, 2)), Word("sleep", (3,))]
TARGET = [Word("die", (0,)), Word("Katzen", (1, 2)), Word("schlafen", (3, 4))]
WEIGHTS = np.array(
    [
        [0.6, 0.1, 0.1, 0.2, 0.0],
        # its two pieces of 0.3 are more than the 0.4 of one other
        [0.4, 0.3, 0.3, 0.0, 0.0],
        [0.0, 0.5, 0.5, 0.0, 0.0],
        # neither piece alone decides, their mean does; the end does not count
        [0.5, 0.0, 0.0, 0.4, 0.1],
        [0.0, 0.0, 0.0, 0.2, 0.8],
        [0.0, 0.0, 0.0, 0.0, 1.0],
    ]
)


def test_alignment_links_are_those_found_by_hand():
    assert links(WEIGHTS, SOURCE, TARGET) == [(0, 0), (1, 1), (2, 2)]
    assert pharaoh(links(WEIGHTS, SOURCE, TARGET)) == "0-0 1-1 2-2"


def test_alignment_links_are_in_the_order_of_the_source_and_each_target_word_has_one():
    turned = [TARGET[2], TARGET[0], TARGET[1]]
    assert pharaoh(links(WEIGHTS, SOURCE, turned)) == "0-1 1-2 2-0"
    alike = np.tile([0.0, 0.9, 0.0, 0.0, 0.1], (6, 1))
    assert pharaoh(links(alike, SOURCE, TARGET)) == "1-0 1-1 1-2"


def test_alignment_nothing_is_linked_to_nothing():
    assert pharaoh(links(WEIGHTS, SOURCE, [])) == pharaoh(links(WEIGHTS, [], TARGET)) == ""


def test_alignment_words_are_what_white_space_parts_whatever_the_pieces():
    lines = ["The cats were sleeping, weren't they?", "The café was closed."] * 3
    for kind, size in (("unigram", 30), ("bpe", 60), ("word", 100), ("char", 100), ("bytes", 100)):
        tokenizer = train(lines, PieceSettings(kind=kind, size=size, byte_fallback=False), "shared")
        for line in lines[:2]:
            ids = tokenizer.encode(line)
            words = words_of(tokenizer, ids)
            assert [word.text for word in words] == line.split()
            # each piece belongs to one word
            assert sorted(place for word in words for place in word.places) == list(range(len(ids)))
            assert words_of(tokenizer, [*ids, EOS])[-1] == Word("</s>", (len(ids),))


CHINESE = ["我今天去商店买了三个苹果和两个梨。", "明天早上八点我们在火车站门口见面，然后去商店。"]


def test_alignment_words_of_scripts_without_spaces_are_pieces_or_characters():
    for kind, size in (("unigram", 39), ("bpe", 39), ("char", 100), ("bytes", 100)):
        settings = PieceSettings(kind=kind, size=size, byte_fallback=False, normalization="identity")
        tokenizer = train(CHINESE * 3, settings, "shared")
        for line in CHINESE:
            ids = tokenizer.encode(line)
            words = words_of(tokenizer, ids)
            assert "".join(word.text for word in words) == line
            assert len(words) > 5
            assert sorted(place for word in words for place in word.places) == list(range(len(ids)))
            characters = words_of(tokenizer, [*ids, EOS], by_character=True)
            assert [word.text for word in characters] == [*line, "</s>"]
            assert {place for word in characters for place in word.places} == set(range(len(ids) + 1))


def test_alignment_segmented_text_and_text_of_other_scripts_keep_their_words():
    lines = ["我 今天 去 商店 买 了 三 个 苹果", "the cats sleep near 北京 today"]
    tokenizer = train(lines * 3, PieceSettings(kind="char", size=100), "shared")
    for line in lines:
        words = words_of(tokenizer, tokenizer.encode(line), by_character=True)
        assert len(words) >= len(line.split())
        assert [word.text for word in words][:2] == line.split()[:2]


def test_alignment_characters_are_aligned_by_the_pieces_that_they_are_in():
    source = [Word("苹", (0,)), Word("果", (0,)), Word("红", (1,))]
    looked = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert links(looked, source, [Word("apple", (0,)), Word("red", (1,))]) == [(0, 0), (2, 1)]
