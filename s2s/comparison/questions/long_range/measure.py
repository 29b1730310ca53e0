"""Train small models on four tasks with exact answers, as whole models and as encoders under a linear head.

Each task is tested at trained distances and at longer ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from pydantic import TypeAdapter

from s2s.comparison.matching import match_translator, non_width_settings
from s2s.comparison.paired_tests import listed
from s2s.comparison.questions.long_range.analyse import DECIDES, MARGIN, NAMES, Part, TaskRun, analyse
from s2s.comparison.questions.long_range.learning import ExerciseBudget, ExerciseRun, TrainingTask, answers
from s2s.comparison.questions.long_range.linear_head import with_linear_head
from s2s.comparison.spec import Candidate, Comparison, Experiment, Scale, Trial, check_translates
from s2s.comparison.task_training import Rates, find_rates, search
from s2s.comparison.tuning import TRIAL_SEED
from s2s.data.exercises import CHEATS, EXERCISES, Agreement, Examples, Exercise, concatenate, unseen
from s2s.errors import UserError
from s2s.models.base import Seq2Seq, count_parameters
from s2s.recipe.installed import module_of
from s2s.recipe.schema import Section
from s2s.training.device import derive_seed

# Two encoder layers: associative recall needs one to join a key with its value, and one to find the key. One direction:
# a second direction would read the first symbol last, so there would be no distance.
OPTIONS = {
    "encoder_layers": 2,
    "decoder_layers": 1,
    "dropout": 0.0,
    "feedforward_ratio": 2,
    "heads": 2,
    "bidirectional": False,
    "reverse_source": False,
    # all symbols are frequent: with scaled embeddings, an LSTM solves recall after 450 updates instead of 2,050
    "scale_embeddings": True,
}
_BUDGET = ExerciseBudget(updates=0, rows=64, batches=2, every=50, trial=500, warmup=20, settle=500)


@dataclass(frozen=True)
class Distances:
    """Distances of a task, ascending."""

    trained: tuple[int, ...]  # trained on, in equal parts
    longer: tuple[int, ...]  # tested only
    updates: int  # limit of a training
    forms: tuple[str, ...] = ("head", "full")  # of those that the task has

    @property
    def tested(self) -> tuple[int, ...]:
        """All distances."""
        return self.trained + self.longer


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    distances: dict[str, Distances]  # by task; other tasks are left out
    parameters: int = 60_000  # of every whole model, about
    examples: int = 3_000  # trained on, at each distance
    held_out: int = 64  # for the choice of the rate and the end of training, at each distance
    tested: int = 200  # at each distance and seed
    budget: ExerciseBudget = _BUDGET  # without the number of updates, which depends on the task
    other: bool = True  # whether the part that decides is also trained at the next best rate
    further: int = 0  # more seeds than the comparison has, because trainings are short and pairs many

    def seeds(self, comparison: Comparison, part: Part = DECIDES) -> tuple[int, ...]:
        """Return the seeds of a part; further seeds only where a verdict is based on them."""
        last, further = comparison.seeds[-1], 0 if part.of == "other" else self.further
        return (*comparison.seeds, *range(last + 1, last + 1 + further))


_POWERS = tuple(2**i for i in range(13))

SIZES: dict[Scale, Sizes] = {
    # a median has no interval below six seeds
    "quick": Sizes(
        distances={"recall": Distances(_POWERS[:5], _POWERS[5:11], 2_000, forms=("full",))},
        tested=100,
        budget=replace(_BUDGET, settle=250),
        further=3,
        other=False,
    ),
    "lecture": Sizes(
        distances={
            # most models recall up to eight times the trained distance, so longer ones are needed to separate them
            "recall": Distances(_POWERS[:6], _POWERS[6:12], 3_000),
            "copy": Distances(_POWERS[:6], _POWERS[6:9], 1_500),
            "associative": Distances(_POWERS[:5], _POWERS[5:8], 1_500, forms=("full",)),
            "agreement": Distances((0, 4, 8), (16, 32), 1_000),
        },
        further=3,
    ),
    "definitive": Sizes(
        distances={
            "recall": Distances(_POWERS[:7], _POWERS[7:13], 10_000),
            "copy": Distances(_POWERS[:7], _POWERS[7:10], 10_000),
            "associative": Distances(_POWERS[:6], _POWERS[6:9], 10_000),
            "agreement": Distances((0, 4, 8), (16, 32, 64), 10_000),
        },
        examples=5_000,
        tested=400,
        budget=replace(_BUDGET, trial=1_500),
        further=5,
    ),
}


@cache
def exercise_of(name: str) -> Exercise:
    """Return the task of that name."""
    # an `Agreement` trains its tokenizer when it is made
    return Agreement() if name == Agreement.name else next(each for each in EXERCISES if each.name == name)


def forms_of(name: str, distances: Distances) -> list[str]:
    """Return the forms that a task is trained in; a linear head answers one token at a time."""
    return [form for form in distances.forms if form == "full" or exercise_of(name).asking]


def trials(comparison: Comparison) -> list[Trial]:
    """Return searches for rates, then trainings, task by task."""
    sizes = comparison.sizes(SIZES)
    made = []
    for name in (name for name in NAMES if name in sizes.distances):
        parts = [Part(name, form) for form in forms_of(name, sizes.distances[name])]
        made += [_search_trial(model, p) for p in parts for model in comparison.models]
        parts += [replace(DECIDES, of="other")] if name == DECIDES.task and sizes.other else []
        made += [
            Trial(model, p.key, seed, search=_search_trial(model, p))
            for p in parts
            for seed in sizes.seeds(comparison, p)
            for model in comparison.models
        ]
    return made


def _search_trial(model: str, part: Part) -> Trial:
    return Trial(model, replace(part, of="rates").key)


def measure(comparison: Comparison, trial: Trial) -> TaskRun | Rates:
    """Search for the best rate of a candidate on a task, or train at it."""
    sizes, part = comparison.sizes(SIZES), Part.of_key(trial.part)
    if trial.search is None:
        task, _ = _task_of(comparison, trial, part, TRIAL_SEED)
        trained = sizes.distances[part.task].trained
        return search(task.start, sum(CHEATS[part.task].accuracy(distance) for distance in trained) / len(trained))
    folder, precision = comparison.results_folder(EXPERIMENT.name), EXPERIMENT.precision_in(comparison)
    rates = find_rates(folder, partial(measure, comparison), trial.search, precision)
    rate = rates.other if part.of == "other" else rates.best
    if rate is None:
        raise UserError("no other rate is better than the shortcut baseline")
    return _train(comparison, trial, part, rate)


def _train(comparison: Comparison, trial: Trial, part: Part, rate: float) -> TaskRun:
    sizes, exercise = comparison.sizes(SIZES), exercise_of(part.task)
    distances, cheat = sizes.distances[part.task], CHEATS[part.task]
    task, settings = _task_of(comparison, trial, part, trial.seed or 0)
    tests = [unseen(exercise.examples(each, sizes.tested, task.seed, "test"), task.train) for each in distances.tested]
    run = ExerciseRun(task, rate)
    run.continue_until(distances.updates // 2)
    # a model that has solved the task by then is the same with half of the updates
    half = None if run.solved else _count_right(run, tests)
    run.continue_until(distances.updates)
    run.settle(sizes.budget.settle)
    right = _count_right(run, tests)
    return TaskRun(
        distances=list(distances.tested),
        trained=len(distances.trained),
        asked=[len(test) for test in tests],
        right=right,
        half=half or right,
        baseline=[exercise.baseline(distance) for distance in distances.tested],
        cheat=cheat.how,
        cheating=[cheat.accuracy(distance) for distance in distances.tested],
        title=exercise.title,
        unit=exercise.unit,
        settings=settings.model_dump(mode="json"),
        parameters=count_parameters(run.trainer.model),
        rate=rate,
        budget=distances.updates,
        updates=run.trainer.update,
        solved=None if run.failure else run.solved,
        failure=run.failure,
        looks=run.looks,
        seconds=run.seconds,
    )


def _count_right(run: ExerciseRun, tests: list[Examples]) -> list[int]:
    device_context = run.training_task.device_context
    return [int(answers(run.trainer.model, test, device_context).right.sum()) for test in tests]


def _task_of(comparison: Comparison, trial: Trial, part: Part, seed: int) -> tuple[TrainingTask, Section]:
    """Return the training task of a trial, and the settings of the whole model."""
    sizes, exercise = comparison.sizes(SIZES), exercise_of(part.task)
    distances, counts = sizes.distances[part.task], (sizes.examples, sizes.held_out)
    # the models of all seeds have one size
    learned = exercise.examples(distances.trained[-1], 100, TRIAL_SEED)
    lengths = (_max_length(learned), _max_length(exercise.examples(distances.tested[-1], 100, seed)))
    settings = small(comparison.candidate(trial.model), exercise.vocabulary_size, lengths, sizes.parameters)
    budget, head = replace(sizes.budget, updates=distances.updates), part.form == "head"
    task = _training_task(comparison, trial.model, exercise, distances.trained, counts, settings, budget, seed, head)
    return task, settings


def _training_task(
    comparison: Comparison,
    model: str,
    exercise: Exercise,
    distances: Sequence[int],
    counts: tuple[int, int],
    settings: Section,
    budget: ExerciseBudget,
    seed: int,
    head: bool = False,
) -> TrainingTask:
    """Return a training on an exercise, with so many training and held-out examples at each distance."""
    train = concatenate([exercise.examples(d, counts[0], seed) for d in distances])
    held_out = concatenate([unseen(exercise.examples(d, counts[1], seed, "held-out"), train) for d in distances])

    def _build() -> Seq2Seq:
        torch.manual_seed(derive_seed(seed))
        size = exercise.vocabulary_size
        built = module_of(comparison.candidate(model).kind).build(settings, size, size)
        return with_linear_head(built, exercise.asking, size) if head else built

    check_translates(_build(), model)
    return TrainingTask(_build, train, held_out, budget, seed, comparison.device_context)


def _max_length(examples: Examples) -> int:
    # with the end, and some room for sentences that are longer than others of their distance
    return 2 + round(1.25 * max(len(row) for row in (*examples.sources, *examples.targets)))


def small(candidate: Candidate, pieces: int, lengths: tuple[int, int], parameters: int) -> Section:
    """Return the settings of a small model for a task: the candidate's own, with the size and the layers of all.

    Learned positions that no training example reaches do not count as parameters, so no capacity is lost to them.

    Args:
        candidate: The candidate.
        pieces: Size of the vocabulary.
        lengths: Tokens of the longest example to train on, and of the longest one to test.
        parameters: Number of parameters, about.
    """
    learned, longest = lengths
    # tuning adds residual connections to deep models; these models are shallow
    joined = {} if "residual" in candidate.own else {"residual": False}
    options = non_width_settings(candidate.settings) | OPTIONS | joined
    options |= {"max_positions": min(learned, longest)}
    found = match_translator(candidate.kind, pieces, parameters, options, step=1)
    if "max_positions" not in type(found).model_fields:
        return found
    return found.model_copy(update={"max_positions": longest})


def _numbers(comparison: Comparison) -> dict[str, object]:
    sizes = comparison.sizes(SIZES)
    tasks = sizes.distances.items()
    return {
        "updates": listed([f"{each.updates:,} ({name})" for name, each in tasks]),
        "tasks": listed([f"{name} ({' and '.join(forms_of(name, each))})" for name, each in tasks]),
        "trial": f"{sizes.budget.trial:,}",
        "settle": f"{sizes.budget.settle:,}",
        "margin": MARGIN,
        "seeds": len(sizes.seeds(comparison)),
    }


EXPERIMENT = Experiment(
    "long-range",
    "Over which distance does a model remember, and how soon does it learn to?",
    trials,
    measure,
    analyse,
    TypeAdapter(TaskRun | Rates),
    tuning_level="",
    numbers=_numbers,
)
