"""The built-in corpus of a share of its words."""

import re

import pytest

from s2s.data.phrasebook import phrases


def _words(share, split="train", size=3000):
    return {word for p in phrases(split, size, words=share) for word in re.findall(r"\w+", p.target.lower())}


def test_fewer_words_are_some_of_all():
    few = _words(0.2)
    assert len(few) < 0.5 * len(_words(1.0))
    assert few <= _words(1.0, size=40_000)


def test_without_numbers_in_words_and_every_other_construction():
    every = {p.construction for p in phrases("train", 3000)}
    assert every - {p.construction for p in phrases("train", 3000, words=0.2)} == {"number"}


@pytest.mark.parametrize("share", [0.01, 0.2])
def test_test_sentences_are_never_trained_on_and_none_repeats_itself(share):
    train, test = ([p.source for p in phrases(split, 2000, words=share)] for split in ("train", "test"))
    assert len(set(train)) == len(train)
    assert not set(train) & set(test)
