"""The built-in English–German corpus: splits, agreement, numbers and cases."""

import hashlib
import itertools
import os
import random
import re
import string
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from s2s.data import phrasebook
from s2s.data.phrasebook import CONSTRUCTIONS, SPLITS, Phrase, phrases
from s2s.data.phrasebook.english import number_words
from s2s.data.phrasebook.english import ordinal as english_ordinal
from s2s.data.phrasebook.german import number_word, ordinal
from s2s.data.phrasebook.lexicon import nouns, verbs
from s2s.data.phrasebook.patterns import PATTERNS
from s2s.data.phrasebook.scenes import Chooser
from s2s.errors import UserError


@cache
def sample() -> list[Phrase]:
    return phrases("train", 6_000)


def words(text: str) -> list[str]:
    return [word.strip(string.punctuation) for word in text.split()]


# --- splits and streams


def test_phrasebook_sentences_never_change():
    drawn = [*phrases("train", 1000), *phrases("test", 100, 2), *phrases("train", 300, words=0.2)]
    drawn += phrases("test", 20, depth=3)
    found = repr([(phrase.source, phrase.target, phrase.cases) for phrase in drawn])
    assert hashlib.sha256(found.encode()).hexdigest() == (
        "90eab099f521ba1826053629694a5ababce67013745693d7e8247a9c323967ee"
    )


def test_phrasebook_splits_share_no_sentence():
    sources = {split: set() for split in SPLITS}
    for split, seed in itertools.product(SPLITS, (1, 2)):
        sources[split] |= {phrase.source for phrase in phrases(split, 1500 if split == "train" else 120, seed)}
    for one, two in itertools.combinations(SPLITS, 2):
        assert not sources[one] & sources[two]


def test_phrasebook_seeds_share_no_stream_but_each_split_is_a_random_part_of_it():
    one, two = ({phrase.source for phrase in phrases("train", 2000, seed)} for seed in (1, 2))
    assert len(one & two) < 100
    whole = Counter(phrase.construction for phrase in phrases("test", 300))
    assert set(whole) == set(CONSTRUCTIONS)


def test_phrasebook_larger_size_begins_with_the_phrases_of_a_smaller_one():
    for split in SPLITS:
        assert phrases(split, 120, 3)[:50] == phrases(split, 50, 3)
    assert phrases("test", 40, depth=3)[:11] == phrases("test", 11, depth=3)


def test_phrasebook_phrases_are_the_same_in_every_process():
    program = (
        "from s2s.data.phrasebook import phrases; print(phrases('validation', 60, 5), phrases('test', 20, depth=2))"
    )
    expected = f"{phrases('validation', 60, 5)} {phrases('test', 20, depth=2)}"
    root = Path(__file__).parents[2]
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONIOENCODING": "utf-8"}
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            encoding="utf-8",
            cwd=root,
            env=environment,
            check=True,
        )
        assert done.stdout.strip() == expected


def test_phrasebook_changing_a_returned_list_changes_no_other():
    first = phrases("validation", 3)
    first.pop()
    assert len(phrases("validation", 3)) == 3


def test_phrasebook_all_phrases_are_distinct():
    assert len({phrase.source for phrase in sample()}) == len(sample())


@pytest.mark.slow
def test_phrasebook_source_determines_its_target():
    targets: dict[str, str] = {}
    streams = (phrases("train", 18_000, 2), phrases("test", 200, 3), phrases("train", 1000, 1, depth=1))
    for phrase in itertools.chain(sample(), *streams):
        assert targets.setdefault(phrase.source, phrase.target) == phrase.target
    assert len(targets) > 20_000


# --- what the corpus is like


def test_phrasebook_there_are_over_a_thousand_words_a_side_and_most_are_no_numbers():
    number = re.compile("hundert|tausend|zig|ßig|zehn$")
    for side in ("source", "target"):
        types = {word.lower() for phrase in sample() for word in words(getattr(phrase, side))}
        assert len(types) > 1000
        assert len([word for word in types if not number.search(word)]) > 900


def test_phrasebook_every_construction_occurs_and_numbers_are_a_moderate_share():
    counts = Counter(phrase.construction for phrase in sample())
    assert set(counts) == set(CONSTRUCTIONS) == set(PATTERNS)
    assert min(counts.values()) > 0.01 * len(sample())
    assert 0.06 < counts["number"] / len(sample()) < 0.09


@pytest.mark.parametrize("side", ["source", "target"])
def test_phrasebook_sentences_are_well_formed(side):
    for phrase in sample():
        text = getattr(phrase, side)
        assert text[0].isupper()
        assert text[-1] in ".!?"
        assert not re.search(r"  | [,.!?]|[,.!?][,.!?]|^\s|None", text), text
        assert len(re.findall("[.!?]", text)) == 1


def test_phrasebook_both_sides_end_alike_and_have_as_many_questions():
    assert all(phrase.source[-1] == phrase.target[-1] for phrase in sample())


def test_phrasebook_articles_melt_into_prepositions_everywhere():
    unmelted = re.compile(r"\b(in dem|in das|an dem|an das|von dem|bei dem|zu dem|zu der) \w+( \w+)?[.!?]$")
    for phrase in sample():
        assert not unmelted.search(phrase.target), phrase.target


# --- depth


def subject_to_verb(phrase: Phrase) -> int:
    """Count the words between the subject noun and its verb: what stands between the outer commas."""
    if "," not in phrase.target:
        return 0
    start = phrase.target.index(",")
    return len(phrase.target[start : phrase.target.rindex(",")].strip(" ,").split())


@pytest.mark.parametrize("depth", [0, 1, 2, 5, 9])
def test_phrasebook_depth_sets_the_distance_between_subject_and_verb(depth):
    for phrase in phrases("train", 200, depth=depth):
        assert phrase.construction == "agreement"
        assert phrase.distance == subject_to_verb(phrase) == 4 * depth
        assert len(re.findall(r", (?:der|die|das) ", phrase.target)) == depth
        assert len(re.findall(r"\b(?:who|that)\b", phrase.source)) == depth


def test_phrasebook_verb_agrees_with_the_far_subject_and_not_with_the_near_noun():
    finite = {"ist": 0, "war": 0, "hat": 0, "wird": 0, "sind": 1, "waren": 1, "haben": 1, "werden": 1}
    seen = Counter()
    for phrase in phrases("train", 800, depth=2):
        verb = words(phrase.target[phrase.target.rindex(",") + 1 :])[0]
        if verb not in finite:
            continue
        head = words(phrase.source[: re.search(" who | that ", phrase.source).start()])[-1]
        plural = any(noun.english[1] == head for kind in ("person", "animal") for noun in nouns(kind))
        assert finite[verb] == plural, phrase
        seen[plural] += 1
    assert min(seen.values()) > 100


def test_phrasebook_every_relative_clause_agrees_with_the_noun_before_it():
    beings = [noun for kind in ("person", "animal") for noun in nouns(kind)]
    plurals = {form for noun in beings for form in noun.german[4:7]} - {
        form for noun in beings for form in noun.german[:3]
    }
    chained = verbs("transitive", "dative")
    english = {verb.english[1]: False for verb in chained} | {verb.english[0]: True for verb in chained}
    german = {verb.prefix + verb.present[2]: False for verb in chained}
    german |= {verb.prefix + verb.present[4]: True for verb in chained}
    checked = Counter()
    for phrase in phrases("train", 400, depth=3):
        nested = re.findall(r"(\w+) (?:who|that) (\w+)", phrase.source)
        assert len(nested) == 3
        numbers = [english[verb] for _, verb in nested]
        assert numbers == [any(noun.english[1] == head for noun in beings) for head, _ in nested], phrase
        heads = [words(part)[-1] for part in phrase.target.split(",")[:1]]
        heads += [words(part)[2] for part in phrase.target.split(",")[1:3]]
        assert [german[words(part)[-1]] for part in phrase.target.split(",")[1:4]] == numbers, phrase
        assert all(number for head, number in zip(heads, numbers, strict=True) if head in plurals)
        checked.update(numbers)
    assert min(checked.values()) > 400


# --- mistakes


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"split": "dev", "size": 5}, "dev"),
        ({"split": "train", "size": -1}, "-1"),
        ({"split": "train", "size": 5, "depth": -1}, "-1"),
        ({"split": "train", "size": 5, "depth": 99}, "99"),
        ({"split": "test", "size": 100_000, "depth": 0}, "100,000"),
    ],
)
def test_phrasebook_impossible_wish_is_a_user_error_that_names_it(arguments, expected, monkeypatch):
    monkeypatch.setattr(phrasebook, "_PATIENCE", 200)
    with pytest.raises(UserError, match=expected) as caught:
        phrases(**arguments)
    assert caught.value.remedy


# --- numbers, read back by parsers that share nothing with the grammar

ENGLISH_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
ENGLISH_UNITS = {word: value for value, word in enumerate(ENGLISH_SMALL.split())} | {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90
}  # fmt: skip
GERMAN_UNITS = {
    "null": 0, "eins": 1, "ein": 1, "eine": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7,
    "acht": 8, "neun": 9, "zehn": 10, "elf": 11, "zwölf": 12, "sechzehn": 16, "siebzehn": 17, "zwanzig": 20,
    "dreißig": 30, "vierzig": 40, "fünfzig": 50, "sechzig": 60, "siebzig": 70, "achtzig": 80, "neunzig": 90,
    "dreizehn": 13, "vierzehn": 14, "fünfzehn": 15, "achtzehn": 18, "neunzehn": 19,
}  # fmt: skip


def read_english(text: str) -> int:
    total, group = 0, 0
    for word in re.split("[ -]", text):
        if word == "and":
            continue
        if word == "hundred":
            group *= 100
        elif word in {"thousand", "million"}:
            total, group = total + group * (1000 if word == "thousand" else 1_000_000), 0
        else:
            group += ENGLISH_UNITS[word]
    return total + group


def read_german(text: str) -> int:
    text = text.replace(" Million", "million")
    for word, factor in (("million", 1_000_000), ("tausend", 1000), ("hundert", 100)):
        left, found, right = text.partition(word)
        if found:
            return factor * read_german(left) + (read_german(right) if right else 0)
    if text in GERMAN_UNITS:
        return GERMAN_UNITS[text]
    ones, _, tens = text.partition("und")
    return GERMAN_UNITS[ones] + GERMAN_UNITS[tens]


def test_phrasebook_number_words_read_back_as_the_number():
    generator = random.Random(7)
    chosen = [*range(1300), *(generator.randint(0, 1_000_000) for _ in range(3000)), 999_999, 1_000_000]
    for number in chosen:
        assert read_english(number_words(number)) == number
        assert read_german(number_word(number)) == number


def test_phrasebook_number_words_are_spelled_as_in_the_dictionary():
    assert number_word(325_000) == "dreihundertfünfundzwanzigtausend"
    assert (number_word(16), number_word(17), number_word(66), number_word(70)) == (
        "sechzehn", "siebzehn", "sechsundsechzig", "siebzig")  # fmt: skip
    assert (number_word(1), number_word(21), number_word(101)) == ("eins", "einundzwanzig", "einhunderteins")
    assert number_words(1_234) == "one thousand two hundred and thirty-four"
    assert number_words(40_005) == "forty thousand and five"


def test_phrasebook_number_sentences_say_the_same_number_on_both_sides():
    checked = 0
    for phrase in sample():
        if phrase.construction == "number" and (found := re.search(r"costs? (.*) euros", phrase.source)):
            target = re.search(r"(\S+) Euro", phrase.target)
            assert target
            assert read_english(found[1]) == read_german(target[1])
            checked += 1
    assert checked > 100


def test_phrasebook_ordinals():
    assert [ordinal(day) for day in (1, 2, 3, 7, 8, 16, 19, 20, 31)] == [
        "erst", "zweit", "dritt", "siebt", "acht", "sechzehnt", "neunzehnt", "zwanzigst", "einunddreißigst",
    ]  # fmt: skip
    assert [english_ordinal(day) for day in (1, 2, 5, 12, 20, 23, 30)] == [
        "first", "second", "fifth", "twelfth", "twentieth", "twenty-third", "thirtieth",
    ]  # fmt: skip


def test_phrasebook_clock_times_count_towards_the_next_hour():
    spoken = {
        "one o'clock": "ein Uhr", "two o'clock": "zwei Uhr", "half past twelve": "halb eins",
        "half past seven": "halb acht", "quarter to eight": "Viertel vor acht", "five to one": "fünf vor eins",
        "quarter past one": "Viertel nach eins", "ten past six": "zehn nach sechs",
    }  # fmt: skip
    choose = Chooser(random.Random(1))
    drawn = {time.english: time.german for time in (choose.clock() for _ in range(3000))}
    for english, german in spoken.items():
        assert drawn[f"at {english}"] == f"um {german}"


def test_phrasebook_each_german_word_has_its_case():
    cases = {p.target: p.cases for p in phrases("train", 3000)}
    assert all(len(target.split()) == len(found.split()) for target, found in cases.items())
    seen: dict[str, set[str]] = {}
    for target, found in cases.items():
        for word, case in zip(target.split(), found.split(), strict=True):
            seen.setdefault(word, set()).add(case)
    # articles and pronouns that are their case's own, and some that need the sentence
    for word, only in (
        ("dem", "dat"),
        ("einen", "acc"),
        ("mich", "acc"),
        ("ihm", "dat"),
        ("nicht", "-"),
        ("im", "dat"),
    ):
        assert seen[word] - {"-"} == {only} - {"-"}, word
    assert seen["der"] == {"nom", "dat", "gen", "-"}
    assert seen["die"] == {"nom", "acc", "-"}
    assert {"nom", "acc", "dat", "gen", "-"} == set().union(*seen.values())
