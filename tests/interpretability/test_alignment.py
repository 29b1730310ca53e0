"""Word alignments: a hand-made table of weights, and words of which pieces are made."""

import numpy as np

from s2s.data.tokenizers import EOS, train
from s2s.interpretability.alignment import links, pharaoh
from s2s.interpretability.words import Word, words_of
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


def test_links_are_those_found_by_hand():
    assert links(WEIGHTS, SOURCE, TARGET) == [(0, 0), (1, 1), (2, 2)]
    assert pharaoh(links(WEIGHTS, SOURCE, TARGET)) == "0-0 1-1 2-2"


def test_links_are_in_the_order_of_the_source_and_each_target_word_has_one():
    turned = [TARGET[2], TARGET[0], TARGET[1]]
    assert pharaoh(links(WEIGHTS, SOURCE, turned)) == "0-1 1-2 2-0"
    alike = np.tile([0.0, 0.9, 0.0, 0.0, 0.1], (6, 1))
    assert pharaoh(links(alike, SOURCE, TARGET)) == "1-0 1-1 1-2"


def test_nothing_is_linked_to_nothing():
    assert pharaoh(links(WEIGHTS, SOURCE, [])) == pharaoh(links(WEIGHTS, [], TARGET)) == ""


def test_words_are_what_white_space_parts_whatever_the_pieces():
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
