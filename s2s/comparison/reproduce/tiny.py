"""A small Transformer on Multi30k (Wu et al. 2021): the ladder's top rung, by its recipe."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.runs import seeds_of, validation_points
from s2s.comparison.spec import Measured, Trial, Trials
from s2s.files import write_atomically
from s2s.recipe.reading import shipped
from s2s.recipe.schema import RunSettings
from s2s.run.folder import RECIPE
from s2s.run.inference import evaluate
from s2s.run.tasks import read
from s2s.run.training import resume, train
from s2s.tasks.base import EvaluationOptions
from s2s.tasks.translation.evaluation import TranslationEvaluation

if TYPE_CHECKING:
    from s2s.recipe.schema import TrainRecipe

_DONE = "trained"


@dataclass(frozen=True)
class Tiny(Reproduction):
    """A whole training, resumed where it was interrupted, and the test set."""

    name = "tiny"
    finding = "A Transformer of a few million weights translates Multi30k's captions as well as multimodal systems."
    source = (
        "Wu et al. 2021, Transformer-Tiny without images, English to German, test_2016: BLEU 41.02 (not verified; "
        "tokenised and lower-cased by another scheme than sacreBLEU's)"
    )
    method = (
        "`recipes/multi30k.yaml`: 2.3 million weights, 8,000 updates of 4,096 tokens, beam 5; sacreBLEU on test_2016, "
        "lower-cased. 1,000 sentences leave BLEU about 1.6 uncertain either way, and the two ways of counting differ, "
        "so what is within 2 counts. Data are from the hub, or `data.root=DIR`; any setting of the recipe may be given."
    )
    bands = (Band(key="bleu", what="BLEU, lower-cased, on test_2016", published="41.02", low=39.0, high=43.0),)
    # on two threads 43.7 minutes (docs/results/multi30k.json); fewer than twice that on one
    seconds = (3_000, 6_000)
    usual_seeds = 1

    settings: tuple[str, ...] = ()
    folder: Path = Path("runs/reproduce-tiny")

    def asked(self, settings: Sequence[str], folder: Path) -> "Tiny":
        """With other settings of its recipe, such as where the data are; a wrong one is told at once."""
        asked = replace(self, settings=tuple(settings), folder=folder)
        asked.recipe(1, folder)
        return asked

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """A training for each seed."""
        return [Trial("transformer", seed=seed) for seed in seeds]

    def measure(self, trial: Trial) -> Measured:
        """Trains, or goes on with it, and translates the test set."""
        run, console = self.folder / "runs" / f"seed{trial.seed}", Console(file=io.StringIO(), quiet=True)
        if (run / RECIPE).exists() and not (run / _DONE).exists():
            resume(run, console)
        elif not (run / RECIPE).exists():
            train(self.recipe(trial.seed or 0, run), console)
        write_atomically(run / _DONE, "")
        looks = list(validation_points(run))
        scores = cast(
            TranslationEvaluation, evaluate(run, keep=False, scoring=EvaluationOptions(lowercase=True))
        ).scores
        return {
            "updates": [look.update for look in looks],
            "bleus": [look.scores["bleu"] for look in looks],
            "bleu": scores["bleu"].value,
        }

    def recipe(self, seed: int, run: Path) -> "TrainRecipe":
        """The recipe of one training."""
        recipe = read(shipped()["multi30k"], self.settings)
        return recipe.model_copy(update={"name": run.name, "run": RunSettings(dir=str(run)), "seeds": seeds_of(seed)})

    def numbers(self, measured: Trials) -> Numbers:
        """The scores."""
        return {"bleu": by_seed(measured, "bleu", "transformer")}

    def figures(self, measured: Trials) -> list[Figure]:
        """Greedy BLEU while learning."""
        shown = [
            series(f"seed {trial.seed}", trial.model, run["updates"], run["bleus"]) for trial, run in measured.items()
        ]
        axes = (axis("updates"), axis("validation BLEU, greedy"))
        return [figure("bleu", "Learning to translate captions", axes, shown)]
