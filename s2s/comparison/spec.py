"""The parts of a comparison: candidates, trials, questions and their analysis."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import TypeAdapter

from s2s.comparison.candidate_names import file_name
from s2s.comparison.plans import TABLES, Profile
from s2s.comparison.results import Claim, Figure, Result, Table, Verdict
from s2s.errors import UserError
from s2s.evaluation.gates import LEARNING
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import Section
from s2s.run.tasks import deserialize_recipe, serialize_recipe
from s2s.tasks.classification.recipe import ClassificationRecipe
from s2s.tasks.translation.recipe import Recipe
from s2s.training.device import PRECISION_NAMES, DeviceContext

if TYPE_CHECKING:
    from s2s.recipe.schema import TrainRecipe

ComparedRecipe = Recipe[Any] | ClassificationRecipe[Any]
"""A recipe of one of the tasks that models are compared on."""

Choice = Literal["", "depth", "rate"]
"""Tuned settings that trials of a question depend on: none, the depth, or depth and learning rate."""
Scale = Literal["quick", "lecture", "definitive", "quick on a GPU", "lecture on a GPU", "definitive on a GPU"]
S = TypeVar("S")
R = TypeVar("R", bound=ComparedRecipe)

M = TypeVar("M")
"""Measurement of a question: a frozen dataclass of JSON values."""

CELLS = "cells"
Measured = dict[str, Any]
"""Measurement as a JSON object, as it is stored."""
MACHINE = "machine"
"""Field of a measurement that is filled with processor and precision when it is loaded."""


class NotForThisModel(UserError):
    """A question does not apply to a kind of model; the model's cell in the table shows the reason."""


class NoSuchSize(UserError):
    """No width gives a model as many parameters as the others."""


@dataclass(frozen=True)
class RateChoice:
    """Learning rate of a candidate, and the rates that were tried at its depth."""

    chosen: float
    tried: tuple[float, ...]
    losses: tuple[float | None, ...] = ()  # validation losses of short trainings at `tried`; None if one failed
    whole: tuple[tuple[float, float | None], ...] = ()  # rates of full trainings with their validation losses
    inside: bool = False  # True if the chosen rate has worse ones on both sides


@dataclass(frozen=True)
class Candidate:
    """A model of a comparison, with its tuned settings.

    Attributes:
        name: Name on the command line: the kind of the model, and its settings if it has any.
        recipe: Full recipe of the task, with the matched width, and the tuned depth and learning rate.
        depths: Numbers of layers to try, the recipe's first; empty if the depth is fixed.
        parameters: Number of parameters before tuning.
        own: Names of settings that tuning must not change.
        rates: Learning rates that were tried at its depth; empty before tuning.
        inside: True if lower and higher rates than the chosen one are worse.
        losses: Validation losses of the short trainings at `rates`; None if a training failed.
        whole: Learning rates of full trainings at its depth, with their validation losses.
        slope: Change of the best trial's loss per doubling of the tokens at its end, in nats; None if unknown.
    """

    name: str
    recipe: ComparedRecipe
    depths: tuple[int, ...] = ()
    parameters: int = 0
    own: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()
    inside: bool = False
    losses: tuple[float | None, ...] = ()
    whole: tuple[tuple[float, float | None], ...] = ()
    slope: float | None = None

    @property
    def translation(self) -> Recipe[Any]:
        """The recipe of a comparison on translation.

        Raises:
            TypeError: The task is not translation.
        """
        if not isinstance(self.recipe, Recipe):
            raise TypeError(f"{self.name} does not translate: its task is {self.recipe.task}")
        return self.recipe

    @property
    def kind(self) -> str:
        """Kind of the model."""
        return self.recipe.model.kind

    @property
    def still_learns(self) -> bool:
        """True if the loss still falls at the end of a full training."""
        return self.slope is not None and -self.slope >= LEARNING

    @property
    def settings(self) -> Section:
        """The model's section of the recipe."""
        return self.recipe.model

    @property
    def learning_rate(self) -> float:
        """Learning rate, chosen by validation loss."""
        return self.recipe.training.learning_rate

    def choice(self) -> "RateChoice":
        """Return the choice of the learning rate, as measurements store it."""
        return RateChoice(self.learning_rate, self.rates, self.losses, self.whole, self.inside)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (
            self.name,
            serialize_recipe(self.recipe),
            (
                *(self.depths, self.parameters, self.own, self.rates, self.inside),
                *(self.losses, self.whole, self.slope),
            ),
        )


def _restored(name: str, recipe: tuple[str, str, str], chosen: tuple[Any, ...]) -> Candidate:
    return Candidate(name, comparable(deserialize_recipe(recipe)), *chosen)


def comparable(recipe: "TrainRecipe") -> ComparedRecipe:
    """Return the recipe if models are compared on its task.

    Raises:
        UserError: Models are not compared on its task.
    """
    if isinstance(recipe, Recipe | ClassificationRecipe):
        return recipe
    raise UserError(f"models are not compared on task {recipe.task}", remedy=f"use {' or '.join(TABLES)}")


@dataclass(frozen=True)
class Comparison:
    """Shared context of all questions of a comparison.

    Attributes:
        folder: Folder of all files.
        profile: Name of the sizes; each question has a table of its sizes.
        candidates: Candidates in the order of the command.
        seeds: Seeds of the repetitions, from 1.
        device_context: Device and precision.
        sized_for: Kind of the device that the comparison started on, which selects the sizes; empty: this device.
        paces: Ratio of measured to expected seconds of the trials that are stored at the start, by question.
    """

    folder: Path
    profile: Profile
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    device_context: DeviceContext
    sized_for: str = ""
    paces: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)

    @property
    def models(self) -> list[str]:
        """Names of the candidates."""
        return [candidate.name for candidate in self.candidates]

    def results_folder(self, experiment: str) -> Path:
        """Folder of a question's trials."""
        return self.folder / CELLS / experiment

    def sizes(self, table: Mapping[Scale, S]) -> S:
        """Return a question's sizes for this profile and device.

        The entry for GPUs is optional. Without an entry for the profile, the sizes of `definitive` are used.
        """
        by_name: dict[str, S] = {**table}
        on_gpu = (self.sized_for or self.device_context.device.type) == "cuda"
        there = f"{self.profile} on a GPU" if on_gpu else self.profile
        return next(by_name[name] for name in (there, self.profile, "definitive") if name in by_name)

    def candidate(self, name: str) -> Candidate:
        """Return the candidate of this name."""
        return next(candidate for candidate in self.candidates if candidate.name == name)


@dataclass(frozen=True)
class Trial:
    """One measurement of a question, cached in a file.

    Attributes:
        model: Name of the candidate.
        part: Part of the question, in lower-case letters, digits and single hyphens; may be empty.
        seed: Seed of the repetition; None for a search, which has a separate seed, and if nothing is random.
        in_round: True for a timing that is comparable only with those of the same part and session.
        search: Search for the learning rate of this training. The trial starts when the search has ended.
    """

    model: str
    part: str = ""
    seed: int | None = None
    in_round: bool = field(default=False, compare=False)
    search: "Trial | None" = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """Name of the file, without the ending."""
        parts = [file_name(self.model), self.part, "" if self.seed is None else f"seed{self.seed}"]
        return "--".join(part for part in parts if part)


# Measurements of a question's successful trials.
Trials = Mapping[Trial, Measured]
BySeed = dict[int, Measured]


@dataclass(frozen=True)
class Analysis:
    """Verdicts, figures and tables of a question.

    Attributes:
        findings: Verdicts; None where there is no estimate.
        figures: Figures; empty ones are left out of the result.
        tables: Further numbers.
        seeds: Seeds of the repetitions; None: all of the comparison's.
        claims: Claims that the question decides; None where a claim is not about these candidates.
    """

    findings: Sequence[Verdict | None] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    seeds: Sequence[int] | None = None
    claims: Sequence[Claim | None] = ()


@dataclass(frozen=True)
class Experiment(Generic[M]):
    """A question of a comparison: its trials, how each is measured, and how the measurements are analysed.

    The package of the question, named after it, has two texts for the report: `METHOD.md` describes the measurement,
    `LIMITS.md` lists its limitations. `TABLES` of `s2s.comparison.plans` has the rows of the table that a question
    fills.

    Attributes:
        name: Name after `--experiment`.
        question: The question, one sentence.
        trials: Returns all trials, in the order of execution.
        measure: Runs one trial. Raises `NotForThisModel` if the model cannot be measured, and `UserError` if a training
            failed.
        analyse: Turns the measurements of successful trials into verdicts, figures and tables. It reads only the
            measurements and the comparison, so that it can be repeated without measuring.
        measurement: Reads a stored measurement: a dataclass, or a union of those of several kinds of trials.
        exclusive: True if trials measure time or memory, and must run alone.
        tuning_level: Tuned settings that the trials depend on.
        depends_on: Name of the question whose trained models this one uses; it runs before.
        depends_on_part: Part of the trials that use them; empty: all.
        numbers: Returns the values of the placeholders in `METHOD.md`.
        precision: Precision of the trials; empty: that of the comparison.
    """

    name: str
    question: str
    trials: Callable[[Comparison], list[Trial]]
    measure: Callable[[Comparison, Trial], M]
    analyse: Callable[[Comparison, Mapping[Trial, M]], Analysis]
    measurement: TypeAdapter[M]
    exclusive: bool = False
    tuning_level: Choice = "rate"
    depends_on: str = ""
    depends_on_part: str = ""
    numbers: Callable[[Comparison], Mapping[str, object]] = lambda comparison: {}
    precision: str = ""

    def precision_in(self, comparison: Comparison) -> str:
        """Return the precision in which a comparison's models are measured."""
        return self.precision or PRECISION_NAMES[comparison.device_context.precision]

    @property
    def rows(self) -> list[str]:
        """Rows of the table that the question fills."""
        return [name for table in TABLES.values() for name, row in table.items() if row.experiment == self.name]

    def result(self, comparison: Comparison, stored: Mapping[Trial, Mapping[str, object]]) -> Result:
        """Analyse the stored measurements of the question, as JSON objects."""
        said = self.analyse(comparison, {trial: self.measurement.validate_python(m) for trial, m in stored.items()})
        return Result(
            experiment=self.name,
            question=self.question,
            method=self.text("METHOD").format(**self.numbers(comparison)),
            limits=self.text("LIMITS"),
            models=comparison.models,
            seeds=list(comparison.seeds if said.seeds is None else said.seeds),
            findings=[finding for finding in said.findings if finding is not None],
            claims=[claim for claim in said.claims if claim is not None],
            figures=[figure for figure in said.figures if figure.series or figure.heatmaps],
            tables=list(said.tables),
        )

    def text(self, kind: str) -> str:
        """Return the text of `METHOD.md` or `LIMITS.md`."""
        folder = resources.files(f"s2s.comparison.questions.{self.name.replace('-', '_')}")
        return (folder / f"{kind}.md").read_text(encoding="utf-8").removesuffix("\n")


def each_run(comparison: Comparison, part: str = "") -> list[Trial]:
    """Return a trial for each seed and model; for each seed, the models in turn."""
    return [Trial(model, part, seed) for seed in comparison.seeds for model in comparison.models]


def by_model(comparison: Comparison, measured: Mapping[Trial, M], part: str = "") -> dict[str, dict[int, M]]:
    """Group the measurements of a part by model, in the order of the command, and by ascending seed."""
    runs: dict[str, dict[int, M]] = {}
    for model in comparison.models:
        own = {trial.seed or 0: m for trial, m in measured.items() if (trial.model, trial.part) == (model, part)}
        if own:
            runs[model] = dict(sorted(own.items()))
    return runs


def check_translates(model: Seq2Seq, name: str) -> None:
    """Check that a model's decoder is not one-to-one, with targets as long as their sources.

    Raises:
        NotForThisModel: The decoder is one-to-one.
    """
    if model.decoder.is_one_to_one:
        raise one_to_one_error(name)


def one_to_one_error(name: str) -> NotForThisModel:
    """Return the error for a model that cannot translate because its decoder is one-to-one."""
    what = f"{name} generates one token for each source token, so it cannot translate"
    return NotForThisModel(what, where=f"command line: {name}", remedy="leave it out")
