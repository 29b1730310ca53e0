"""Measure the decay of gradients at initialization, at other initializations, and after the training of `quality`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from s2s.comparison.deep import DeepTraining, DeepTrainings
from s2s.comparison.questions.gradients.analyse import (
    LEARNED,
    OWN,
    GradientRun,
    JacobianSpectrum,
    Saliency,
    Sweep,
    SweepPoint,
    Weights,
    analyse,
)
from s2s.comparison.questions.gradients.decay import Curve, brief, curve_of, fit_decay
from s2s.comparison.questions.gradients.jacobian import (
    Transition,
    has_fixed_size,
    lyapunov,
    spectral_norm,
    spectral_radius,
)
from s2s.comparison.questions.gradients.paths import GradientNorms, Path, Texts, gradient_norms, long_texts, saliency
from s2s.comparison.questions.gradients.sweep import VALUES, sweep_parameter_of
from s2s.comparison.runs import learning_curve, prepared, seeds_of
from s2s.comparison.spec import Comparison, Experiment, Scale, Trial, check_translates
from s2s.comparison.tasks import trained
from s2s.comparison.translation import has_cross_attention, sizes_of
from s2s.data.tokenized import TokenizedDataset
from s2s.models.base import Seq2Seq
from s2s.run.inference import load
from s2s.tasks.seq2seq import build_model
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import Recipe
from s2s.training.device import derive_seed

# tokens of the sentence whose heat map is drawn, its end counted
_PICTURE = 14
# sizes of the state: eigenvalues of larger matrices take minutes, and those above the second size are computed for one
# text
_LARGEST_DENSE = 2048
_SMALL_DENSE = 512


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    span: int  # tokens that the decoder reads before the loss; the largest distance is one less
    texts: int  # with one loss at the end of each
    together: int  # texts per batch
    weights: int  # initializations of each seed
    followed: int  # texts along which the Jacobian is followed
    settle: int  # first steps, which only align the direction of fastest growth
    deep_seeds: int  # seeds of the deep trainings, at most
    learned: bool = True  # whether the models of `quality` are also measured
    # trainings that compare normalization before and after each block
    deep: DeepTrainings = field(default_factory=DeepTrainings)


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(span=48, texts=8, together=8, weights=2, followed=2, settle=8, deep_seeds=0, learned=False),
    "lecture": Sizes(span=120, texts=8, together=4, weights=2, followed=2, settle=20, deep_seeds=3),
    "definitive": Sizes(span=240, texts=16, together=2, weights=2, followed=4, settle=40, deep_seeds=5),
}


def trials(comparison: Comparison) -> list[Trial]:
    """For each candidate: its own initialization, others, the trained model, and both kinds of normalization."""
    size, made = comparison.sizes(SIZES), []
    for candidate in comparison.candidates:
        parts = [OWN, LEARNED] if size.learned else [OWN]
        decoder = build_model(candidate.translation, *candidate.translation.tokenizer.sizes).decoder
        if parameter := sweep_parameter_of(decoder):
            parts.append(f"by-{parameter.kind}")
        made += [Trial(candidate.name, part, seed) for part in parts for seed in comparison.seeds]
        deep = size.deep.trials(comparison.seeds[: size.deep_seeds])
        made += [trial for trial in deep if trial.model == candidate.name]
    return made


def measure(comparison: Comparison, trial: Trial) -> GradientRun | Sweep | DeepTraining:
    """Measure the gradients of initial or trained weights, or train with one kind of normalization."""
    size = comparison.sizes(SIZES)
    if trial in size.deep.trials([trial.seed or 0]):
        return size.deep.measure(trial)
    recipe = comparison.candidate(trial.model).translation
    data, seed = prepared(recipe), trial.seed or 0
    check_translates(_build(recipe, data, seed), trial.model)
    if trial.part == LEARNED:
        folder = trained(comparison, trial.model, trial.seed)
        model = load(folder).narrow(Recipe, Seq2Seq).model
        curves, weights = _gradients([model], data.validation, size)
        history = learning_curve(folder, comparison.device_context)
        return GradientRun(curves, weights, maps=_saliency(model, data), history=history)
    # the first initialization is that of the training
    seeds = [seed, *(derive_seed(seed, i) % 2**32 for i in range(1, size.weights))]
    models = [_build(recipe, data, own) for own in seeds]
    parameters = [sweep_parameter_of(model.decoder) for model in models]
    if trial.part == OWN:
        own = [parameter.own for parameter in parameters if parameter]
        return GradientRun(*_gradients(models, data.validation, size), knob=float(np.mean(own)) if own else None)
    points = []
    for value in VALUES["radius" if trial.part == "by-radius" else "bias"]:
        fits = []
        for model in models:
            if (parameter := sweep_parameter_of(model.decoder)) is None:
                raise ValueError("its initialization has no parameter to vary")
            parameter.turn(value)
            fits.append(fit_decay(_norms(model, data.validation, size)[1].inputs, first=0))
        points.append(SweepPoint(value, fits))
    return Sweep(points)


def _build(recipe: Recipe[Any], data: PreparedTranslation, seed: int) -> Seq2Seq:
    return build_model(recipe.model_copy(update={"seeds": seeds_of(seed)}), *sizes_of(data))


def _norms(model: Seq2Seq, data: TokenizedDataset, size: Sizes) -> tuple[Texts, GradientNorms]:
    limits = [limit - 1 for limit in (model.encoder.max_positions, model.decoder.max_positions) if limit is not None]
    texts = long_texts(data, size.texts, min([size.span, *limits]))
    return texts, gradient_norms(model.cpu().double().eval(), texts, size.together, seed=1)


def _gradients(
    models: Sequence[Seq2Seq], data: TokenizedDataset, size: Sizes
) -> tuple[dict[str, Curve], list[Weights]]:
    norms, weights = [], []
    for model in models:
        texts, found = _norms(model, data, size)
        norms.append(found)
        weights.append(
            Weights(
                inputs=fit_decay(found.inputs, first=0),
                states=None if found.states is None else fit_decay(found.states, first=1),
                jacobian=_jacobian(model, texts[: size.followed], size.settle),
            )
        )
    curves = {
        "inputs": curve_of(np.concatenate([each.inputs for each in norms]), first=0),
        "source": curve_of(np.concatenate([each.source for each in norms]), first=0),
    }
    return curves, weights


def _jacobian(model: Seq2Seq, texts: Texts, settle: int) -> JacobianSpectrum | None:
    """Return the spectrum of the recurrent Jacobian; None for a state that grows or has no floating-point tensors."""
    length = texts.tokens.shape[1]
    with torch.no_grad():
        context, first = model.decoder.start(model.encoder(texts.source, texts.valid), length)
        if not has_fixed_size(model.decoder, context, first, texts.tokens):
            return None
        half = length // 2
        middle = model.decoder(context, first, texts.tokens[:, :half])[1]
    step = Transition(model.decoder, context, middle, texts.tokens[:, half : half + 1])
    rows = slice(0, None if step.size <= _SMALL_DENSE else 1)
    growth = lyapunov(model.decoder, context, first, texts.tokens, seed=1, settle=min(settle, half))
    return JacobianSpectrum(
        size=step.size,
        norm=_numbers(spectral_norm(step, seed=1)),
        radius=_numbers(spectral_radius(step.dense()[rows])) if step.size <= _LARGEST_DENSE else None,
        lyapunov=_numbers(growth),
    )


def _saliency(model: Seq2Seq, data: PreparedTranslation) -> Saliency:
    lengths = np.maximum(data.validation.source_lengths, data.validation.target_lengths)
    source, target = data.validation.pair(int(np.abs(lengths - _PICTURE).argmin()))
    model = model.cpu().double().eval()
    paths: tuple[Path, ...] = ("whole", "attention", "summary") if has_cross_attention(model) else ("whole",)
    norms = {path: saliency(model, source, target, path).norm(dim=2).tolist() for path in paths}
    return Saliency(
        source=[*data.source_tokenizer.tokens(source), "</s>"],
        target=[*data.target_tokenizer.tokens(target), "</s>"],
        paths={path: [[brief(value) or 0.0 for value in row] for row in rows] for path, rows in norms.items()},
    )


def _numbers(values: torch.Tensor) -> list[float | None]:
    return [brief(value) for value in values.tolist()]


def _method_numbers(comparison: Comparison) -> dict[str, Any]:
    size = comparison.sizes(SIZES)
    deep_seeds = min(size.deep_seeds, len(comparison.seeds))
    return {"span": size.span, "texts": size.texts, "weights": size.weights, "deep_seeds": deep_seeds}


EXPERIMENT = Experiment(
    "gradients",
    "How does the norm of a gradient change with the distance from the loss?",
    trials,
    measure,
    analyse,
    TypeAdapter(GradientRun | Sweep | DeepTraining),
    depends_on="quality",
    depends_on_part=LEARNED,
    numbers=_method_numbers,
)
