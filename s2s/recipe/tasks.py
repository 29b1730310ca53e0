"""The tasks that a recipe may name: each has a schema of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from s2s.recipe.classification import ClassificationRecipe
from s2s.recipe.images import ImageRecipe
from s2s.recipe.installed import encoder_settings, translator_settings
from s2s.recipe.masked_lm import MaskedRecipe
from s2s.recipe.schema import AnyRecipe, Recipe, Section

TASK = "task"
DEFAULT = "translation"


@dataclass(frozen=True)
class Schema:
    """What recipes of a task are held against.

    Attributes:
        recipe: the recipe's class, for a model's section of any kind.
        settings: the section of a kind of model.
    """

    recipe: type[AnyRecipe]
    settings: Callable[[str], type[Section]]

    def whole(self, model: type[Section]) -> type[AnyRecipe]:
        """The recipe's class with a model's section in it."""
        generic: Any = self.recipe
        return generic[model]


TASKS: dict[str, Schema] = {
    "translation": Schema(Recipe, translator_settings),
    "classification": Schema(ClassificationRecipe, encoder_settings),
    "masked-lm": Schema(MaskedRecipe, encoder_settings),
    "images": Schema(ImageRecipe, encoder_settings),
}
"""By the word that `task` holds."""
