"""Small models trained and asked on seven tasks with exact answers, at several distances."""

from dataclasses import dataclass
from functools import cache

import torch

from s2s.data.agreement import Agreement
from s2s.data.cheating import CHEATS
from s2s.data.exercises import EXERCISES, Examples, Exercise, joined, unseen
from s2s.experiments.contest import (
    Cell,
    Contest,
    Contestant,
    Experiment,
    Measured,
    Scale,
    check_translates,
)
from s2s.experiments.long_range.conclude import NAMES, conclude
from s2s.experiments.long_range.learning import Budget, answers, learn
from s2s.experiments.matching import beside_width, matched, size_of
from s2s.models.contract import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.schema import Section
from s2s.training.devices import seed_for

# Two layers that read, since to look up a key takes one to join it with its value and one to find it. One direction
# only: to a network that also reads from the end, the first symbol is the last one read, and no distance is left.
_OPTIONS = {
    "encoder_layers": 2,
    "decoder_layers": 1,
    "dropout": 0.0,
    "feedforward_ratio": 2,
    "heads": 2,
    "bidirectional": False,
    "reverse_source": False,
    # all symbols are frequent: an LSTM recalls the first one after 450 updates instead of 2,050
    "scale_embeddings": True,
}


@dataclass(frozen=True)
class Distances:
    """At which distances a task is learned and tested."""

    trained: tuple[int, ...]  # learned from, in equal parts; rising
    longer: tuple[int, ...]  # tested only: twice and four times the longest trained one
    seconds: float  # that a measurement takes, about

    @property
    def tested(self) -> tuple[int, ...]:
        """All of them, rising."""
        return self.trained + self.longer


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    distances: dict[str, Distances]  # of each task, by name; tasks that are not here are left out
    parameters: int  # of every model, about
    examples: int  # learned from, at each distance
    held_out: int  # that decide on rate and end of training, at each distance
    tested: int  # that are answered, at each distance and seed
    budget: Budget  # of training
    other_seeds: int | None  # how many of the seeds the tasks but the first have; None: all


def _doubling(first: int, last: int) -> tuple[int, ...]:
    return (first, *(_doubling(2 * first, last) if first < last else ()))


def _up_to(last: int, seconds: float, first: int = 1) -> Distances:
    return Distances(_doubling(first, last), (2 * last, 4 * last), seconds)


def _all_up_to(recall: int, copy: int, others: int, depth: int, seconds: float) -> dict[str, Distances]:
    return {
        "recall": _up_to(recall, seconds),
        "copy": _up_to(copy, seconds),
        "adding": _up_to(others, seconds),
        "associative": _up_to(others, seconds),
        "dyck": _up_to(depth, seconds),
        "listops": _up_to(max(2, depth // 2), seconds),
        "agreement": Distances((0, 4, 8), (16, 32), 1.5 * seconds),
    }


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(
        distances=_all_up_to(recall=32, copy=32, others=16, depth=8, seconds=8),
        parameters=50_000,
        examples=2_000,
        held_out=64,
        tested=100,
        budget=Budget(updates=400, rows=64, batches=4, every=20, trial=120, rates=(0.001, 0.004), warmup=20),
        other_seeds=1,
    ),
    "definitive": Sizes(
        distances=_all_up_to(recall=64, copy=32, others=32, depth=16, seconds=60),
        parameters=60_000,
        examples=4_000,
        held_out=64,
        tested=200,
        budget=Budget(updates=1_000, rows=64, batches=4, every=50, trial=250, rates=(0.001, 0.004), warmup=50),
        other_seeds=1,
    ),
    # where a long sequence costs little more than a short one
    "definitive on a GPU": Sizes(
        distances=_all_up_to(recall=512, copy=256, others=64, depth=32, seconds=60),
        parameters=200_000,
        examples=10_000,
        held_out=64,
        tested=400,
        budget=Budget(updates=3_000, rows=128, batches=2, every=50, trial=600, rates=(0.0005, 0.001, 0.004), warmup=50),
        other_seeds=None,
    ),
}


@cache
def exercise_of(name: str) -> Exercise:
    """The task of that name."""
    # the agreement's pieces are learned when it is made
    return Agreement() if name == Agreement.name else next(each for each in EXERCISES if each.name == name)


def cells(contest: Contest) -> list[Cell]:
    """One for each task of the experiment, seed and model; the models in turn."""
    sizes = contest.sizes(SIZES)
    return [
        Cell(model, name, seed, sizes.distances[name].seconds)
        for name in NAMES
        if name in sizes.distances
        for seed in contest.seeds[: None if name == NAMES[0] else sizes.other_seeds]
        for model in contest.models
    ]


def measure(contest: Contest, cell: Cell) -> Measured:
    """Trains a model on a mixture of distances and asks it at each."""
    sizes, exercise, seed = contest.sizes(SIZES), exercise_of(cell.part), cell.seed or 0
    distances = sizes.distances[cell.part]
    train = joined([exercise.examples(distance, sizes.examples, seed) for distance in distances.trained])
    held_out = joined(
        [unseen(exercise.examples(d, sizes.held_out, seed, "held-out"), train) for d in distances.trained]
    )
    tests = [unseen(exercise.examples(d, sizes.tested, seed, "test"), train) for d in distances.tested]
    settings = small(contest.contestant(cell.model), exercise, sizes.parameters, _longest(tests))

    def _build() -> Seq2Seq:
        torch.manual_seed(seed_for(seed))
        return module_of(cell.model).build(settings, exercise.pieces, exercise.pieces)

    check_translates(_build(), cell.model)
    learned = learn(_build, train, held_out, sizes.budget, seed, contest.computer)
    answered = [answers(learned.model, test, contest.computer) for test in tests]
    cheat = CHEATS.get(cell.part)
    return {
        "distances": list(distances.tested),
        "trained": len(distances.trained),
        "asked": [len(test) for test in tests],
        "right": [int(each.right.sum()) for each in answered],
        "pieces": [each.pieces for each in answered],
        "baseline": [exercise.baseline(distance) for distance in distances.tested],
        "cheat": cheat.how if cheat else None,
        "cheating": [cheat.accuracy(distance) for distance in distances.tested] if cheat else None,
        "title": exercise.title,
        "unit": exercise.unit,
        "settings": settings.model_dump(mode="json"),
        "parameters": size_of(cell.model, settings, exercise.pieces, exercise.pieces),
        "rate": learned.rate,
        "losses": {f"{rate:g}": loss for rate, loss in learned.losses.items()},
        "budget": sizes.budget.updates,
        "updates": learned.updates,
        "solved": learned.solved,
        "loss": learned.loss,
        "seconds": learned.seconds,
        "trial_seconds": learned.trial_seconds,
    }


def small(contestant: Contestant, exercise: Exercise, parameters: int, longest: int) -> Section:
    """The settings of a small model for a task: the contestant's own, with the size and the layers of all.

    Models that learn their positions have them for texts of the `longest` number of pieces.
    """
    options = beside_width(contestant.settings) | _OPTIONS | {"max_positions": longest}
    return matched(contestant.name, exercise.pieces, parameters, options, step=1)


def _longest(tests: list[Examples]) -> int:
    # the end is a piece, too
    return 1 + max(len(row) for test in tests for row in (*test.sources, *test.targets))


EXPERIMENT = Experiment("long-range", "How far back can it reach?", cells, measure, conclude)
