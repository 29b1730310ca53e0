"""Trainings that leave nothing behind: how far does a recipe's model come in so many updates?"""

import functools
import time

from s2s.experiments.contest import check_translates
from s2s.recipe.schema import DataSettings, Recipe, Section, TokenizerSettings
from s2s.run.loading import build_model
from s2s.run.preparing import Prepared, prepare
from s2s.training.devices import Computer
from s2s.training.translation import mean_loss, translation_trainer


def short_training(recipe: Recipe, seed: int, computer: Computer) -> tuple[float, float]:
    """Trains a model as its recipe says, without checkpoints and translations.

    Args:
        recipe: the recipe.
        seed: of initialisation, order and dropout.
        computer: what computes.

    Returns:
        The validation loss afterwards, in nats per target token, and the seconds that the updates took.

    Raises:
        NotForThisModel: the model cannot translate.
        UserError: the training failed.
    """
    data = prepared(recipe)
    seeds = recipe.seeds.model_copy(update={"initialization": seed, "data": seed, "dropout": seed})
    recipe = recipe.model_copy(update={"seeds": seeds})
    model = build_model(recipe, data.source_tokenizer.size, data.target_tokenizer.size).to(computer.device)
    check_translates(model, recipe.name)
    trainer = translation_trainer(model, data.train, recipe.training, recipe.batches, seeds, computer)
    began = time.perf_counter()
    for _ in trainer.updates(recipe.training.updates):
        pass
    seconds = time.perf_counter() - began
    with trainer.optimization.averaged():
        return mean_loss(model, data.validation, recipe.batches, computer), seconds


def prepared(recipe: Recipe) -> Prepared:
    """A recipe's corpus in pieces; made once for all recipes with the same data and tokenizer."""
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
