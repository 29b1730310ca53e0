"""Trainings that leave nothing behind: how far does a recipe's model come in so many updates?"""

import functools
import time
from typing import Any

from s2s.experiments.discipline import Discipline
from s2s.recipe.schema import DataSettings, Recipe, Section, TokenizerSettings
from s2s.run.preparing import Prepared, prepare
from s2s.training.devices import Computer


def short_training(discipline: Discipline, recipe: Any, seed: int, computer: Computer) -> tuple[float, float]:
    """Trains a model as its recipe says, without checkpoints and tests.

    Args:
        discipline: of the recipe's task.
        recipe: the recipe.
        seed: of initialisation, order and dropout.
        computer: what computes.

    Returns:
        The validation loss afterwards, in nats, and the seconds that the updates took.

    Raises:
        NotForThisModel: the model cannot take part.
        UserError: the training failed.
    """
    trainer = discipline.trainer(recipe, seed, computer)
    began = time.perf_counter()
    for _ in trainer.updates(recipe.training.updates):
        pass
    seconds = time.perf_counter() - began
    with trainer.optimization.averaged():
        return discipline.validation_loss(trainer, recipe), seconds


def prepared(recipe: Recipe) -> Prepared:
    """A translation recipe's corpus in pieces; made once for all recipes with the same data and tokenizer."""
    return _prepared(recipe.data.model_dump_json(), recipe.tokenizer.model_dump_json())


@functools.lru_cache(maxsize=4)
def _prepared(data: str, tokenizer: str) -> Prepared:
    recipe = Recipe(
        name="data",
        data=DataSettings.model_validate_json(data),
        tokenizer=TokenizerSettings.model_validate_json(tokenizer),
        model=Section(),
    )
    return prepare(recipe, None, lambda line: None)
