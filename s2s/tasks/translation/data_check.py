"""Data check of parallel corpora: problems found before training."""

from typing import TYPE_CHECKING

from s2s.data.mixing import describe_mixture as told_shares
from s2s.data.pair_check import blocks, inspect, render
from s2s.data.pairs import without_prefix
from s2s.data.sources import Corpus
from s2s.tasks.translation.data import OWN, TranslationSource, filtered, read_extra_corpora
from s2s.tasks.translation.prepared import dataset_summary, join_short_pairs
from s2s.tasks.translation.recipe import Recipe

if TYPE_CHECKING:
    import datasets


def inspected(recipe: Recipe) -> str:
    """Return a report on a recipe's corpora: statistics and suspicious examples.

    Returns:
        The report as text, with a section for each additional corpus.
    """
    data, corpus = recipe.data, TranslationSource(recipe.data).load()
    normalization = recipe.tokenizer.of("target").normalization
    # Prefixes are removed, because the checks concern the texts.
    held = (part and without_prefix(part, data.prefix) for part in (corpus.validation, corpus.test))
    plain: Corpus["datasets.Dataset"] = Corpus(without_prefix(corpus.train, data.prefix), *held)  # type: ignore[arg-type]
    found = inspect(plain, data, normalization)
    more = [["what data.join does", f"  {_joining(recipe, corpus)}"]] if data.join > 1 else []
    others = read_extra_corpora(data, corpus)
    sizes = [found.ledger.kept, *(len(each.kept) for each in others.values())]
    for name, each in others.items():
        alone: Corpus["datasets.Dataset"] = Corpus(each.read, None, None)  # type: ignore[arg-type]
        beside = inspect(alone, data.more[name], normalization)
        head, *rest = blocks(beside)
        left = ["what stands in validation or test", f"  {each.held_out:,} pairs: left out"]
        more += [[f"── data.more.{name}", *head], *rest, left]
        found.advice.extend(f"{name}: {words}" for words in beside.advice)
    if others:
        more.append(["── together", *told_shares([OWN, *others], sizes, data.mixing, data.weights)])
    return render(found, more)


def _joining(recipe: Recipe, corpus: Corpus["datasets.Dataset"]) -> str:
    kept, _ = filtered(recipe.data, corpus.train)
    return dataset_summary(join_short_pairs(kept, recipe.data), len(kept)) if len(kept) else "nothing is left to join"
