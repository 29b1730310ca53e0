"""What commonly spoils texts to learn from, found before training."""

from s2s.tasks.data_check import inspect_texts
from s2s.tasks.masked_lm.recipe import MaskedRecipe
from s2s.tasks.texts import TextSource


def inspected(recipe: MaskedRecipe) -> str:
    """What a recipe's texts hold, and what is suspicious, as text."""
    return str(inspect_texts(TextSource(recipe.data).load(), recipe.data.seed, recipe.tokenizer, "texts"))
