"""Measure fine-tuning: trainings of equal length from scratch, after unrelated pairs, and after the other direction."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from torch import Tensor

from s2s.comparison.candidate_names import file_name
from s2s.comparison.questions.transfer.analyse import (
    ARMS,
    MARGIN,
    SHARES,
    Arm,
    Pretraining,
    TransferRun,
    Untrained,
    analyse,
)
from s2s.comparison.runs import RUNS, prepared, shortened, stopwatch
from s2s.comparison.spec import Comparison, Experiment, Scale, Trial
from s2s.comparison.translation import (
    chosen_pairs,
    counts_of,
    final_weights,
    first_pairs,
    greedy,
    sizes_of,
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

# batch sizes that `with_batches` tries, as shares of the recipe's
_BATCHES = np.linspace(0.5, 1.0, 51)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    pretraining: float  # updates of the pretraining, as a share of the recipe's
    finetuning: float  # likewise of the fine-tuning; training from scratch has as many as both together
    rates: tuple[float, ...]  # learning rates of the fine-tuning, as multiples of the chosen one; the best counts
    looks: int  # validations of a fine-tuning after the first update; the best one counts
    sentences: int  # of the test set to translate
    seeds: int | None  # number of seeds; None: all
    shares: tuple[int, ...] = SHARES  # percentages of the pairs, ascending


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(0.5, 0.25, (1.0,), looks=6, sentences=150, seeds=1),
    # the longest training hardly improves in its last half; 1 % of the pairs would be too few
    "lecture": Sizes(0.15, 0.35, (1.0,), looks=10, sentences=100, seeds=None, shares=SHARES[1:]),
    "definitive": Sizes(0.2, 0.07, (0.5, 1.0), looks=6, sentences=500, seeds=3),
    "definitive on a GPU": Sizes(1.0, 0.4, (0.5, 1.0, 2.0), looks=12, sentences=500, seeds=None),
}


@dataclass(frozen=True)
class _Training:
    """One training on the few pairs."""

    curve: list[float]  # loss at each validation, in nats per token
    tokens: int  # target tokens
    weights: dict[str, Tensor]  # at the best validation
    losses: np.ndarray  # of each validation sentence at the best validation, summed over its tokens


def trials(comparison: Comparison) -> list[Trial]:
    """Return a trial for each seed, share of the pairs and model; models alternate."""
    sizes = comparison.sizes(SIZES)
    return [
        Trial(model, f"equal-{share}", seed)
        for seed in comparison.seeds[: sizes.seeds]
        for share in sizes.shares
        for model in comparison.models
    ]


def measure(comparison: Comparison, trial: Trial) -> TransferRun | Untrained:
    """Train the three conditions, which have equal updates and tokens and end with the same few pairs.

    A model whose training on all pairs has not converged is not fine-tuned.
    """
    sizes, seed, candidate = comparison.sizes(SIZES), trial.seed or 0, comparison.candidate(trial.model)
    share = int(trial.part.removeprefix("equal-"))
    if candidate.slope is not None and candidate.still_learns:
        return Untrained(share, candidate.slope, candidate.recipe.training.updates)
    recipe = shared_pieces(candidate.translation)
    data = prepared(recipe)
    pairs = few_pairs(data.train, recipe, seed, share)
    # equal updates have equal tokens only if the batches of few pairs are as full as those of many
    wanted = tokens_of(few_pairs(data.train, recipe, seed, sizes.shares[0]), recipe.batches.tokens)
    starts = {
        name: pretrained(comparison, trial.model, seed, name == "real", wanted) for name in ARMS if name != "scratch"
    }
    before, after = (shortened(recipe, part).training.updates for part in (sizes.pretraining, sizes.finetuning))
    evened = with_batches(recipe, pairs, wanted)
    arms = {}
    for name in ARMS:
        weights, pretraining = starts.get(name, (None, Pretraining()))
        updates = after if weights else before + after
        arms[name] = _arm(evened, data, pairs, seed, comparison, updates, weights, pretraining)
    return TransferRun(
        share=share,
        pairs=len(pairs),
        tokens=data.validation.target_lengths.tolist(),
        rate=recipe.training.learning_rate,
        arms=arms,
    )


def shared_pieces(recipe: Recipe[Any]) -> Recipe[Any]:
    """Return the recipe with one vocabulary for both languages, so that both directions have the same tokens."""
    return recipe.model_copy(
        update={"tokenizer": recipe.tokenizer.model_copy(update={"shared": True, "source": None, "target": None})}
    )


def halves(data: TokenizedDataset, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of the pairs for pretraining and for fine-tuning: alternate ones of those within `max_length`."""
    kept, _ = data.within(max_length)
    return kept[0::2], kept[1::2]


def few_pairs(data: TokenizedDataset, recipe: Recipe[Any], seed: int, share: int) -> TokenizedDataset:
    """Sample a percentage of the fine-tuning half by seed; smaller samples are subsets of larger ones."""
    after = halves(data, recipe.batches.max_length)[1]
    drawn = np.random.default_rng(derive_seed(seed, 3)).permutation(after)
    return chosen_pairs(data, drawn[: max(2, round(share / 100 * len(drawn)))])


def tokens_of(pairs: TokenizedDataset, budget: int) -> float:
    """Return the mean number of target tokens of an update with this batch size."""
    return float(pairs.target_lengths.sum()) / len(
        make_batches(pairs.source_lengths, pairs.target_lengths, budget, 0, 1)
    )


def with_batches(recipe: Recipe[Any], pairs: TokenizedDataset, wanted: float) -> Recipe[Any]:
    """Return the recipe with the batch size for which an update has nearest to `wanted` target tokens of these pairs.

    Few pairs fill their batches less than many: with equal batch sizes, equal updates would not be equal tokens.
    """
    longest = int(max(pairs.source_lengths.max(), pairs.target_lengths.max()))
    budgets = sorted({max(longest, round(share * recipe.batches.tokens)) for share in _BATCHES.tolist()}, reverse=True)
    best = min(budgets, key=lambda budget: abs(tokens_of(pairs, budget) - wanted))
    return recipe.model_copy(update={"batches": recipe.batches.model_copy(update={"tokens": best})})


def unrelated(pairs: TokenizedDataset) -> TokenizedDataset:
    """Return the same sources and targets, each source with the target of another one of about its length."""
    sources, _ = pairs.rows(exchanged_rows(pairs.source_lengths))
    _, targets = pairs.rows(np.arange(len(pairs)))
    return TokenizedDataset.from_rows(sources, targets)


def pretrained(
    comparison: Comparison, model: str, seed: int, related: bool, wanted: float
) -> tuple[dict[str, Tensor], Pretraining]:
    """Train a candidate's model in the other direction, or load it from the comparison's folder.

    Args:
        comparison: Comparison of the candidate.
        model: Name of the candidate.
        seed: Seed of the training.
        related: False to train on `unrelated` pairs.
        wanted: Target tokens of an update, see `with_batches`.

    Returns:
        The weights, and the cost and the source use of the training.
    """
    folder = comparison.folder / RUNS
    name = f"transfer-{'real' if related else 'unrelated'}-{file_name(model)}-seed{seed}"
    weights, notes = (folder / f"{name}{ending}" for ending in (".safetensors", ".json"))
    folder.mkdir(parents=True, exist_ok=True)
    # another process may measure another share of the pairs, which needs the same weights
    with file_lock(weights.with_suffix(".lock"), wait=True):
        if not notes.exists():
            recipe = shared_pieces(comparison.candidate(model).translation)
            data = prepared(recipe)
            pairs = chosen_pairs(data.train, halves(data.train, recipe.batches.max_length)[0], swapped=True)
            recipe = shortened(with_batches(recipe, pairs, wanted), comparison.sizes(SIZES).pretraining)
            short = train_briefly(recipe, data, seed, comparison.device_context, pairs if related else unrelated(pairs))
            held_out = chosen_pairs(data.validation, np.arange(len(data.validation)), swapped=True)
            used = source_use(short.model, held_out, recipe.batches, comparison.device_context)
            with write_folder_atomically(weights) as place:
                save_weights(short.model, place)
            made = Pretraining(recipe.training.updates, short.tokens, short.seconds, used)
            write_atomically(notes, json.dumps(asdict(made)))
    return read_weights(weights), read_json(notes, Pretraining, f"remove {notes}: both files are made again")


def _arm(
    recipe: Recipe[Any],
    data: PreparedTranslation,
    pairs: TokenizedDataset,
    seed: int,
    comparison: Comparison,
    updates: int,
    start: Mapping[str, Tensor] | None,
    before: Pretraining,
) -> Arm:
    """Train at each rate, and translate with the weights that are best on the validation set."""
    sizes, device_context = comparison.sizes(SIZES), comparison.device_context
    stops = sorted({round(updates * look / sizes.looks) for look in range(sizes.looks + 1)})
    clock = stopwatch(device_context)
    began, trained = clock(), dict[str, _Training]()
    for times in sizes.rates:
        rate = times * recipe.training.learning_rate
        short = shortened(recipe, updates / recipe.training.updates)
        training = short.training.model_copy(update={"updates": updates, "learning_rate": rate})
        at_rate = short.model_copy(update={"training": training})
        trained[f"{rate:g}"] = _train(at_rate, data, pairs, seed, device_context, stops, start)
    seconds = clock() - began
    best = min(trained.values(), key=lambda each: min(each.curve))
    model = trainer_for(recipe, sizes_of(data), pairs, seed, device_context, best.weights).model
    sources, references = first_pairs(data, sizes.sentences)
    written = greedy(model, data, recipe, sources)
    return Arm(
        updates=stops,
        tokens=best.tokens,
        curves={rate: each.curve for rate, each in trained.items()},
        losses=[round(float(loss), 4) for loss in best.losses],
        counts=counts_of("bleu", written, references, data.target_tokenizer.writes_lowercase),
        seconds=seconds,
        before=before,
    )


def _train(
    recipe: Recipe[Any],
    data: PreparedTranslation,
    pairs: TokenizedDataset,
    seed: int,
    device_context: DeviceContext,
    stops: Sequence[int],
    start: Mapping[str, Tensor] | None,
) -> _Training:
    """Train, and validate after each of `stops` updates; the first validation is before the first update."""
    trainer = trainer_for(recipe, sizes_of(data), pairs, seed, device_context, start)
    curve, tokens, best, losses = [], 0, final_weights(trainer), np.zeros(0)
    for stop in stops:
        tokens += sum(update.tokens for update in trainer.updates(stop))
        now = final_weights(trainer)
        with trainer.optimization.use_ema_weights():
            each = pair_losses(trainer.model, data.validation, recipe.batches, device_context)
        curve.append(float(each.sum() / data.validation.target_lengths.sum()))
        if curve[-1] <= min(curve):
            best, losses = now, each
    return _Training(curve, tokens, best, losses)


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
    "transfer",
    "How good is a model after fine-tuning on few pairs, if it was pre-trained on the other direction?",
    trials,
    measure,
    analyse,
    TypeAdapter(TransferRun | Untrained),
    numbers=_numbers,
)
