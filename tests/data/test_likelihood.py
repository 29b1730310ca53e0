"""Probabilities of sentences under the built-in grammar."""

import math
import random
from collections import Counter

import pytest
from scipy.stats import chisquare

from s2s.data.phrasebook import draw_phrases, phrases
from s2s.data.phrasebook.likelihood import LikelihoodChooser, grammar_nats
from s2s.data.phrasebook.scenes import Chooser


def test_likelihood_witness_draws_what_a_chooser_draws():
    assert list(draw_phrases(LikelihoodChooser(random.Random(5)), "train", 150)) == phrases("train", 150, 5)


def _toy(choose: Chooser) -> tuple:
    """All ways of choosing, with a list that has an item twice, and a draw that is compared several times."""
    word = choose.until(lambda one: one != "no", lambda: choose.even(("a", "a", "b", "no")))
    noun = choose.pick(("x", "y", "z"))
    draw = choose.random()
    if draw < 0.2:
        return word, noun, "low"
    if draw >= 0.7:
        return word, noun, "high", choose.chance(0.3)
    if draw > 0.5:
        return word, noun, "middle", choose.generator.randint(1, 2)
    return word, noun, int(4 * choose.random())


def test_likelihood_choices_of_a_sentence_are_as_probable_as_they_are_frequent():
    witness, nats, counts = LikelihoodChooser(random.Random(3)), {}, Counter()
    for _ in range(20_000):
        witness.begin()
        made = _toy(witness)
        counts[made] += 1
        nats.setdefault(made, witness.nats)
        assert witness.nats == pytest.approx(nats[made])
    # "no" is drawn again: a quarter of the first draws is not counted, so all shares are three quarters of the truth
    shares = {made: math.exp(-n) / 0.75 for made, n in nats.items()}
    assert sum(shares.values()) == pytest.approx(1)
    expected = [20_000 * shares[made] for made in counts]
    assert chisquare(list(counts.values()), expected).pvalue > 0.001


def test_likelihood_sentences_are_at_least_as_frequent_as_the_bound_says():
    """Of an open draw the most frequent sentences are counted; none is rarer than its probability, beyond chance."""
    witness, counts, least = LikelihoodChooser(random.Random(1)), Counter(), {}
    choose = witness
    for _ in range(20_000):
        choose.begin()
        clock = choose.clock().english
        counts[clock] += 1
        least[clock] = max(least.get(clock, 0.0), math.exp(-choose.nats))
    for clock, share in least.items():
        expected = 20_000 * share
        assert counts[clock] > expected - 5 * math.sqrt(expected)


def test_likelihood_numbers_are_those_of_the_phrases():
    nats = grammar_nats("test", 6, seed=2)
    witness, expected = LikelihoodChooser(random.Random(2)), []
    for _ in draw_phrases(witness, "test", 6):
        expected.append(witness.nats)
    assert nats == pytest.approx(expected)
    assert grammar_nats("test", 4, seed=2) == nats[:4]
    assert all(5 < each < 150 for each in nats)
