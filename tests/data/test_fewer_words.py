"""The built-in corpus with a share of its words."""

import re

import pytest

from s2s.data.phrasebook import phrases


def _words(share, size):
    return {word for p in phrases("train", size, words=share) for word in re.findall(r"\w+", p.source.lower())}


@pytest.mark.slow
def test_phrasebook_fewer_words_are_some_of_all():
    few, every = _words(0.2, 1000), _words(1.0, 6000)
    assert len(few) < 0.6 * len(every)
    # of those that both know, a rare form or two may not have been drawn
    assert len(few - every) < 0.01 * len(few)


def test_phrasebook_without_numbers_in_words_and_every_other_construction():
    every = {p.construction for p in phrases("train", 1500)}
    assert every - {p.construction for p in phrases("train", 1500, words=0.2)} == {"number"}


def test_phrasebook_test_sentences_are_never_trained_on_and_none_repeats_itself():
    train, test = ([p.source for p in phrases(split, 300, words=0.01)] for split in ("train", "test"))
    assert len(set(train)) == len(train)
    assert not set(train) & set(test)
