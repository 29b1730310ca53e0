"""Small models trained on four tasks with exact answers, whole and as an encoder under a linear head.

Each task is asked at several distances, trained ones and longer ones; beside them, how many bits a memory holds.
"""

from dataclasses import asdict, dataclass, replace
from functools import cache, partial

import torch

from s2s.comparison.executor import run_cached
from s2s.comparison.matching import match_translator, non_width_settings
from s2s.comparison.paired_tests import listed
from s2s.comparison.questions.long_range import capacity
from s2s.comparison.questions.long_range.analyse import DECIDES, NAMES, analyse
from s2s.comparison.questions.long_range.head import headed
from s2s.comparison.questions.long_range.learning import Budget, Run, TrainingTask, answers, search
from s2s.comparison.questions.long_range.reach import MARGIN, Part
from s2s.comparison.spec import Candidate, Comparison, Experiment, Measured, Scale, Trial, check_translates
from s2s.comparison.tuning import TRIAL_SEED
from s2s.data.exercises import CHEATS, EXERCISES, Agreement, Examples, Exercise, concatenate, unseen
from s2s.errors import UserError
from s2s.models.base import Seq2Seq, count_parameters
from s2s.recipe.installed import module_of
from s2s.recipe.schema import Section
from s2s.training.device import PRECISION_NAMES as PRECISIONS
from s2s.training.device import DeviceContext, derive_seed

# Two layers that read, since to look up a key takes one to join it with its value and one to find it. One direction
# only: to a network that also reads from the end, the first symbol is the last one read, and no distance is left.
OPTIONS = {
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
_BUDGET = Budget(updates=0, rows=64, batches=2, every=50, trial=500, warmup=20, settle=500)


@dataclass(frozen=True)
class Distances:
    """At which distances a task is learned and tested."""

    trained: tuple[int, ...]  # learned from, in equal parts; rising
    longer: tuple[int, ...]  # tested only
    updates: int  # of a training, at most
    forms: tuple[str, ...] = ("head", "full")  # of those that the task can be learned in

    @property
    def tested(self) -> tuple[int, ...]:
        """All distances, rising."""
        return self.trained + self.longer


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    distances: dict[str, Distances]  # of each task, by name; tasks that are not here are left out
    capacity: capacity.Sizes | None  # of the measurements in bits; None: none
    parameters: int = 60_000  # of every whole model, about
    examples: int = 3_000  # learned from, at each distance
    held_out: int = 64  # that decide on rate and end of training, at each distance
    tested: int = 200  # that are answered, at each distance and seed
    budget: Budget = _BUDGET  # of training; the tasks say how many updates
    further: int = 0  # repetitions beyond the comparison's: these trainings are short, and their pairs many

    def seeds(self, comparison: Comparison, part: Part = DECIDES) -> tuple[int, ...]:
        """Seeds of a part; extra seeds only where a verdict is based on them."""
        last, further = comparison.seeds[-1], 0 if part.of == "other" else self.further
        return (*comparison.seeds, *range(last + 1, last + 1 + further))


def _doubling(first: int, last: int) -> tuple[int, ...]:
    return (first, *(_doubling(2 * first, last) if first < last else ()))


def _up_to(last: int, updates: int, times: int = 8) -> Distances:
    """Trained at doublings up to the last one, tested at doublings up to so many times as far."""
    return Distances(_doubling(1, last), _doubling(2 * last, times * last), updates)


# eight times as far as they were trained on, most models recall: there they could not be told apart
_FAR = 64

SIZES: dict[Scale, Sizes] = {
    # of two models with three seeds each, a log-rank test cannot give less than 0.1; with five it can
    "quick": Sizes(distances={"recall": _up_to(32, 3_000, _FAR)}, capacity=None, further=2),
    "lecture": Sizes(
        distances={
            "recall": _up_to(32, 3_000, _FAR),
            "copy": _up_to(32, 1_500),
            "associative": replace(_up_to(16, 1_500), forms=("full",)),
            "agreement": Distances((0, 4, 8), (16, 32), 1_000),
        },
        capacity=capacity.Sizes(widths=(16, 32, 64), seeds=1, updates=1_500, trial=300),
        further=3,
    ),
    "definitive": Sizes(
        distances={
            "recall": _up_to(64, 10_000, _FAR),
            "copy": _up_to(64, 10_000),
            "associative": _up_to(32, 10_000),
            "agreement": Distances((0, 4, 8), (16, 32, 64), 10_000),
        },
        examples=5_000,
        tested=400,
        budget=replace(_BUDGET, trial=1_500),
        capacity=capacity.Sizes(widths=(16, 32, 64, 128), seeds=3, updates=6_000, trial=1_000),
        further=5,
    ),
}


@cache
def exercise_of(name: str) -> Exercise:
    """The task of that name."""
    # the agreement's pieces are learned when it is made
    return Agreement() if name == Agreement.name else next(each for each in EXERCISES if each.name == name)


def forms_of(name: str, distances: Distances) -> list[str]:
    """The forms that a task is learned in: a linear head answers one piece at a time, or nothing."""
    return [form for form in distances.forms if form == "full" or exercise_of(name).asking]


def trials(comparison: Comparison) -> list[Trial]:
    """TaskRuns of rates first, then trainings, task by task; the models in turn."""
    sizes = comparison.sizes(SIZES)
    made = []
    for name in (name for name in NAMES if name in sizes.distances):
        parts = [Part(name, form) for form in forms_of(name, sizes.distances[name])]
        made += [Trial(model, replace(p, of="rates").key) for p in parts for model in comparison.models]
        parts += [replace(DECIDES, of="other")] if name == DECIDES.task else []
        made += [
            Trial(model, p.key, s) for p in parts for s in sizes.seeds(comparison, p) for model in comparison.models
        ]
    if sizes.capacity:
        made += capacity.trials(comparison, sizes.capacity)
    return made


def measure(comparison: Comparison, trial: Trial) -> Measured:
    """The best rate for a model and a task, or a training at it and the answers at each distance."""
    sizes = comparison.sizes(SIZES)
    part = Part.of_key(trial.part)
    if part.task == capacity.NAME and sizes.capacity:
        settings = partial(small, comparison.candidate(trial.model), parameters=sizes.parameters)
        return capacity.measure(comparison, trial, sizes.capacity, settings, sizes.budget)
    if part.of == "rates":
        training_task, _ = _training_task(comparison, trial, part, TRIAL_SEED)
        trained = sizes.distances[part.task].trained
        cheating = sum(CHEATS[part.task].accuracy(distance) for distance in trained) / len(trained)
        found = search(training_task, cheating)
        return asdict(found) | {"tried": {f"{rate:g}": tried for rate, tried in found.tried.items()}}
    # a trial that is being made in another process at this moment is made twice, and gives the same
    trials = Trial(trial.model, replace(part, of="rates").key)
    folder = comparison.results_folder(EXPERIMENT.name)
    folder.mkdir(parents=True, exist_ok=True)
    rates = run_cached(folder, partial(measure, comparison), trials, PRECISIONS[comparison.device_context.precision])
    if rates.measured is None:
        raise UserError(rates.failed)
    rate = rates.measured["other" if part.of == "other" else "best"]
    if rate is None:
        raise UserError("at no other rate did it leave chance")
    return _trained(comparison, trial, part, rate)


def _trained(comparison: Comparison, trial: Trial, part: Part, rate: float) -> Measured:
    sizes, exercise = comparison.sizes(SIZES), exercise_of(part.task)
    distances = sizes.distances[part.task]
    training_task, settings = _training_task(comparison, trial, part, trial.seed or 0)
    tests = [
        unseen(exercise.examples(d, sizes.tested, training_task.seed, "test"), training_task.train)
        for d in distances.tested
    ]
    run = Run(training_task, rate)
    run.continue_until(distances.updates // 2)
    # what has solved the task by then would answer so with half of the updates, too
    half = None if run.solved else _right(run, tests, comparison.device_context)
    run.continue_until(distances.updates)
    run.settle(sizes.budget.settle)
    right = _right(run, tests, comparison.device_context)
    return {
        "distances": list(distances.tested),
        "trained": len(distances.trained),
        "asked": [len(test) for test in tests],
        "right": right,
        "half": half or right,
        "baseline": [exercise.baseline(distance) for distance in distances.tested],
        "cheat": CHEATS[part.task].how,
        "cheating": [CHEATS[part.task].accuracy(distance) for distance in distances.tested],
        "title": exercise.title,
        "unit": exercise.unit,
        "settings": settings.model_dump(mode="json"),
        "parameters": count_parameters(run.trainer.model),
        "rate": rate,
        "budget": distances.updates,
        "updates": run.trainer.update,
        # whoever fails has not solved the task, and would not in all of its updates
        "solved": None if run.failure else run.solved,
        "failure": run.failure,
        "looks": [list(look) for look in run.looks],
        "seconds": run.seconds,
    }


def _right(run: Run, tests: list[Examples], device_context: DeviceContext) -> list[int]:
    return [int(answers(run.trainer.model, test, device_context).right.sum()) for test in tests]


def _training_task(comparison: Comparison, trial: Trial, part: Part, seed: int) -> tuple[TrainingTask, Section]:
    """Training task of a trial, and the settings of the whole model."""
    sizes, exercise = comparison.sizes(SIZES), exercise_of(part.task)
    distances = sizes.distances[part.task]
    train = concatenate([exercise.examples(d, sizes.examples, seed) for d in distances.trained])
    held_out = concatenate(
        [unseen(exercise.examples(d, sizes.held_out, seed, "held-out"), train) for d in distances.trained]
    )
    # all seeds have models of one size
    learned = exercise.examples(distances.trained[-1], 100, TRIAL_SEED)
    lengths = (_longest(learned), _longest(exercise.examples(distances.tested[-1], 100, seed)))
    settings = small(comparison.candidate(trial.model), exercise.vocabulary_size, lengths, parameters=sizes.parameters)

    def _build() -> Seq2Seq:
        torch.manual_seed(derive_seed(seed))
        size = exercise.vocabulary_size
        model = module_of(settings.model_dump()["kind"]).build(settings, size, size)
        return headed(model, exercise.asking, size) if part.form == "head" else model

    check_translates(_build(), trial.model)
    budget = replace(sizes.budget, updates=distances.updates)
    return TrainingTask(_build, train, held_out, budget, seed, comparison.device_context), settings


def _longest(examples: Examples) -> int:
    # with the end, and some room for sentences that are longer than others of their distance
    return 2 + round(1.25 * max(len(row) for row in (*examples.sources, *examples.targets)))


def small(
    candidate: Candidate, pieces: int, lengths: tuple[int, int], *, parameters: int, width: int | None = None
) -> Section:
    """The settings of a small model for a task: the candidate's own, with the size and the layers of all.

    A model that learns its positions has a vector for each of the longest text it is asked about, but what counts as
    its size are those that training reaches: the others stay as they were initialised, and no capacity is lost to them.

    Args:
        candidate: whose settings.
        pieces: size of the vocabulary.
        lengths: pieces of the longest text learned from, and of the longest one at all.
        parameters: how many that can learn it shall have, about.
        width: its size instead, whatever number of parameters follows from it.
    """
    learned, longest = lengths
    # as the command has it: trials join the many layers of a deep model by residual connections, these are few
    joined = {} if "residual" in candidate.own else {"residual": False}
    options = non_width_settings(candidate.settings) | OPTIONS | joined
    if width is not None:
        return capacity.as_wide(candidate.kind, options | {"max_positions": longest}, width)
    found = match_translator(
        candidate.kind, pieces, parameters, options | {"max_positions": min(learned, longest)}, step=1
    )
    if "max_positions" not in type(found).model_fields:
        return found
    return found.model_copy(update={"max_positions": longest})


def _numbers(comparison: Comparison) -> dict[str, object]:
    sizes = comparison.sizes(SIZES)
    updates = listed([f"{each.updates:,} ({name})" for name, each in sizes.distances.items()])
    tasks = [f"{name} ({' and '.join(forms_of(name, each))})" for name, each in sizes.distances.items()]
    bits = (
        f"with {listed([str(w) for w in sizes.capacity.widths])} numbers" if sizes.capacity else "not in this profile"
    )
    return {
        "updates": updates,
        "tasks": listed(tasks),
        "bits": bits,
        "trial": f"{sizes.budget.trial:,}",
        "settle": f"{sizes.budget.settle:,}",
        "margin": MARGIN,
        "seeds": len(sizes.seeds(comparison)),
    }


EXPERIMENT = Experiment(
    "long-range", "How far back can it reach?", trials, measure, analyse, tuning_level="", numbers=_numbers
)
