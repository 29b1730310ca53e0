"""Data check of labelled texts: problems found before training."""

from collections.abc import Sequence

from s2s.data import data_check as look
from s2s.data.scripts import is_unspaced, split_words, unit_name
from s2s.data.sources import Corpus, count_overlap, hashes
from s2s.tasks.classification.data import Labelled, LabelledSource
from s2s.tasks.classification.recipe import ClassificationRecipe
from s2s.tasks.data_check import CorpusInspection, Split, conversions, inspect_labels, look_through, some


def inspected(recipe: ClassificationRecipe) -> str:
    """Return a report on a recipe's texts: statistics and suspicious examples.

    Returns:
        The report as text.
    """
    source = LabelledSource(recipe.data)
    corpus = source.load()
    return str(inspect_labelled(corpus, recipe.data.seed, source.missing_labels(corpus)))


def inspect_labelled(corpus: Corpus[Labelled], seed: int, own: Sequence[str] = ()) -> CorpusInspection:
    """Check labelled texts."""
    texts, labels = corpus.train.texts, corpus.train.labels
    rows = look.sample_rows(len(labels), seed)
    numbers = {name: corpus.row_numbers(name, len(part.labels)) for name, part in corpus.splits().items()}
    spots = [
        f"  {number:>9,}  {corpus.train.names[int(labels[row])]}: {look.escape_invisible(texts[row]['text'])}"
        for row, number in ((row, numbers["train"][row]) for row in rows)
    ]
    splits = {name: _split(name, part, numbers[name]) for name, part in corpus.splits().items()}
    in_train = {"texts": count_overlap(corpus, lambda part: part.texts["text"])}
    return CorpusInspection(splits, in_train, spots, own=own, note=corpus.note)


def _split(name: str, part: Labelled, numbers: Sequence[int]) -> Split:
    texts, which = part.texts["text"], f"texts of {name}"
    unspaced = is_unspaced(texts)
    words, empty, suspicious = look_through(
        texts, lambda text: len(split_words(text, unspaced)), unit_name(unspaced), numbers
    )
    found = inspect_labels(name, "texts", hashes(texts), part.labels, part.counts(), numbers, empty)
    advice = [*some(empty, which, (" is empty", " are empty")), *found.advice, *conversions(suspicious, which)]
    return Split({**found.rows, **words, "empty texts": len(empty)}, advice)
