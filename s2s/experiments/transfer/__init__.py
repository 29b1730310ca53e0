"""Trainings from weights that have learned the other direction of translation, and from fresh ones."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from s2s.data.encoding import Encoded
from s2s.experiments.contest import Cell, Contest, Experiment, Measured, Scale
from s2s.experiments.transfer.conclude import SHARES, conclude
from s2s.experiments.translating import (
    chosen_pairs,
    counts_of,
    deciding,
    greedy,
    pair_losses,
    put,
    schooled,
    sizes_of,
    some_pairs,
    trainer_for,
)
from s2s.experiments.whole_runs import RUNS, prepared, seconds_for, shortened
from s2s.files import locked, whole, write_atomically
from s2s.tasks.translation.prepared import Prepared
from s2s.tasks.translation.recipe import Recipe
from s2s.training.checkpoint import read_tensors, save_weights
from s2s.training.devices import Computer, seed_for


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    pretraining: float  # updates of the opposite direction, as a share of the recipe's
    finetuning: float  # likewise of the training afterwards, and of that from scratch
    looks: int  # how often in a training its validation loss is taken; the best one counts
    sentences: int  # of the test set, translated at the end
    seeds: int | None  # how many; None: all


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(0.5, 0.25, looks=6, sentences=150, seeds=1),
    "definitive": Sizes(0.4, 0.15, looks=6, sentences=500, seeds=1),
    "definitive on a GPU": Sizes(1.0, 0.4, looks=12, sentences=500, seeds=None),
}


def cells(contest: Contest) -> list[Cell]:
    """One for each seed, share of the pairs and model; the models in turn."""
    sizes = contest.sizes(SIZES)
    # the first share of a seed waits for the training before it
    updates = {share: 2 * sizes.finetuning + (sizes.pretraining if share == SHARES[0] else 0) for share in SHARES}
    return [
        Cell(each.name, f"share-{share}", seed, seconds=seconds_for(each.recipe, updates[share]))
        for seed in contest.seeds[: sizes.seeds]
        for share in SHARES
        for each in contest.contestants
    ]


def measure(contest: Contest, cell: Cell) -> Measured:
    """Two trainings on the same pairs: one from weights that can translate the other way, one from fresh ones."""
    sizes, seed = contest.sizes(SIZES), cell.seed or 0
    share = int(cell.part.removeprefix("share-"))
    recipe = shared_pieces(contest.contestant(cell.model).recipe)
    data = prepared(recipe)
    before, after = halves(data.train, recipe.batches.max_length)
    start, seconds = pretrained(contest, cell.model, seed)
    drawn = np.random.default_rng(seed_for(seed, len(SHARES))).permutation(after)
    pairs = chosen_pairs(data.train, drawn[: max(1, round(share / 100 * len(drawn)))])
    short = shortened(recipe, sizes.finetuning)
    arms = {
        name: _arm(short, data, pairs, seed, contest.computer, sizes, weights)
        for name, weights in (("tuned", start), ("scratch", None))
    }
    return {
        "share": share,
        "pairs": len(pairs),
        "pretraining_pairs": len(before),
        "pretraining_updates": shortened(recipe, sizes.pretraining).training.updates,
        "pretraining_seconds": seconds,
        "updates": short.training.updates,
        "tokens": data.validation.target_lengths.tolist(),
        "arms": arms,
    }


def shared_pieces(recipe: Recipe[Any]) -> Recipe[Any]:
    """The recipe with one vocabulary for both languages: only so do both directions have the same pieces."""
    return recipe.model_copy(
        update={"tokenizer": recipe.tokenizer.model_copy(update={"shared": True, "source": None, "target": None})}
    )


def halves(data: Encoded, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs to learn from first, and those afterwards: every other one whose sides are no longer than that."""
    kept, _ = data.within(max_length)
    return kept[0::2], kept[1::2]


def pretrained(contest: Contest, model: str, seed: int) -> tuple[dict[str, Tensor], float]:
    """The weights of a contestant's model that has learned the other direction, and the seconds that took.

    They are kept in the comparison's folder, so that a model learns it once for a seed.
    """
    folder = contest.folder / RUNS
    weights, notes = (folder / f"transfer-{model}-seed{seed}{ending}" for ending in (".safetensors", ".json"))
    folder.mkdir(parents=True, exist_ok=True)
    # other shares of the same pairs may be measured meanwhile, and need the same weights
    with locked(weights.with_suffix(".lock"), wait=True):
        if not notes.exists():
            recipe = shared_pieces(contest.contestant(model).recipe)
            data = prepared(recipe)
            pairs = chosen_pairs(data.train, halves(data.train, recipe.batches.max_length)[0], swapped=True)
            recipe = shortened(recipe, contest.sizes(SIZES).pretraining)
            short = schooled(recipe, data, seed, contest.computer, pairs)
            with whole(weights) as place:
                save_weights(short.model, place)
            write_atomically(notes, json.dumps({"seconds": short.seconds}))
    return read_tensors(weights), json.loads(notes.read_text(encoding="utf-8"))["seconds"]


def _arm(
    recipe: Recipe[Any],
    data: Prepared,
    pairs: Encoded,
    seed: int,
    computer: Computer,
    sizes: Sizes,
    start: Mapping[str, Tensor] | None,
) -> Measured:
    """One training, looked at from time to time; what was best on the validation set translates the test set."""
    trainer = trainer_for(recipe, sizes_of(data), pairs, seed, computer, start)
    model, total = trainer.model, recipe.training.updates
    # the first look is at the weights as they came
    stops = sorted({round(total * look / sizes.looks) for look in range(sizes.looks + 1)})
    curve, best, losses = [], deciding(trainer), np.zeros(0)
    began = time.perf_counter()
    for stop in stops:
        for _ in trainer.updates(stop):
            pass
        now = deciding(trainer)
        with trainer.optimization.averaged():
            each = pair_losses(model, data.validation, recipe.batches, computer)
        curve.append(float(each.sum() / data.validation.target_lengths.sum()))
        if curve[-1] <= min(curve):
            best, losses = now, each
    seconds = time.perf_counter() - began
    put(model, best)
    sources, references = some_pairs(data, sizes.sentences)
    translations = greedy(model, data, recipe, sources)
    return {
        "updates": stops,
        "curve": curve,
        "losses": [round(float(loss), 4) for loss in losses],
        "counts": counts_of("bleu", translations, references),
        "seconds": seconds,
    }


EXPERIMENT = Experiment("transfer", "What does it gain from having learned something else?", cells, measure, conclude)
