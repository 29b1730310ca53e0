"""Splitting into sentences keeps every character, and translates each sentence as if it were alone."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2s.data.sentences import sentence_splitter, unsplit
from s2s.errors import UserError

TEXT = st.lists(st.sampled_from([*"aB .?!\t\n\u00a0\u3000。", "Dr. ", "z. B. "]), max_size=40).map("".join)


@given(TEXT, st.sampled_from(["en", "de", "zh", "no such language"]))
def test_splitting_and_joining_sentences_gives_the_text_back(text, language):
    line = sentence_splitter(language)(text)
    assert line.join(line.sentences) == text
    assert all(sentence and sentence == sentence.strip() for sentence in line.sentences)
    assert all(not space.strip() for space in line.spaces)
    assert unsplit(text).join([text]) == text


def test_sentences_end_at_full_stops_but_not_after_abbreviations():
    line = sentence_splitter("en")("  Dr. Smith buys a car.  He sleeps!\tGo? ")
    assert line.sentences == ["Dr. Smith buys a car.", "He sleeps!", "Go?"]
    assert line.join(["1", "2", "3"]) == "  1  2\t3 "


def test_line_on_which_the_package_panics_is_one_sentence(monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(language, line):
        raise PanicException

    monkeypatch.setattr("sentencex.segment", panic)
    line = sentence_splitter("en")(" A dog. A cat. ")
    assert line.sentences == ["A dog. A cat."]
    assert line.join(line.sentences) == " A dog. A cat. "


def test_splitting_sentences_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(
        UserError, match=r"needs the package sentencex\n.*pip install -c constraints.txt -e '.\[sentences\]'"
    ):
        sentence_splitter("en")
