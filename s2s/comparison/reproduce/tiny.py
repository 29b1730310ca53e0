"""A small Transformer on Multi30k, trained by its shipped recipe (Wu et al. 2021)."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.runs import seeds_of, validation_points
from s2s.comparison.spec import Trial
from s2s.errors import UserError
from s2s.files import write_atomically
from s2s.json_files import read_json
from s2s.recipe.reading import shipped
from s2s.recipe.schema import RunSettings
from s2s.run.folder import RECIPE
from s2s.run.inference import evaluate
from s2s.run.tasks import read, task_of
from s2s.run.training import resume, train
from s2s.tasks.base import EvaluationOptions
from s2s.tasks.translation.evaluation import TranslationEvaluation

if TYPE_CHECKING:
    from s2s.recipe.schema import TrainRecipe

_DONE, _DATA = "trained", "data.json"


@dataclass(frozen=True)
class Translated:
    """BLEU of one training."""

    updates: list[int]  # updates before each validation
    bleus: list[float]  # validation BLEU, greedy
    bleu: float  # test BLEU, lower-cased


@dataclass(frozen=True)
class Tiny(Reproduction[Translated]):
    """A full training, resumed where it was interrupted, and its test BLEU."""

    name = "tiny"
    finding = "A Transformer of a few million parameters reaches about 41 BLEU on Multi30k."
    source = (
        "Wu et al. 2021, Transformer-Tiny without images, English to German, test_2016: BLEU 41.02 (not verified: "
        "not found in a check of the publication; tokenized and lower-cased by another scheme than sacreBLEU's)"
    )
    method = (
        "`recipes/multi30k.yaml`: 2.3 million parameters, 4,000 updates of 4,096 tokens with Muon and relative "
        "positions, beam 5; sacreBLEU on test_2016, lower-cased. BLEU of 1,000 sentences is uncertain by about 1.6, "
        "and the two computations of BLEU differ, so the band is ±2. Data are from the hub, or `data.root=DIR`; any "
        "setting of the recipe may be given."
    )
    setting = (
        "with Muon and relative positions (published: Adam, sinusoidal positions), in a band set after a first result"
    )
    bands = (Band(key="bleu", what="BLEU, lower-cased, on test_2016", published="41.02", low=39.0, high=43.0),)
    # one seed takes 3,300 seconds of a core (docs/results/multi30k.json)
    seconds = (9_000, 18_000)

    settings: tuple[str, ...] = ()
    folder: Path = Path("runs/reproduce-tiny")

    def asked(self, settings: Sequence[str], folder: Path) -> "Tiny":
        asked = replace(self, settings=tuple(settings), folder=folder)
        asked.recipe(1, folder)
        return asked

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial("transformer", seed=seed) for seed in seeds]

    def measure(self, trial: Trial) -> Translated:
        """Train or resume the run of a seed, and translate the test set."""
        self._check_data()
        run, console = self.folder / "runs" / f"seed{trial.seed}", Console(file=io.StringIO(), quiet=True)
        if (run / RECIPE).exists() and not (run / _DONE).exists():
            resume(run, console)
        elif not (run / RECIPE).exists():
            train(self.recipe(trial.seed or 0, run), console)
        write_atomically(run / _DONE, "")
        points = list(validation_points(run))
        scores = cast(
            TranslationEvaluation, evaluate(run, keep=False, scoring=EvaluationOptions(lowercase=True))
        ).scores
        return Translated(
            [point.update for point in points], [point.scores["bleu"] for point in points], scores["bleu"].value
        )

    def _check_data(self) -> None:
        """Refuse data that differ from those of an earlier seed, such as in another folder."""
        recipe, file = self.recipe(1, self.folder), self.folder / _DATA
        source = task_of(recipe).source(recipe)
        now = {name: source.digest_of_all(part) for name, part in source.load().splits().items()}
        if not file.exists():
            write_atomically(file, json.dumps(now))
        elif read_json(file, dict[str, str]) != now:
            raise UserError("other seeds were trained on other data", str(file), "give another folder with --out")

    def recipe(self, seed: int, run: Path) -> "TrainRecipe":
        """Return the recipe of one training."""
        recipe = read(shipped()["multi30k"], self.settings)
        return recipe.model_copy(update={"name": run.name, "run": RunSettings(dir=str(run)), "seeds": seeds_of(seed)})

    def numbers(self, measured: Mapping[Trial, Translated]) -> Numbers:
        return {"bleu": by_seed(measured, lambda m: m.bleu, "transformer")}

    def figures(self, measured: Mapping[Trial, Translated]) -> list[Figure]:
        shown = [
            series(f"seed {trial.seed}", trial.model, [float(update) for update in run.updates], run.bleus)
            for trial, run in measured.items()
        ]
        axes = (axis("updates"), axis("validation BLEU, greedy"))
        return [figure("bleu", "Validation BLEU in training", axes, shown)]
