"""Trainings of equal length from fresh weights, from weights that learned unrelated pairs, and from the real thing."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from s2s.comparison.candidate_names import file_name
from s2s.comparison.questions.transfer.analyse import ARMS, MARGIN, SHARES, analyse
from s2s.comparison.runs import RUNS, prepared, shortened, stopwatch
from s2s.comparison.spec import Comparison, Experiment, Measured, Scale, Trial
from s2s.comparison.translation import (
    chosen_pairs,
    counts_of,
    final_weights,
    greedy,
    sizes_of,
    some_pairs,
    train_briefly,
    trainer_for,
)
from s2s.data.batches import make_batches
from s2s.data.tokenized import TokenizedDataset
from s2s.files import file_lock, write_atomically, write_folder_atomically
from s2s.json_files import read_json
from s2s.tasks.source_use import exchanged_rows, pair_losses, source_use
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import Recipe
from s2s.training.device import DeviceContext, derive_seed
from s2s.training.tensor_files import read_weights, save_weights

# batch sizes that are tried, as shares of the recipe's, so that updates learn from equally many tokens
_BATCHES = np.linspace(0.5, 1.0, 51)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    pretraining: float  # updates of the training before, as a share of the recipe's
    finetuning: float  # likewise of that afterwards; from fresh weights there are as many as in both together
    rates: tuple[float, ...]  # of the training on few pairs, as multiples of the one chosen; the best counts
    looks: int  # how often in such a training the validation loss is taken; the best one counts
    sentences: int  # of the test set, translated at the end
    seeds: int | None  # how many; None: all
    shares: tuple[int, ...] = SHARES  # per cent of the pairs, the fewest first


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(0.5, 0.25, (1.0,), looks=6, sentences=150, seeds=1),
    # of the arm that learns the longest the last half hardly falls; the fewest pairs would be too few
    "lecture": Sizes(0.15, 0.35, (1.0,), looks=10, sentences=100, seeds=None, shares=SHARES[1:]),
    "definitive": Sizes(0.2, 0.07, (0.5, 1.0), looks=6, sentences=500, seeds=3),
    "definitive on a GPU": Sizes(1.0, 0.4, (0.5, 1.0, 2.0), looks=12, sentences=500, seeds=None),
}


@dataclass(frozen=True)
class ArmSchedule:
    """Schedule of an arm: updates, validations and initial weights."""

    updates: int  # how many
    stops: tuple[int, ...]  # after which of them the validation loss is taken
    start: Mapping[str, Tensor] | None  # weights to begin with; None: fresh ones


@dataclass(frozen=True)
class ValidationCurve:
    """A training that was looked at from time to time."""

    curve: list[float]  # validation loss at each look, in nats per token
    tokens: int  # target tokens that it learned from
    weights: dict[str, Tensor]  # at the best look
    losses: np.ndarray  # of each validation pair there, summed over its tokens


def trials(comparison: Comparison) -> list[Trial]:
    """One for each seed, share of the pairs and model; the models in turn."""
    sizes = comparison.sizes(SIZES)
    return [
        Trial(model, f"equal-{share}", seed)
        for seed in comparison.seeds[: sizes.seeds]
        for share in sizes.shares
        for model in comparison.models
    ]


def measure(comparison: Comparison, trial: Trial) -> Measured:
    """Three trainings of equal length and equally many tokens, which end with the same few pairs.

    None of a model that all pairs and all updates are too few for: what few of them teach it could not be told.
    """
    sizes, seed, each = comparison.sizes(SIZES), trial.seed or 0, comparison.candidate(trial.model)
    share = int(trial.part.removeprefix("equal-"))
    if each.still_learns:
        return {"share": share, "slope": each.slope, "updates": each.recipe.training.updates}
    recipe = shared_pieces(each.translation)
    data = prepared(recipe)
    fewest = few_pairs(data.train, recipe, seed, sizes.shares[0])
    pairs = few_pairs(data.train, recipe, seed, share)
    wanted = tokens_of(fewest, recipe.batches.tokens)
    before = {
        name: pretrained(comparison, trial.model, seed, name == "real", wanted) for name in ARMS if name != "scratch"
    }
    lengths = {key: shortened(recipe, getattr(sizes, key)).training.updates for key in ("pretraining", "finetuning")}
    evened = with_batches(recipe, pairs, wanted)
    arms = {}
    for name in ARMS:
        earlier = before.get(name)
        updates = lengths["finetuning"] + (0 if earlier else lengths["pretraining"])
        stops = sorted({round(updates * look / sizes.looks) for look in range(sizes.looks + 1)})
        course = ArmSchedule(updates, tuple(stops), earlier[0] if earlier else None)
        arms[name] = _arm(evened, data, pairs, seed, comparison.device_context, sizes, course)
        notes = earlier[1] if earlier else {"updates": 0, "tokens": 0, "seconds": 0.0, "source_use": None}
        arms[name]["before"] = notes
    return {
        "share": share,
        "pairs": len(pairs),
        "pretraining_pairs": len(halves(data.train, recipe.batches.max_length)[0]),
        "tokens": data.validation.target_lengths.tolist(),
        "rate": recipe.training.learning_rate,
        "arms": arms,
    }


def shared_pieces(recipe: Recipe[Any]) -> Recipe[Any]:
    """The recipe with one vocabulary for both languages: only so do both directions have the same pieces."""
    return recipe.model_copy(
        update={"tokenizer": recipe.tokenizer.model_copy(update={"shared": True, "source": None, "target": None})}
    )


def halves(data: TokenizedDataset, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs to learn from first, and those afterwards: every other one whose sides are no longer than that."""
    kept, _ = data.within(max_length)
    return kept[0::2], kept[1::2]


def few_pairs(data: TokenizedDataset, recipe: Recipe[Any], seed: int, share: int) -> TokenizedDataset:
    """Sample some percent of the second half, by seed; smaller samples are subsets of larger ones."""
    after = halves(data, recipe.batches.max_length)[1]
    drawn = np.random.default_rng(derive_seed(seed, 3)).permutation(after)
    return chosen_pairs(data, drawn[: max(2, round(share / 100 * len(drawn)))])


def tokens_of(pairs: TokenizedDataset, budget: int) -> float:
    """Target tokens that an update learns from on average, with batches of that size."""
    return float(pairs.target_lengths.sum()) / len(
        make_batches(pairs.source_lengths, pairs.target_lengths, budget, 0, 1)
    )


def with_batches(recipe: Recipe[Any], pairs: TokenizedDataset, wanted: float) -> Recipe[Any]:
    """The recipe with batches of such a size that an update learns from about so many of these pairs' target tokens.

    Few pairs fill their batches less than many do: with equal batches, equal updates would not be equal tokens.
    """
    longest = int(max(pairs.source_lengths.max(), pairs.target_lengths.max()))
    budgets = sorted({max(longest, round(share * recipe.batches.tokens)) for share in _BATCHES.tolist()}, reverse=True)
    best = min(budgets, key=lambda budget: abs(tokens_of(pairs, budget) - wanted))
    return recipe.model_copy(update={"batches": recipe.batches.model_copy(update={"tokens": best})})


def unrelated(pairs: TokenizedDataset) -> TokenizedDataset:
    """The same sources and targets, each source beside the target of another of about its length."""
    sources, _ = pairs.rows(exchanged_rows(pairs.source_lengths))
    _, targets = pairs.rows(np.arange(len(pairs)))
    return TokenizedDataset.from_rows(sources, targets)


def pretrained(
    comparison: Comparison, model: str, seed: int, related: bool, wanted: float
) -> tuple[dict[str, Tensor], Measured]:
    """The weights of a candidate's model that has learned the other direction, and what that took.

    They are kept in the comparison's folder, so that a model learns it once for a seed.

    Args:
        comparison: of the candidate.
        model: its name.
        seed: of the training.
        related: whether from pairs that translate each other, not from `unrelated` ones.
        wanted: target tokens for an update, see `with_batches`.
    """
    folder = comparison.folder / RUNS
    name = f"transfer-{'real' if related else 'unrelated'}-{file_name(model)}-seed{seed}"
    weights, notes = (folder / f"{name}{ending}" for ending in (".safetensors", ".json"))
    folder.mkdir(parents=True, exist_ok=True)
    # other shares of the same pairs may be measured meanwhile, and need the same weights
    with file_lock(weights.with_suffix(".lock"), wait=True):
        if not notes.exists():
            recipe = shared_pieces(comparison.candidate(model).translation)
            data = prepared(recipe)
            everything = np.arange(len(data.validation))
            pairs = chosen_pairs(data.train, halves(data.train, recipe.batches.max_length)[0], swapped=True)
            recipe = shortened(with_batches(recipe, pairs, wanted), comparison.sizes(SIZES).pretraining)
            short = train_briefly(recipe, data, seed, comparison.device_context, pairs if related else unrelated(pairs))
            held_out = chosen_pairs(data.validation, everything, swapped=True)
            worth = source_use(short.model, held_out, recipe.batches, comparison.device_context)
            with write_folder_atomically(weights) as place:
                save_weights(short.model, place)
            took = {"updates": recipe.training.updates, "tokens": short.tokens, "seconds": short.seconds}
            write_atomically(notes, json.dumps({**took, "source_use": asdict(worth) if worth else None}))
    again = f"remove {notes}: both files are made again"
    return read_weights(weights), read_json(notes, dict[str, Any], again)


def _arm(
    recipe: Recipe[Any],
    data: PreparedTranslation,
    pairs: TokenizedDataset,
    seed: int,
    device_context: DeviceContext,
    sizes: Sizes,
    course: ArmSchedule,
) -> Measured:
    """Trainings at each rate, looked at from time to time; what was best on the validation set translates."""
    clock = stopwatch(device_context)
    began = clock()
    trained = {}
    for times in sizes.rates:
        rate = times * recipe.training.learning_rate
        trained[f"{rate:g}"] = _looked_at(
            _of_length(recipe, course.updates, rate), data, pairs, seed, device_context, course
        )
    seconds = clock() - began
    best = min(trained.values(), key=lambda each: min(each.curve))
    model = trainer_for(recipe, sizes_of(data), pairs, seed, device_context, best.weights).model
    worth = source_use(model, data.validation, recipe.batches, device_context)
    sources, references = some_pairs(data, sizes.sentences)
    return {
        "updates": list(course.stops),
        "tokens": best.tokens,
        "curves": {rate: each.curve for rate, each in trained.items()},
        "losses": [round(float(loss), 4) for loss in best.losses],
        "source_use": asdict(worth) if worth else None,
        "counts": counts_of(
            "bleu", greedy(model, data, recipe, sources), references, data.target_tokenizer.writes_lowercase
        ),
        "seconds": seconds,
    }


def _of_length(recipe: Recipe[Any], updates: int, rate: float) -> Recipe[Any]:
    short = shortened(recipe, updates / recipe.training.updates)
    training = short.training.model_copy(update={"updates": updates, "learning_rate": rate})
    return short.model_copy(update={"training": training})


def _looked_at(
    recipe: Recipe[Any],
    data: PreparedTranslation,
    pairs: TokenizedDataset,
    seed: int,
    device_context: DeviceContext,
    course: ArmSchedule,
) -> ValidationCurve:
    """One training; the first look is at the weights as they came."""
    trainer = trainer_for(recipe, sizes_of(data), pairs, seed, device_context, course.start)
    curve, tokens, best, losses = [], 0, final_weights(trainer), np.zeros(0)
    for stop in course.stops:
        tokens += sum(update.tokens for update in trainer.updates(stop))
        now = final_weights(trainer)
        with trainer.optimization.use_ema_weights():
            each = pair_losses(trainer.model, data.validation, recipe.batches, device_context)
        curve.append(float(each.sum() / data.validation.target_lengths.sum()))
        if curve[-1] <= min(curve):
            best, losses = now, each
    return ValidationCurve(curve, tokens, best, losses)


def _numbers(comparison: Comparison) -> dict[str, object]:
    sizes = comparison.sizes(SIZES)
    return {
        "shares": " and ".join(f"{share} %" for share in sizes.shares),
        "before": f"{100 * sizes.pretraining:g}",
        "after": f"{100 * sizes.finetuning:g}",
        "rates": " and ".join(f"{times:g}" for times in sizes.rates),
        "looks": sizes.looks + 1,
        "margin": MARGIN,
    }


EXPERIMENT = Experiment(
    "transfer", "What does it gain from having learned something else?", trials, measure, analyse, numbers=_numbers
)
