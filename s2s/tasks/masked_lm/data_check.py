"""Data check of texts for masked language models: problems found before training."""

from s2s.tasks.data_check import inspect_texts
from s2s.tasks.masked_lm.recipe import MaskedRecipe
from s2s.tasks.texts import TextSource


def inspected(recipe: MaskedRecipe) -> str:
    """Return a report on a recipe's texts: statistics and suspicious examples.

    Returns:
        The report as text.
    """
    return str(inspect_texts(TextSource(recipe.data).load(), recipe.data.seed, recipe.tokenizer, "texts"))
