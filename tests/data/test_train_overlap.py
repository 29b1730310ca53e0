"""Overlap of test and training examples, for each task."""

from pathlib import Path

import pytest

from s2s.data.sources import train_overlaps
from s2s.run.tasks import read, task_of

TRAIN = "source\ttarget\na\tX\nb\tY\nc\tX\nd\tY\n"
TEST = "source\ttarget\na\tX\nb\tX\ne\tY\n"
FILES = "corpus: files, train: train.tsv, validation: dev.tsv, test: test.tsv, source: source, target: target"


@pytest.mark.parametrize(
    ("recipe", "noun"),
    [
        (f"task: translation\ndata: {{{FILES}}}", "sources"),
        (f"task: text-to-text\ndata: {{corpora: {{one: {{{FILES}}}}}}}", "sources"),
        (
            "task: classification\ndata: {corpus: files, train: train.tsv, validation: dev.tsv, test: test.tsv, "
            "text: source, label: target}",
            "texts",
        ),
    ],
)
def test_train_overlaps_counts_inputs_and_targets(recipe: str, noun: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.tsv").write_text(TRAIN)
    Path("dev.tsv").write_text("source\ttarget\nf\tX\ng\tY\n")
    Path("test.tsv").write_text(TEST)
    Path("r.yaml").write_text(f"name: r\n{recipe}\nmodel: {{kind: gru}}\n")
    asked = read(Path("r.yaml"))
    source = task_of(asked).source(asked)
    validation, test = train_overlaps(source, source.load())
    assert (validation.split, validation.total, validation.seen) == ("validation", 2, 0)
    assert (test.split, test.total, test.seen, test.seen_with_target) == ("test", 3, 2, 1)
    assert str(test).startswith(f"2 of 3 test {noun} occur in the training data (1 with the same target): ")
