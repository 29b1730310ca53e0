"""What every experiment is made of: contenders under equal budgets, and measurements that are kept one by one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from s2s.errors import UserError
from s2s.models.contract import Seq2Seq
from s2s.recipe.schema import Section
from s2s.recipe.tasks import TASK, TASKS
from s2s.results import Result
from s2s.training.devices import Computer

Profile = Literal["quick", "standard"]
# what an experiment's sizes are given for; without sizes of its own, a GPU has those of the profile
Scale = Literal["quick", "standard", "standard on a GPU"]
S = TypeVar("S")

# what a measurement leaves behind: anything that JSON can say
Measured = dict[str, Any]


class NotForThisModel(UserError):
    """A model cannot take part in an experiment by what it is; its cell says so."""


@dataclass(frozen=True)
class Contestant:
    """One model with everything that was chosen for it.

    Attributes:
        name: as typed in the command; the model's kind.
        recipe: its recipe in full, of the comparison's task, with settings of the matched size and the chosen learning
            rate.
    """

    name: str
    recipe: Any

    @property
    def settings(self) -> Section:
        """The model's section of the recipe."""
        return self.recipe.model

    @property
    def learning_rate(self) -> float:
        """The rate chosen for it on the task's validation set."""
        return self.recipe.training.learning_rate

    def __reduce__(self) -> tuple[Any, ...]:
        # a recipe's class is made for its model, so pickle would not find it by name
        task = getattr(self.recipe, TASK)
        return _restored, (self.name, task, self.recipe.model.kind, self.recipe.model_dump_json())


def _restored(name: str, task: str, kind: str, recipe: str) -> Contestant:
    schema = TASKS[task]
    return Contestant(name, schema.whole(schema.settings(kind)).model_validate_json(recipe))


@dataclass(frozen=True)
class Contest:
    """What all experiments of a comparison share.

    Attributes:
        folder: where everything is kept.
        profile: which sizes the experiments take; each has its own table of them.
        contestants: in the order of the command.
        seeds: of the repetitions, from 1 on.
        computer: device and precision.
        absent: models of the command that cannot take part at all, and why.
    """

    folder: Path
    profile: Profile
    contestants: tuple[Contestant, ...]
    seeds: tuple[int, ...]
    computer: Computer
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """The contestants' names."""
        return [contestant.name for contestant in self.contestants]

    def sizes(self, table: Mapping[Scale, S]) -> S:
        """An experiment's sizes for this profile on this device.

        Args:
            table: an experiment's sizes.
        """
        on_a_gpu = self.profile == "standard" and self.computer.device.type == "cuda"
        return table["standard on a GPU"] if on_a_gpu and "standard on a GPU" in table else table[self.profile]

    def contestant(self, name: str) -> Contestant:
        """The contestant of that name."""
        return next(contestant for contestant in self.contestants if contestant.name == name)


@dataclass(frozen=True)
class Task:
    """One measurement: done in one go, kept in one file, and not done again when a comparison is resumed.

    Attributes:
        model: whose it is.
        part: which of the experiment's measurements, in lower-case letters, digits and single hyphens; may be empty.
        seed: of the repetition; None where chance plays no part.
        seconds: about how long it takes, for the progress bar.
    """

    model: str
    part: str = ""
    seed: int | None = None
    seconds: float = 1.0

    @property
    def key(self) -> str:
        """Name of its file, without the ending."""
        parts = [self.model, self.part, "" if self.seed is None else f"seed{self.seed}"]
        return "--".join(part for part in parts if part)


class Experiment(ABC):
    """A question, how it is measured, and what the measurements say.

    Attributes:
        name: as typed after `--experiment`.
        question: what it asks, in one sentence.
        rows: the rows of its task's table that it fills, see `s2s.results.TABLES`.
        translates: whether it needs models that translate; one that writes a piece for each it reads cannot.
        alone: whether nothing else may be measured meanwhile, because it looks at the clock or at the machine's memory.
    """

    name: str
    question: str
    rows: tuple[str, ...]
    translates: bool = False
    alone: bool = False

    @abstractmethod
    def tasks(self, contest: Contest) -> list[Task]:
        """All measurements, in the order in which they are made."""

    @abstractmethod
    def measure(self, contest: Contest, task: Task) -> Measured:
        """Makes one measurement.

        Raises:
            NotForThisModel: the model cannot be measured so.
        """

    @abstractmethod
    def conclude(self, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
        """What the measurements say; those that failed are missing, and their models' cells are filled by the caller.

        The answer depends on `measured` and the contest's names alone, so it can be drawn anew.
        """


def check_translates(model: Seq2Seq, name: str) -> None:
    """Refuses a model whose target must be as long as its source.

    Raises:
        NotForThisModel: it is such a model.
    """
    if model.decoder.one_to_one:
        raise NotForThisModel(f"{name} writes one piece for each that it reads, so it cannot translate")
