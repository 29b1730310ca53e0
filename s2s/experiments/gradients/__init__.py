"""Gradients of initial weights and of trained ones, and trainings with either normalisation."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from s2s.data.encoding import Encoded
from s2s.experiments.contest import (
    Cell,
    Contest,
    Contestant,
    Experiment,
    Measured,
    Scale,
    check_translates,
)
from s2s.experiments.gradients.conclude import conclude
from s2s.experiments.gradients.dynamics import Schooling, fresh, report, school
from s2s.experiments.gradients.jacobian import Transition, fixed_size, lyapunov, spectral_norm, spectral_radius
from s2s.experiments.gradients.paths import Norms, Text, brief, curve, decay, long_texts, looks, norms, saliency
from s2s.experiments.matching import settings_of
from s2s.experiments.whole_runs import prepared
from s2s.models.contract import Seq2Seq
from s2s.recipe.schema import Section
from s2s.tasks.translation.prepared import Prepared
from s2s.tasks.translation.recipe import Recipe
from s2s.training.devices import seed_for

_NORMS = ("pre", "post")
# pieces of the sentence whose heat-map is drawn, its end counted
_PICTURE = 14
# of an update of a small model, for each position and two layers
_SECONDS = 6e-5
# held-out pairs of the built-in corpus
_VALIDATION = 40
# eigenvalues of larger matrices take minutes, and those of middling ones are found for one text alone
_LARGEST_DENSE = 2048
_SMALL_DENSE = 512


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    span: int  # pieces fed before the loss; the largest distance is one less
    texts: int  # losses, each at the end of a text of its own
    together: int  # texts at once
    weights: int  # initialisations for each seed
    followed: int  # texts along which the Jacobian is followed
    settle: int  # steps in which the direction of fastest growth is found before growth is counted
    schooling: Schooling  # the training after which gradients are measured again
    deep: Schooling  # the short trainings that compare normalisation before and after each block
    depths: tuple[int, ...]  # layers of encoder and of decoder in these
    warmups: tuple[int, ...]  # updates of warm-up in these
    deep_seeds: int  # seeds of these, at most


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(
        span=48,
        texts=8,
        together=8,
        weights=4,
        followed=4,
        settle=8,
        schooling=Schooling(pairs=2_000, updates=100, tokens=1_024),
        deep=Schooling(pairs=2_000, updates=50, tokens=512, every=50),
        depths=(2, 6),
        warmups=(0, 25),
        deep_seeds=1,
    ),
    "definitive": Sizes(
        span=240,
        texts=16,
        together=2,
        weights=2,
        followed=4,
        settle=40,
        schooling=Schooling(pairs=20_000, updates=400, tokens=2_048, every=20),
        deep=Schooling(pairs=20_000, updates=200, tokens=1_024, every=200),
        depths=(2, 6),
        warmups=(0, 100),
        deep_seeds=3,
    ),
}
# as much as keeps it busy for the same time
SIZES["definitive on a GPU"] = replace(
    SIZES["definitive"],
    schooling=replace(SIZES["definitive"].schooling, updates=2_000, tokens=4_096),
    deep=replace(SIZES["definitive"].deep, updates=1_000, tokens=2_048, every=1_000),
)


def cells(contest: Contest) -> list[Cell]:
    """For each model: initial weights, a training, and, where it has the choice, both kinds of normalisation."""
    size = contest.sizes(SIZES)
    cells = []
    for contestant in contest.contestants:
        # caches grow with the text, and so does what each step costs
        looking = 2e-5 * size.texts * size.span**2 * size.weights
        learning = _SECONDS * size.schooling.updates * size.schooling.tokens
        cells += [Cell(contestant.name, "initial", seed, seconds=looking) for seed in contest.seeds]
        cells += [Cell(contestant.name, "trained", seed, seconds=learning + 1) for seed in contest.seeds]
        cells += [
            Cell(contestant.name, part, seed, seconds=_SECONDS / 2 * depth * size.deep.updates * size.deep.tokens)
            for seed in contest.seeds[: size.deep_seeds]
            for part, (depth, _, _) in grid(contestant, size).items()
        ]
    return cells


def measure(contest: Contest, cell: Cell) -> Measured:
    """Gradients at the initial weights, or after a training; or a training with one kind of normalisation."""
    size = contest.sizes(SIZES)
    contestant = contest.contestant(cell.model)
    data = corpus(contestant.recipe, size.schooling.pairs)
    seed = contest.seeds[0] if cell.seed is None else cell.seed
    check_translates(fresh(contestant.recipe, data, seed), contestant.name)
    if cell.part == "initial":
        # several sets of weights, since they cost nothing; the first is the one that training begins with
        seeds = [seed, *(seed_for(seed, i) % 2**32 for i in range(1, size.weights))]
        looked = [_look(fresh(contestant.recipe, data, own), data.validation, size) for own in seeds]
        return {"curves": _curves([each for each, _ in looked]), "weights": [described for _, described in looked]}
    if cell.part == "trained":
        model, dynamics = school(contestant.recipe, data, size.schooling, seed, contest.computer)
        if dynamics.failed:
            return {"dynamics": report(dynamics)}
        seen, described = _look(model, data.validation, size)
        weights = {"curves": _curves([seen]), "weights": [described], "maps": _maps(model, data)}
        return {"dynamics": report(dynamics)} | weights
    return _deep(contest, contestant, cell.part, size, seed)


def corpus(recipe: Recipe[Any], pairs: int) -> Prepared:
    """The recipe's corpus as pieces, the built-in one with about so many training pairs, but enough for its pieces."""
    changes: dict[str, object] = {"test": None}
    if isinstance(recipe.data.train, int):
        few = max(pairs, 2 * max(recipe.tokenizer.sizes))
        changes |= {"train": min(few, recipe.data.train), "validation": _VALIDATION}
    return prepared(recipe.model_copy(update={"data": recipe.data.model_copy(update=changes)}))


def grid(contestant: Contestant, size: Sizes) -> dict[str, tuple[int, str, int]]:
    """The trainings that compare normalisation: depth, kind and warm-up by the cell's part; none for other models."""
    kinds = [(depth, norm, warmup) for depth in size.depths for norm in _NORMS for warmup in size.warmups]
    if any(_normalised(contestant, depth, norm) is None for depth, norm, _ in kinds):
        return {}
    return {f"norm-{norm}-layers-{depth}-warmup-{warmup}": (depth, norm, warmup) for depth, norm, warmup in kinds}


def _normalised(contestant: Contestant, depth: int, norm: str) -> Section | None:
    """The model's settings with so many layers and this normalisation; None where it has no such choice."""
    changes = {"norm": norm, "encoder_layers": depth, "decoder_layers": depth}
    if not changes.keys() <= type(contestant.settings).model_fields.keys():
        return None
    try:
        return settings_of(contestant.name, contestant.settings.model_dump() | changes)
    except ValidationError:
        return None


def _deep(contest: Contest, contestant: Contestant, part: str, size: Sizes, seed: int) -> Measured:
    depth, norm, warmup = grid(contestant, size)[part]
    # the rate stays at its peak: what is compared is how it is reached
    training = contestant.recipe.training.model_copy(update={"schedule": "constant"})
    changes = {"model": _normalised(contestant, depth, norm), "training": training}
    recipe = contestant.recipe.model_copy(update=changes)
    data = corpus(recipe, size.deep.pairs)
    _, seen = school(recipe, data, replace(size.deep, warmup=warmup), seed, contest.computer)
    return {
        "depth": depth,
        "norm": norm,
        "warmup": warmup,
        "start": seen.start,
        "end": seen.end,
        "failed": seen.failed,
        # the first update's gradient is that of the initial weights
        "layers": {layer: brief(values[0]) for layer, values in seen.layers.items()},
    }


def _look(model: Seq2Seq, data: Encoded, size: Sizes) -> tuple[Norms, dict[str, Any]]:
    """Gradients and Jacobian of one set of weights."""
    model = model.cpu().double().eval()
    limits = [longest for longest in (model.encoder.longest, model.decoder.longest) if longest is not None]
    text = long_texts(data, size.texts, min([size.span, *(limit - 1 for limit in limits)]))
    seen = norms(model, text, size.together, seed=1)
    return seen, {
        "inputs": asdict(decay(seen.inputs, first=0)),
        "states": None if seen.states is None else asdict(decay(seen.states, first=1)),
        "jacobian": _jacobian(model, text.rows(slice(0, size.followed)), size.settle),
    }


def _jacobian(model: Seq2Seq, text: Text, settle: int) -> dict[str, Any] | None:
    """What the Jacobian of the recurrence is like; None for a state that grows, or has no numbers."""
    length = text.tokens.shape[1]
    with torch.no_grad():
        context, first = model.decoder.start(model.encoder(text.source, text.valid), length)
        if not fixed_size(model.decoder, context, first, text.tokens):
            return None
        half = length // 2
        middle = model.decoder(context, first, text.tokens[:, :half])[1]
    step = Transition(model.decoder, context, middle, text.tokens[:, half : half + 1])
    radius, some = None, slice(0, None if step.size <= _SMALL_DENSE else 1)
    if step.size <= _LARGEST_DENSE:
        radius = _numbers(spectral_radius(step.dense()[some]))
    growth = lyapunov(model.decoder, context, first, text.tokens, seed=1, settle=min(settle, half))
    return {
        "size": step.size,
        "norm": _numbers(spectral_norm(step, seed=1)),
        "radius": radius,
        "lyapunov": _numbers(growth),
    }


def _curves(seen: list[Norms]) -> dict[str, Any]:
    """Each kind of norm by distance, over all texts and sets of weights."""
    states = [one.states for one in seen if one.states is not None]
    return {
        "inputs": curve(np.concatenate([one.inputs for one in seen]), first=0),
        "states": curve(np.concatenate(states), first=1) if states else None,
        "source": curve(np.concatenate([one.source for one in seen]), first=0),
    }


def _maps(model: Seq2Seq, data: Prepared) -> dict[str, Any]:
    """Where the score of each target piece gets its gradient from, with the paths to the source cut in turn."""
    lengths = np.maximum(data.validation.source_lengths, data.validation.target_lengths)
    source, target = data.validation.pair(int(np.abs(lengths - _PICTURE).argmin()))
    paths = ("whole", "attention", "summary") if looks(model) else ("whole",)
    return {
        "source": [*data.source_tokenizer.pieces(source), "</s>"],
        "target": [*data.target_tokenizer.pieces(target), "</s>"],
        "paths": {path: [_numbers(row) for row in saliency(model, source, target, path).norm(dim=2)] for path in paths},
    }


def _numbers(values: torch.Tensor) -> list[float | None]:
    return [brief(value) for value in values.tolist()]


def _of_method(contest: Contest) -> dict[str, Any]:
    size = contest.sizes(SIZES)
    return vars(size) | vars(size.schooling) | {"deep": size.deep.updates}


EXPERIMENT = Experiment(
    "gradients",
    "How much of a gradient is left, step by step, on its way from a loss to what caused it?",
    cells,
    measure,
    conclude,
    numbers=_of_method,
)
