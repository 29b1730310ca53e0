"""Measure gradient decay at initialization, at other initializations, and after the training of `quality`."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from s2s.comparison.deep import DeepTrainings
from s2s.comparison.questions.gradients.analyse import analyse
from s2s.comparison.questions.gradients.jacobian import Transition, fixed_size, lyapunov, spectral_norm, spectral_radius
from s2s.comparison.questions.gradients.paths import (
    Norms,
    Text,
    brief,
    curve,
    decay,
    long_texts,
    looks,
    norms,
    saliency,
)
from s2s.comparison.questions.gradients.sweep import VALUES, sweep_parameter_of
from s2s.comparison.runs import history, prepared, seeds_of
from s2s.comparison.spec import Comparison, Experiment, Measured, Scale, Trial, check_translates
from s2s.comparison.tasks import trained
from s2s.comparison.translation import sizes_of
from s2s.data.tokenized import TokenizedDataset
from s2s.models.base import Seq2Seq
from s2s.run.inference import load
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import Recipe
from s2s.tasks.translation.task import build_model
from s2s.training.device import derive_seed

# pieces of the sentence whose heat-map is drawn, its end counted
_PICTURE = 14
# the part that looks at trained models
_LEARNED = "learned"
# eigenvalues of larger matrices take minutes, and those of middling ones are found for one text alone
_LARGEST_DENSE = 2048
_SMALL_DENSE = 512


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    span: int  # pieces fed before the loss; the largest distance is one less
    texts: int  # losses, each at the end of a text of its own
    together: int  # texts at once
    weights: int  # initialisations for each seed
    followed: int  # texts along which the Jacobian is followed
    settle: int  # steps in which the direction of fastest growth is found before growth is counted
    deep_seeds: int  # seeds of these, at most
    learned: bool = True  # whether the models of `quality` are looked at, too, which must be trained for it
    # the trainings that compare normalisation before and after each block
    deep: DeepTrainings = field(default_factory=DeepTrainings)


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(span=48, texts=8, together=8, weights=2, followed=2, settle=8, deep_seeds=0, learned=False),
    "lecture": Sizes(span=120, texts=8, together=4, weights=2, followed=2, settle=20, deep_seeds=3),
    "definitive": Sizes(span=240, texts=16, together=2, weights=2, followed=4, settle=40, deep_seeds=5),
}


def trials(comparison: Comparison) -> list[Trial]:
    """For each model: its own initial weights, others, the trained model, and both kinds of normalisation."""
    size = comparison.sizes(SIZES)
    trials = []
    for candidate in comparison.candidates:
        parts = ["own"]
        if size.learned:
            parts.append(_LEARNED)
        knob = sweep_parameter_of(build_model(candidate.translation, *candidate.translation.tokenizer.sizes).decoder)
        if knob is not None:
            parts.append(f"by-{knob.kind}")
        trials += [Trial(candidate.name, part, seed) for part in parts for seed in comparison.seeds]
        deep = size.deep.trials(comparison.seeds[: size.deep_seeds])
        trials += [trial for trial in deep if trial.model == candidate.name]
    return trials


def measure(comparison: Comparison, trial: Trial) -> Measured:
    """Gradients of initial weights or of trained ones; or a training with one kind of normalisation."""
    size = comparison.sizes(SIZES)
    if trial in size.deep.trials([trial.seed or 0]):
        return size.deep.measure(trial)
    recipe = comparison.candidate(trial.model).translation
    data, seed = prepared(recipe), trial.seed or 0
    check_translates(_fresh(recipe, data, seed), trial.model)
    if trial.part == _LEARNED:
        folder = trained(comparison, trial.model, trial.seed)
        model = load(folder).narrow(Recipe, Seq2Seq).model
        seen, described = _look(model, data.validation, size)
        weights = {"curves": _curves([seen]), "weights": [described], "maps": _maps(model, data)}
        return weights | {"history": history(folder, {"losses": "loss"}, comparison.device_context)}
    # the first is the one that training begins with
    seeds = [seed, *(derive_seed(seed, i) % 2**32 for i in range(1, size.weights))]
    models = [_fresh(recipe, data, own) for own in seeds]
    if trial.part == "own":
        # what is turned elsewhere
        knobs = [knob.own for model in models if (knob := sweep_parameter_of(model.decoder))]
        looked = [_look(model, data.validation, size) for model in models]
        weights = {"curves": _curves([each for each, _ in looked]), "weights": [described for _, described in looked]}
        return weights | {"knob": float(np.mean(knobs)) if knobs else None}
    kind: Any = trial.part.removeprefix("by-")
    return {"values": [_turned(models, value, data.validation, size) for value in VALUES[kind]]}


def _turned(models: list[Seq2Seq], value: float, data: TokenizedDataset, size: Sizes) -> dict[str, Any]:
    """Fits of the gradients of these models with this value of what can be turned."""
    fits = []
    for model in models:
        knob = sweep_parameter_of(model.decoder)
        if knob is None:
            raise ValueError("its initialisation has no knob")
        knob.turn(value)
        model = model.cpu().double().eval()
        fits.append(asdict(decay(norms(model, _texts(model, data, size), size.together, seed=1).inputs, first=0)))
    return {"value": value, "fits": fits}


def _fresh(recipe: Recipe[Any], data: PreparedTranslation, seed: int) -> Seq2Seq:
    return build_model(recipe.model_copy(update={"seeds": seeds_of(seed)}), *sizes_of(data))


def _texts(model: Seq2Seq, data: TokenizedDataset, size: Sizes) -> Text:
    limits = [longest for longest in (model.encoder.max_positions, model.decoder.max_positions) if longest is not None]
    return long_texts(data, size.texts, min([size.span, *(limit - 1 for limit in limits)]))


def _look(model: Seq2Seq, data: TokenizedDataset, size: Sizes) -> tuple[Norms, dict[str, Any]]:
    """Gradients and Jacobian of one set of weights."""
    model = model.cpu().double().eval()
    text = _texts(model, data, size)
    seen = norms(model, text, size.together, seed=1)
    return seen, {
        "inputs": asdict(decay(seen.inputs, first=0)),
        "states": None if seen.states is None else asdict(decay(seen.states, first=1)),
        "jacobian": _jacobian(model, text.rows(slice(0, size.followed)), size.settle),
    }


def _jacobian(model: Seq2Seq, text: Text, settle: int) -> dict[str, Any] | None:
    """Spectral figures of the recurrent Jacobian; None for a state that grows or has no floating-point tensors."""
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
    return {
        "inputs": curve(np.concatenate([one.inputs for one in seen]), first=0),
        "source": curve(np.concatenate([one.source for one in seen]), first=0),
    }


def _maps(model: Seq2Seq, data: PreparedTranslation) -> dict[str, Any]:
    """Saliency of a sentence pair: the gradient of each target token's score, by path to the source."""
    lengths = np.maximum(data.validation.source_lengths, data.validation.target_lengths)
    source, target = data.validation.pair(int(np.abs(lengths - _PICTURE).argmin()))
    paths = ("whole", "attention", "summary") if looks(model) else ("whole",)
    return {
        "source": [*data.source_tokenizer.tokens(source), "</s>"],
        "target": [*data.target_tokenizer.tokens(target), "</s>"],
        "paths": {path: [_numbers(row) for row in saliency(model, source, target, path).norm(dim=2)] for path in paths},
    }


def _numbers(values: torch.Tensor) -> list[float | None]:
    return [brief(value) for value in values.tolist()]


def _of_method(comparison: Comparison) -> dict[str, Any]:
    size = comparison.sizes(SIZES)
    return vars(size) | {"deep": size.deep.method, "deep_seeds": min(size.deep_seeds, len(comparison.seeds))}


EXPERIMENT = Experiment(
    "gradients",
    "How much of a gradient is left, step by step, on its way from a loss to what caused it?",
    trials,
    measure,
    analyse,
    depends_on="quality",
    depends_on_part=_LEARNED,
    numbers=_of_method,
)
