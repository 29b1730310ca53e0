"""Stratified hold-out has each class in each split."""

import numpy as np
import pytest

from s2s.data.sources import Corpus, stratified
from s2s.tasks.classification.data import LabelledSource
from s2s.tasks.classification.recipe import LabelledSettings
from s2s.tasks.text_to_text.data import TaskSource
from s2s.tasks.text_to_text.recipe import CorpusSettings


@pytest.mark.parametrize("sizes", [(30, 30), (3, 3), (3,), (200, 5)])
def test_stratification_stratified_puts_each_class_with_enough_examples_in_each_part(sizes):
    counts = {0: 500, 1: 40, 2: 3}
    classes = np.random.default_rng(1).permutation(np.repeat(list(counts), list(counts.values())))
    parts = stratified(classes, sizes)
    assert [len(part) for part in parts] == list(sizes)
    assert len(np.unique(np.concatenate(parts))) == sum(sizes)
    left = np.setdiff1d(np.arange(len(classes)), np.concatenate(parts))
    for part in (*parts, left):
        assert set(classes[part]) == {0, 1, 2}
    if min(sizes) >= 30:
        for size, part in zip(sizes, parts, strict=True):
            assert abs((classes[part] == 1).sum() - size * 40 / 543) <= 1


def test_stratification_stratified_keeps_the_only_example_of_a_class_for_training():
    classes = np.array([1, *[0] * 50])
    assert all((classes[part] == 0).all() for part in stratified(classes, [10, 10]))


def test_stratification_stratified_holds_out_reserved_examples_where_no_others_are_left():
    classes = np.arange(6)
    assert [len(part) for part in stratified(classes, [3, 2])] == [3, 2]


def test_stratification_stratified_takes_one_class_in_the_order_given():
    first, second = stratified(np.zeros(20, dtype=np.int64), [4, 5])
    assert (first.tolist(), second.tolist()) == ([0, 1, 2, 3], [4, 5, 6, 7, 8])


def test_stratification_labelled_source_holds_out_by_class(tmp_path):
    rows = [f"text {number},{'rare' if number < 3 else 'usual'}" for number in range(300)]
    (tmp_path / "t.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    for seed in range(1, 6):
        settings = LabelledSettings(train=str(tmp_path / "t.csv"), validation=6, test=6, seed=seed)
        corpus = LabelledSource(settings).load()
        assert [part.counts()["rare"] for part in corpus.splits().values()] == [1, 1, 1]
        assert [len(part) for part in corpus.splits().values()] == [288, 6, 6]


def test_stratification_task_source_holds_out_by_answer(tmp_path):
    rows = [f"text {number},{'rare' if number < 3 else 'usual'}" for number in range(300)]
    (tmp_path / "t.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    settings = CorpusSettings(
        corpus="files",
        source="text",
        target="label",
        train=str(tmp_path / "t.csv"),
        validation=6,
        test=6,
        answers=("rare", "usual"),
        metric="macro_f1",
    )
    corpus: Corpus = TaskSource(settings).load()
    assert [part["target"].count("rare") for part in (corpus.train[:], corpus.validation[:], corpus.test[:])] == [1] * 3
