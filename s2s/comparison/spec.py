"""The parts of a comparison: candidates, trials, questions and their analysis."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import TypeAdapter

from s2s.comparison.candidate_names import file_name
from s2s.comparison.plans import TABLES, Profile
from s2s.comparison.results import Figure, Result, Table, Verdict
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

# what an experiment's sizes are given for; without sizes of its own, a lecture has those of `definitive`, and a GPU
# those of the profile
# nothing, a model's depth, or its depth and its rate
Choice = Literal["", "depth", "rate"]
Scale = Literal["quick", "lecture", "definitive", "quick on a GPU", "lecture on a GPU", "definitive on a GPU"]
S = TypeVar("S")
R = TypeVar("R", bound=ComparedRecipe)

M = TypeVar("M")
"""Measurement of a question: a frozen dataclass of JSON values."""

CELLS = "cells"
# the measurement of a question that has no dataclass for it yet
Measured = dict[str, Any]
MACHINE = "machine"
"""A measurement with a field of this name is loaded with the processor that made it, and the precision."""


class NotForThisModel(UserError):
    """A model cannot take part in an experiment by what it is; its cell says so."""


class NoSuchSize(UserError):
    """No width gives a model the number of parameters that all are to have."""


@dataclass(frozen=True)
class RateChoice:
    """Learning rate of a candidate, and the rates that were tried at its depth."""

    chosen: float
    tried: tuple[float, ...]
    losses: tuple[float | None, ...] = ()  # validation losses of short trainings at `tried`; None where one failed
    whole: tuple[tuple[float, float | None], ...] = ()  # rates of full trainings with their validation losses
    inside: bool = False  # True if the chosen rate has worse ones on both sides


@dataclass(frozen=True)
class Candidate:
    """One model with everything that was chosen for it."""

    name: str  # as typed in the command: the model's kind, and settings of its own where it has some
    # its recipe in full, of the comparison's task, with settings of the matched size, and the depth and rate chosen
    recipe: ComparedRecipe
    # numbers of layers to choose from, the first being its recipe's at first; none where there is no choice
    depths: tuple[int, ...] = ()
    # of its model, as it came
    parameters: int = 0
    # names of settings that trials must not choose
    own: tuple[str, ...] = ()
    # the rates tried at its depth, and whether the one chosen has worse ones on both sides; nothing before they are
    rates: tuple[float, ...] = ()
    inside: bool = False
    # validation losses of the short trainings at these rates; None where one failed
    losses: tuple[float | None, ...] = ()
    # rates that were trained in full at its depth, with their losses likewise
    whole: tuple[tuple[float, float | None], ...] = ()
    # nats that a doubling of the tokens changed its best trial's loss by at its end; None where it is not known
    slope: float | None = None

    @property
    def translation(self) -> Recipe[Any]:
        """Its recipe, where translation is what models are compared on.

        Raises:
            TypeError: it is not.
        """
        if not isinstance(self.recipe, Recipe):
            raise TypeError(f"{self.name} does not translate: its task is {self.recipe.task}")
        return self.recipe

    @property
    def kind(self) -> str:
        """The kind of its model."""
        return self.recipe.model.kind

    @property
    def still_learns(self) -> bool:
        """True if even all pairs and updates of the task are too few for it to converge."""
        return self.slope is not None and -self.slope >= LEARNING

    @property
    def settings(self) -> Section:
        """The model's section of the recipe."""
        return self.recipe.model

    @property
    def learning_rate(self) -> float:
        """The rate chosen for it on the task's validation set."""
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
    """The recipe, when it is of a task that models are compared on.

    Raises:
        UserError: it is of another.
    """
    if isinstance(recipe, Recipe | ClassificationRecipe):
        return recipe
    raise UserError(f"models are not compared on task {recipe.task}", remedy=f"those of {' and '.join(TABLES)} are")


@dataclass(frozen=True)
class Comparison:
    """Shared context of all questions of a comparison."""

    folder: Path  # where everything is kept
    profile: Profile  # which sizes the experiments take; each has its own table of them
    candidates: tuple[Candidate, ...]  # in the order of the command
    seeds: tuple[int, ...]  # of the repetitions, from 1 on
    device_context: DeviceContext  # device and precision
    # the kind of device that its sizes are for: of the one that it began on; empty: of the computer's
    sized_for: str = ""

    @property
    def models(self) -> list[str]:
        """The candidates' names."""
        return [candidate.name for candidate in self.candidates]

    def results_folder(self, experiment: str) -> Path:
        """Folder of a question's trials."""
        return self.folder / CELLS / experiment

    def sizes(self, table: Mapping[Scale, S]) -> S:
        """An experiment's sizes for this profile, on the device that the comparison began on."""
        by_name: dict[str, S] = {**table}
        on_gpu = (self.sized_for or self.device_context.device.type) == "cuda"
        there = f"{self.profile} on a GPU" if on_gpu else self.profile
        return next(by_name[name] for name in (there, self.profile, "definitive") if name in by_name)

    def candidate(self, name: str) -> Candidate:
        """The candidate of that name."""
        return next(candidate for candidate in self.candidates if candidate.name == name)


@dataclass(frozen=True)
class Trial:
    """One measurement: done in one go, kept in one file, and not done again when a comparison is resumed."""

    model: str  # whose it is
    # which of the experiment's measurements, in lower-case letters, digits and single hyphens; may be empty
    part: str = ""
    seed: int | None = None  # of the repetition; None where chance plays no part
    # whether it is of use only beside those of its part that were measured in the same session: a round of times
    in_round: bool = field(default=False, compare=False)

    @property
    def key(self) -> str:
        """Name of its file, without the ending."""
        parts = [file_name(self.model), self.part, "" if self.seed is None else f"seed{self.seed}"]
        return "--".join(part for part in parts if part)


# an experiment's measurements, as far as they succeeded
Trials = Mapping[Trial, Measured]
BySeed = dict[int, Measured]


@dataclass(frozen=True)
class Analysis:
    """Verdicts, figures and tables of a question."""

    findings: Sequence[Verdict | None] = ()  # cells of the table; None is what could not be said
    figures: Sequence[Figure] = ()  # pictures; those that show nothing are left out
    tables: Sequence[Table] = ()  # numbers beside them
    seeds: Sequence[int] | None = None  # of the repetitions; None: all of the comparison's


@dataclass(frozen=True)
class Experiment(Generic[M]):
    """A question, how it is measured, and what the measurements say.

    Beside the module that measures lie `METHOD.md`, how it is measured, and `LIMITS.md`, what the numbers do not say.
    `TABLES` of `s2s.comparison.plans` says which row of the table it fills.
    """

    name: str  # as typed after `--experiment`
    question: str  # what it asks, in one sentence
    trials: Callable[[Comparison], list[Trial]]  # all measurements, in the order in which they are made
    # makes one measurement; raises `NotForThisModel` where the model cannot be measured so, `UserError` where a
    # training failed
    measure: Callable[[Comparison, Trial], M]
    # what the measurements say; those that failed are missing, and the caller fills their models' cells. It depends on
    # the measurements and the comparison's names and sizes alone, so it can be drawn anew
    analyse: Callable[[Comparison, Mapping[Trial, M]], Analysis]
    # reads the stored JSON of a measurement: its dataclass, or a union of those of several kinds of trials
    measurement: TypeAdapter[M] = field(default_factory=lambda: TypeAdapter(Measured))  # type: ignore[assignment]
    # whether nothing else may be measured meanwhile, because it looks at the clock or at the machine's memory
    exclusive: bool = False
    tuning_level: Choice = "rate"  # what its measurements depend on of that which trials choose
    depends_on: str = ""  # the experiment whose trained models it looks at, which is made before it
    depends_on_part: str = ""  # the part of its cells that do; empty: all of them
    numbers: Callable[[Comparison], Mapping[str, object]] = (
        lambda comparison: {}
    )  # what the method's text names in braces
    precision: str = ""  # in which it measures; the comparison's where it is empty

    def precision_in(self, comparison: Comparison) -> str:
        """In which precision a comparison's models are measured: what its measurements are labelled with."""
        return self.precision or PRECISION_NAMES[comparison.device_context.precision]

    @property
    def rows(self) -> list[str]:
        """The rows of its task's table that it fills."""
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
            figures=[figure for figure in said.figures if figure.series or figure.heatmaps],
            tables=list(said.tables),
        )

    def text(self, kind: str) -> str:
        """`METHOD` or `LIMITS`, of the file beside the module that measures."""
        folder = resources.files(self.measure.__module__.rpartition(".")[0])
        return (folder / f"{kind}.md").read_text(encoding="utf-8").removesuffix("\n")


def each_run(comparison: Comparison, part: str = "") -> list[Trial]:
    """A cell for each model and seed; the models in turn."""
    return [Trial(model, part, seed) for seed in comparison.seeds for model in comparison.models]


def by_model(comparison: Comparison, measured: Mapping[Trial, M], part: str = "") -> dict[str, dict[int, M]]:
    """Return the measurements of a part by candidate, in the order of the command, and by seed, ascending."""
    runs: dict[str, dict[int, M]] = {}
    for model in comparison.models:
        own = {trial.seed or 0: m for trial, m in measured.items() if (trial.model, trial.part) == (model, part)}
        if own:
            runs[model] = dict(sorted(own.items()))
    return runs


def check_translates(model: Seq2Seq, name: str) -> None:
    """Refuses a model whose target must be as long as its source.

    Raises:
        NotForThisModel: it is such a model.
    """
    if model.decoder.is_one_to_one:
        raise NotForThisModel(
            f"{name} writes one piece for each that it reads, so it cannot translate",
            where=f"command line: {name}",
            remedy="leave it out",
        )
