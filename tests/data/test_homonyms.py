"""Homonyms are disambiguated by exactly one noun."""

import re
from collections import defaultdict

import pytest

from s2s.data.homonyms import homonyms, signs
from s2s.errors import UserError

FOUND = homonyms("train", 6000)


def test_homonyms_noun_that_tells_the_meaning_tells_the_german_word():
    told = signs()
    for found in FOUND[:2000]:
        # a weak masculine has one ending more
        assert any(word in (told[found.sign], f"{told[found.sign]}n") for word in re.findall(r"\w+", found.target))
        assert {found.word, found.sign} <= set(re.findall(r"\w+", found.source.lower()))


def test_homonyms_without_that_noun_a_sentence_has_either_meaning():
    seen = defaultdict(set)
    for found in FOUND:
        # its article and its adjective go with both meanings, too
        rest = re.sub(rf"\b{found.sign}\b", "…", found.source.lower())
        seen[rest].add(signs()[found.sign])
    assert max(map(len, seen.values())) == 2
    assert sum(len(meanings) == 2 for meanings in seen.values()) > 20


def test_homonyms_sentence_is_in_one_split_whatever_is_asked_for():
    parts = [
        {found.source for found in homonyms(split, 300, seed)} for split in ("validation", "test") for seed in (1, 2)
    ]
    train = {found.source for found in FOUND}
    assert not train & set.union(*parts)
    assert not (parts[0] | parts[1]) & (parts[2] | parts[3])
    assert homonyms("test", 20) == homonyms("test", 50)[:20]


def test_homonyms_german_articles_are_those_of_the_case():
    targets = " ".join(found.target for found in FOUND)
    for right in ("vom Ufer", "von der Bank", "den Kranich", "den Buchstaben", "Der Brief ist", "vom Buchstaben"):
        assert right in targets
    for wrong in ("von dem", "vom Bank", "den Bank", "der Buchstaben", "den Buchstabe,"):
        assert wrong not in targets


def test_homonyms_missing_from_the_corpus_are_reported(monkeypatch):
    monkeypatch.setattr("s2s.data.phrasebook._PATIENCE", 20)
    with pytest.raises(UserError, match="no split 'dev'"):
        homonyms("dev", 5)
    with pytest.raises(UserError, match="no more than about"):
        homonyms("validation", 10**5)
