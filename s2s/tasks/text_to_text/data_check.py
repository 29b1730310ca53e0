"""Data check of a mixture of corpora: problems found before training.

The check covers each corpus by itself, and the mixture.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from s2s.data import data_check as look
from s2s.data.data_check import cutting
from s2s.data.mixing import describe_mixture
from s2s.data.pair_check import Inspection, blocks, inspect
from s2s.data.pairs import pairs
from s2s.data.sources import Corpus
from s2s.data.tokenizers import Tokenizer, train
from s2s.errors import UserError
from s2s.tasks.data_check import IMBALANCE, missing_classes
from s2s.tasks.text_to_text.data import (
    Mixture,
    MixtureSource,
    TrainingMixture,
    build_training_mixture,
    in_pieces,
    own_keys,
    read_and_written,
)
from s2s.tasks.text_to_text.recipe import CorpusSettings, TextToTextRecipe

if TYPE_CHECKING:
    import datasets

Parts = Mapping[str, "datasets.Dataset"]


def inspected(recipe: TextToTextRecipe) -> str:
    """Return a report on a recipe's corpora: statistics and suspicious examples.

    Args:
        recipe: Resolved recipe.

    Returns:
        The report as text.
    """
    corpora, corpus, tokenizer = recipe.data.corpora, MixtureSource(recipe.data).load(), recipe.tokenizer
    shown, advice, learned = [], [], build_training_mixture(recipe.data.corpora, corpus)
    for name, settings in corpora.items():
        found = inspect(_alone(corpus, name), settings, tokenizer.normalization)
        head, *others = blocks(found) if settings.objective == "pairs" else _of_texts(found)
        shown += [[f"── {name}", *head], *others]
        advice += [f"{name}: {own_keys(words, name)}" for words in _corpus_advice(found, settings)]
        if settings.answers:
            table, more = _answers(corpus, name, settings.answers)
            shown.append(table)
            advice += [f"{name}: {words}" for words in more]
    parts = {split: part.parts for split, part in corpus.parts().items()}
    parts["train"] = {name: each.kept for name, each in learned.items()}
    together, more = _together(recipe, learned, parts)
    return look.findings([*shown, together], [*advice, *_confusable(corpora), *more])


def _alone(corpus: Corpus[Mixture], name: str) -> Corpus["datasets.Dataset"]:
    test = corpus.test.parts.get(name) if corpus.test else None
    return Corpus(corpus.train.parts[name], corpus.validation.parts[name], test)


def _of_texts(found: Inspection) -> list[list[str]]:
    """Return the report on a corpus with span corruption, whose sides are one text."""
    sizes = {name: split.source for name, split in found.splits.items()}
    rows = {"texts": [split.pairs for split in found.splits.values()]}
    rows["words"] = [side.words for side in sizes.values()]
    rows["words, different"] = [side.types for side in sizes.values()]
    rows["repeated texts"] = [len(split.duplicates) for split in found.splits.values()]
    spots = [f"  {row:>9,}  {look.escape_invisible(text)}" for row, text, _ in found.spots]
    return [look.table(sizes, rows), [f"train: {len(spots)} texts drawn at random", *spots]]


def _corpus_advice(found: Inspection, settings: CorpusSettings) -> list[str]:
    """Return the advice that applies: answers are short, and a text equals its source."""
    beside: tuple[str, ...] = ("hardly go together",) if settings.answers else ()
    beside += ("just the source again",) if settings.objective == "span-corruption" else ()
    return [words for words in found.advice if not any(part in words for part in beside)]


def _answers(corpus: Corpus[Mixture], name: str, answers: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a table of the answers' frequencies, and advice."""
    said = {
        split: Counter(target.strip() for _, target in pairs(part.parts[name]))
        for split, part in corpus.parts().items()
        if name in part.parts
    }
    table = ["answers", *look.table(said, {answer: [count[answer] for count in said.values()] for answer in answers})]
    train = said["train"]
    most, advice = max(train[answer] for answer in answers), []
    for answer in answers:
        if train[answer] * IMBALANCE < most:
            advice.append(f"{answer} is {train[answer]:,} times the answer, another one {most:,} times: see macro-F1")
    for split, counts in said.items():
        advice += missing_classes(split, "targets", {answer: counts[answer] for answer in answers})
    return table, advice


def _confusable(corpora: Mapping[str, CorpusSettings]) -> Iterator[str]:
    """Yield advice on tasks with the same prefix, which a model cannot tell apart."""
    prefixes = Counter(each.prefix for each in corpora.values() if each.objective == "pairs")
    for prefix, count in prefixes.items():
        if count > 1:
            names = ", ".join(name for name, each in corpora.items() if each.prefix == prefix)
            yield f"{names} have the same prefix {prefix!r}: nothing says which task it is"


def _together(
    recipe: TextToTextRecipe, learned: Mapping[str, TrainingMixture], parts: Mapping[str, Parts]
) -> tuple[list[str], list[str]]:
    """Return statistics and advice on the mixture: tokenization and sampling rates."""
    corpora, longest = recipe.data.corpora, recipe.batches.max_length
    texts = {split: list(read_and_written(corpora, each)) for split, each in parts.items()}
    make = cache(lambda: train(texts["train"], recipe.tokenizer, "text"))
    cut = cutting(texts, make, None)
    lines, advice = [f"── together, mixing {recipe.data.mixing}"], [*cut.advice()]
    lines += [f"  {name}: {each.left}" for name, each in learned.items() if each.elsewhere]
    if cut.failure or not all(map(len, parts["train"].values())):
        return lines, advice
    try:
        sides = {split: _longer_sides(each, corpora, make(), longest) for split, each in parts.items()}
    except UserError as error:
        return lines, [*advice, f"{error.where}: {error.what}: {error.remedy}"]
    fit = [int((each <= longest).sum()) for each in sides["train"].values()]
    above = {split: sum(int((each > longest).sum()) for each in found.values()) for split, found in sides.items()}
    if any(fit):
        lines += describe_mixture(sides["train"], fit, recipe.data.mixing, recipe.data.weights)
    if above["train"]:
        advice.append(f"{above['train']:,} examples of train are longer than batches.max_length ({longest}): left out")
    return [*lines, *look.table(parts, {**cut.rows(), f"examples above {longest:,}": above.values()})], advice


def _longer_sides(
    parts: Parts, corpora: Mapping[str, CorpusSettings], tokenizer: Tokenizer, longest: int
) -> dict[str, Int[np.ndarray, " examples"]]:
    """Return the length of each example's longer side in tokens, as in training."""
    made = {name: in_pieces(part, corpora[name], tokenizer, longest)[0] for name, part in parts.items()}
    return {name: np.maximum(each.source_lengths, each.target_lengths) for name, each in made.items()}
