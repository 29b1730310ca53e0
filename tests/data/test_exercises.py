"""Synthetic exercises compared with independent solvers."""

from collections import Counter

import numpy as np
import pytest

from s2s.data.exercises import (
    EXERCISES,
    FIRST,
    Agreement,
    Associative,
    Copy,
    Examples,
    Recall,
    agreeing_verb,
    concatenate,
    unseen,
)
from s2s.data.phrasebook import phrases
from s2s.data.phrasebook.lexicon import nouns
from s2s.data.tokenizers import UNK
from s2s.errors import UserError


@pytest.fixture(scope="module")
def agreement():
    return Agreement()


def _recall(source):
    return source[:1], len(source) - 1


def _copy(source):
    symbols = source[: source.index(Copy.blank)]
    assert source[-1] == Copy.delimiter
    return symbols, source.count(Copy.blank)


def _associative(source):
    keys = range(FIRST, FIRST + Associative.keys)
    stored = dict(zip(source[0:8:2], source[1:8:2], strict=True))
    noise = [piece for piece in source if piece >= FIRST + Associative.keys + Associative.values]
    queries = source[8 + len(noise) :]
    assert len(stored) == 4
    assert len(set(queries)) == 2
    assert all(piece in keys for piece in [*stored, *queries])
    return [stored[key] for key in queries], len(noise)


SOLVERS = {"recall": _recall, "copy": _copy, "associative": _associative}


@pytest.fixture(params=EXERCISES, ids=lambda exercise: exercise.name)
def exercise(request):
    return request.param


@pytest.mark.parametrize("distance", [1, 2, 5, 16])
def test_exercises_another_solver_finds_every_answer_and_the_distance(exercise, distance):
    found = exercise.examples(distance, 200, seed=3)
    solved = [SOLVERS[exercise.name](source) for source in found.sources]
    assert [answer for answer, _ in solved] == found.targets
    assert {apart for _, apart in solved} == {distance}


def test_exercises_all_pieces_are_in_the_vocabulary_and_all_of_it_is_used(exercise):
    found = exercise.examples(8, 3_000, seed=1)
    used = {piece for row in (*found.sources, *found.targets) for piece in row}
    assert used == set(range(FIRST, exercise.vocabulary_size))


def test_exercises_examples_depend_on_seed_split_and_distance_alone(exercise):
    def sources(distance=6, seed=1, split="train"):
        return exercise.examples(distance, 50, seed, split).sources

    assert sources() == sources()
    others = [sources(seed=2), sources(split="held-out"), sources(split="test"), sources(distance=7)]
    assert all(sources() != other for other in others)
    assert len({str(other) for other in others}) == len(others)


@pytest.mark.parametrize("task", [Recall(), Associative()], ids=lambda task: task.name)
def test_exercises_last_pieces_of_a_source_ask_for_one_piece_each(task):
    found = task.examples(5, 50, 1)
    assert {len(target) for target in found.targets} == {task.asking}
    if task.name == "associative":
        # turned round, the questions have their answers turned round
        for source, target in zip(found.sources, found.targets, strict=True):
            turned = [*source[:-2], *source[:-3:-1]]
            assert _associative(turned)[0] == target[::-1]


def test_exercises_test_examples_are_not_among_those_learned_from(exercise):
    train = concatenate([exercise.examples(distance, 1_000, 1) for distance in (4, 8)])
    test = unseen(exercise.examples(8, 100, 1, "test"), train)
    assert len(test) >= 50
    assert not {tuple(row) for row in test.sources} & {tuple(row) for row in train.sources}


def test_exercises_in_a_small_space_tests_may_have_been_seen():
    train, test = Recall().examples(1, 50_000, 1), Recall().examples(1, 40, 1, "test")
    assert unseen(test, train) == test


def test_exercises_seen_examples_are_left_out_one_by_one():
    seen = Examples([[4], [5]], [[4], [5]])
    asked = Examples([[6], [5], [7]], [[6], [5], [7]], [(0, 4), (0, 6), (0, 5)])
    assert unseen(asked, seen) == Examples([[6], [7]], [[6], [7]], [(0, 4), (0, 5)])


@pytest.mark.parametrize(("task", "distance"), [(Recall(), 4)])
def test_exercises_baseline_is_what_the_most_frequent_answer_scores(task, distance):
    count = 15_000
    answers = Counter(map(tuple, task.examples(distance, count, 5).targets))
    best = answers.most_common(1)[0][1] / count
    # the most frequent of many equals is a little above its share
    assert task.baseline(distance) == pytest.approx(best, abs=0.012)


@pytest.mark.parametrize(("task", "distance"), [(Copy(), 3), (Associative(), 2)])
def test_exercises_baseline_of_a_long_answer_is_that_of_independent_guesses(task, distance):
    count = 40_000
    answers = np.array(task.examples(distance, count, 5).targets)
    shares = [np.bincount(column).max() / count for column in answers.T]
    assert task.baseline(distance) == pytest.approx(np.prod(shares), rel=0.1)
    right = np.mean((answers == answers[np.random.default_rng(1).permutation(count)]).all(axis=1))
    assert right == pytest.approx(task.baseline(distance), abs=0.003)


def test_exercises_distance_below_one_is_refused(exercise):
    with pytest.raises(UserError, match="no distance 0"):
        exercise.examples(0, 1, 1)


def test_exercises_parts_are_joined_with_their_rivals():
    part = Examples([[4]], [[5]], [(0, 6)])
    assert concatenate([part, part]) == Examples([[4], [4]], [[5], [5]], [(0, 6), (0, 6)])
    assert concatenate([Examples([[4]], [[5]])]).rivals is None


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_agreement_verb_has_its_distance_and_the_subjects_number(depth):
    plural = {noun.english[1] for noun in nouns("being")}
    for phrase in phrases("test", 60, depth=depth):
        place, form, other = agreeing_verb(phrase)
        signs = phrase.target.replace(",", " ,").replace(".", " .").split()
        assert signs[place] == form
        words = [sign for sign in signs[:place] if sign != ","]
        # article and subject, then the words between
        assert len(words) == 2 + phrase.distance == 2 + 4 * depth
        many = phrase.source.split()[1].rstrip(".") in plural
        # plural third persons of German are infinitives, or sind and waren
        assert (form.endswith("n") or form == "sind") == many
        assert (other.endswith("n") or other == "sind") != many


@pytest.mark.slow
def test_exercises_agreement_knows_every_word_of_deeper_sentences(agreement):
    found = agreement.examples(16, 100, 2, "test")
    rows = [*found.sources, *found.targets]
    assert not any(UNK in row for row in rows)
    assert max(map(max, rows)) < agreement.vocabulary_size
    for (place, rival), target in zip(found.rivals, found.targets, strict=True):
        assert rival not in (UNK, target[place])


def test_exercises_agreements_splits_share_no_sentence(agreement):
    train = agreement.examples(4, 300, 1)
    assert train == agreement.examples(4, 300, 1)
    for split in ("held-out", "test"):
        other = agreement.examples(4, 100, 1, split)
        assert not {tuple(row) for row in other.sources} & {tuple(row) for row in train.sources}


def test_exercises_agreements_baseline_is_the_share_of_the_more_frequent_number(agreement):
    found = agreement.examples(4, 1_000, 1)
    forms = Counter(target[place] for (place, _), target in zip(found.rivals, found.targets, strict=True))
    rivals = Counter(rival for _, rival in found.rivals)
    # whose form is right at each verb by which number says so: singular or plural alone
    plurals = {piece for piece in (forms | rivals) if agreement.tokenizer.tokens([piece])[0].endswith(("n", "sind"))}
    share = sum(forms[piece] for piece in plurals) / 1_000
    assert agreement.baseline(4) == pytest.approx(max(share, 1 - share))


def test_exercises_distance_between_clauses_is_refused(agreement):
    with pytest.raises(UserError, match="multiple of 4"):
        agreement.examples(6, 1, 1)
