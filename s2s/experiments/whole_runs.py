"""Whole runs of a comparison, whatever their task: trained once, continued where they stopped, and what they left."""

import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
from rich.console import Console

from s2s.experiments.contest import Contest
from s2s.files import write_atomically
from s2s.recipe.schema import RunSettings, SeedSettings
from s2s.run.folder import RECIPE
from s2s.training.logger import METRICS

RUNS = "runs"
COST = "cost.json"
_SECONDS_PER_TOKEN = 7e-5


@dataclass(frozen=True)
class Cost:
    """What a whole run took: training, validations and the test.

    Attributes:
        seconds: by the clock; None where the run was interrupted, and what was done before is not known.
        cpu_seconds: of all processor threads together; None likewise.
    """

    seconds: float | None
    cpu_seconds: float | None


@dataclass(frozen=True)
class Pause:
    """A validation of a run, and what was learned from before it.

    Attributes:
        update: after which update.
        count: items that the loss of the updates before it is the mean of: target tokens, or examples.
        tokens: real tokens learned from before it.
        seconds: that the updates before it took; validations are not counted.
        scores: what was measured, by name.
    """

    update: int
    count: int
    tokens: int
    seconds: float
    scores: dict[str, float]


def whole_run(
    contest: Contest,
    model: str,
    seed: int,
    prepare: Callable[[Any], object],
    begin: Callable[[Any, Console], object],
    go_on: Callable[[Path, Console], object],
) -> Path:
    """The folder of a contestant's finished run; trained only where it is not finished yet.

    Args:
        contest: gives the recipe and the folder.
        model: whose.
        seed: of initialisation, order and dropout.
        prepare: makes what all contestants learn from, once in a process: none of them pays for it.
        begin: trains by a recipe.
        go_on: continues in a run's folder.
    """
    folder = folder_of(contest, model, seed)
    if (folder / COST).exists():
        return folder
    changes = {"name": folder.name, "run": RunSettings(dir=str(folder)), "seeds": seeds_of(seed)}
    recipe = contest.contestant(model).recipe.model_copy(update=changes)
    # a comparison shows its own progress, and the run writes down everything
    console = Console(file=io.StringIO(), quiet=True, force_terminal=False)
    datasets.disable_progress_bars()
    began = (folder / RECIPE).exists()
    if not began:
        prepare(recipe)
    wall, processor = time.perf_counter(), time.process_time()
    if began:
        go_on(folder, console)
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
        begin(recipe, console)
    cost = Cost(time.perf_counter() - wall, time.process_time() - processor)
    write_atomically(folder / COST, json.dumps(asdict(Cost(None, None) if began else cost)))
    return folder


def folder_of(contest: Contest, model: str, seed: int) -> Path:
    """Where a contestant's run of a seed is kept."""
    return contest.folder / RUNS / f"{model}-seed{seed}"


def cost_of(folder: Path) -> Cost:
    """What a finished run took."""
    return Cost(**json.loads((folder / COST).read_text(encoding="utf-8")))


def tested(folder: Path, validate: Callable[[], str]) -> dict[str, Any]:
    """What a finished run scored on its test set; on the validation set where it has no test set.

    Args:
        folder: of the run.
        validate: scores the validation set and keeps the result, which it gives as JSON.
    """
    for split in ("test", "validation"):
        path = folder / f"evaluation-{split}.json"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
    return json.loads(validate())


def pauses(folder: Path) -> Iterator[Pause]:
    """All validations of a run, in the order of time."""
    count, tokens, seconds = 0, 0, 0.0
    for line in (folder / METRICS).read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "validation" in entry:
            yield Pause(entry["update"], count, tokens, seconds, entry["validation"])
        else:
            count, tokens = count + entry["count"], tokens + entry["tokens"]
            seconds += entry["seconds"]


def seeds_of(seed: int) -> SeedSettings:
    """One seed for everything that chance decides."""
    return SeedSettings(initialization=seed, data=seed, dropout=seed)


def shortened(recipe: Any, share: float) -> Any:
    """The recipe of a training with a share of the updates; its schedule ends when it does."""
    training = recipe.training
    updates = max(2, round(share * training.updates))
    changes = {"updates": updates, "average_last": None, "warmup": min(training.warmup, updates // 5)}
    return recipe.model_copy(update={"training": training.model_copy(update=changes)})


def seconds_for(recipe: Any, share: float = 1.0) -> float:
    """About how long one processor thread learns by a recipe.

    Args:
        recipe: its updates and tokens count, not its model.
        share: of the updates.
    """
    return _SECONDS_PER_TOKEN * share * recipe.training.updates * recipe.batches.tokens
