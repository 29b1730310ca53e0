"""Small trainings: models, learning curves, and accuracy on held-out sequences."""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.exercises import Cheat
from s2s.data.synthetic_tasks import NO_LABEL, SyntheticTask
from s2s.errors import UserError
from s2s.evaluation.inference import mean
from s2s.models.base import Encoder
from s2s.recipe.installed import build_language_model, encoder_settings, language_settings, module_of
from s2s.training.device import derive_seed

# one layer, one direction and no dropout, for models with these settings
_PLAIN = {
    "encoder_layers": 1,
    "dropout": 0.0,
    "bidirectional": False,
    "scale_embeddings": True,
    "heads": 2,
    "max_positions": 4096,
}

Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]
"""Draws the inputs and targets of a batch."""


def target_cross_entropy(logits: Float[Tensor, "batch steps outputs"], targets: Int[Tensor, "batch steps"]) -> Tensor:
    """Return the cross-entropy over the positions with a target, in nats per position."""
    return functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=NO_LABEL)


def random_lengths(task: SyntheticTask, max_length: int, rows: int) -> Draw:
    """Return a function that draws batches of a task whose answers are classes, each batch of one random size.

    Args:
        task: The task.
        max_length: Largest size; the smallest is 1.
        rows: Number of examples in a batch.
    """

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        batch = task.draw(int(torch.randint(1, max_length + 1, (), generator=generator)), rows, generator)
        return batch.source, batch.wanted

    return draw


def power_law_exponent(points: Mapping[int, float]) -> float:
    """Fit y = a · xᵇ by least squares of the logarithms and return b.

    Args:
        points: Positive values y by positive x, for at least two different x.

    Example:
        >>> round(power_law_exponent({1: 3.0, 2: 12.0, 4: 48.0}), 6)
        2.0
    """
    return statistics.linear_regression([math.log(x) for x in points], [math.log(y) for y in points.values()]).slope


@torch.no_grad()
def accuracy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> float:
    """Return the accuracy at the positions with a target, in percent."""
    source, targets = batch
    asked = targets != NO_LABEL
    return 100 * float((model(source).argmax(dim=-1) == targets)[asked].float().mean())


def draw_first_and_noise(
    keys: int, kinds: int, shape: tuple[int, int], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw sequences of a key followed by noise tokens, and return them with the keys.

    Args:
        keys: Number of different keys.
        kinds: Number of different noise tokens.
        shape: Number of sequences, and of noise tokens in each.
        generator: Source of randomness.
    """
    key = torch.randint(keys, (shape[0], 1), generator=generator)
    return torch.cat((key, keys + torch.randint(kinds, shape, generator=generator)), dim=1), key[:, 0]


class TextClassifier(nn.Module):
    """An encoder with a linear head over each of its states, or over the last one.

    Args:
        encoder: The encoder; there is no padding.
        width: Width of its states.
        outputs: Outputs of the head.
        over: Whether the head reads every state or the last one.
    """

    def __init__(self, encoder: Encoder, width: int, outputs: int, over: Literal["states", "last"] = "states") -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, outputs)
        self.over = over

    def forward(self, source: Shaped[Tensor, "batch steps ..."]) -> Float[Tensor, "batch ... outputs"]:
        """Return the outputs at each position, or at the end."""
        memory = self.encoder(source, torch.ones(source.shape[:2], dtype=torch.bool))
        return self.head(memory.states if self.over == "states" else memory.states[:, -1])


def encoder_of(kind: str, vocabulary_size: int, seed: int, options: Mapping[str, object]) -> tuple[Encoder, int]:
    """Build an encoder of an installed model, with one layer and one direction, and return the width of its states.

    Args:
        kind: Kind of the model.
        vocabulary_size: Size of the vocabulary.
        seed: Seed of the weights.
        options: Settings of the model; those that it does not have are ignored.
    """
    section = encoder_settings(kind)
    settings = section(**{key: value for key, value in {**_PLAIN, **options}.items() if key in section.model_fields})
    torch.manual_seed(derive_seed(seed))
    # a module with EncoderSettings has this function
    return module_of(kind).build_encoder(settings, vocabulary_size)


class NextToken(nn.Module):
    """A Transformer language model that gives the scores of the next token at each position.

    Args:
        vocabulary_size: Size of the vocabulary.
        seed: Seed of the weights.
        options: Settings of the model.
    """

    def __init__(self, vocabulary_size: int, seed: int, options: Mapping[str, object]) -> None:
        super().__init__()
        settings = language_settings("transformer")(**{"kind": "transformer", "dropout": 0.0, **options})
        torch.manual_seed(derive_seed(seed))
        self.model = build_language_model(settings, vocabulary_size)

    def forward(self, tokens: Int[Tensor, "batch steps"]) -> Float[Tensor, "batch steps vocabulary"]:
        """Return the scores of the token that follows each token."""
        return self.model.logits(tokens, separate_documents=False)


@dataclass(frozen=True)
class LossCurve:
    """Learning curve of a training."""

    updates: list[int]  # updates before each point
    losses: list[float]  # mean training loss since the previous point
    ended: int | None  # updates after which the loss was low enough; None if it never was


@dataclass(frozen=True)
class Budget:
    """Limits of a training."""

    updates: int  # at most
    rate: float  # learning rate of Adam
    every: int = 50  # updates between two points of the learning curve
    clip: float = 1.0  # gradient clipping
    warmup: int = 0  # updates over which the rate rises linearly
    decay: float = 0.0  # share of the updates, at the end, over which the rate falls linearly to 0

    def rate_at(self, update: int) -> float:
        """Return the learning rate of an update, from 1 on."""
        rising = min(1.0, update / self.warmup) if self.warmup else 1.0
        left = self.updates + 1 - update
        falling = min(1.0, left / (self.decay * self.updates)) if self.decay else 1.0
        return self.rate * rising * falling


def train(
    model: nn.Module,
    draw: Draw,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    budget: Budget,
    seed: int,
    enough: float = 0.0,
) -> LossCurve:
    """Train until the mean loss is low enough or the budget is spent.

    Args:
        model: A `TextClassifier`, or any module that maps inputs to outputs.
        draw: Draws a fresh batch for each update.
        loss_of: Loss of outputs and targets.
        budget: Limits of the training.
        seed: Seed of the batches.
        enough: Mean loss since the previous point of the curve below which the training ends.

    Raises:
        UserError: The loss is not finite.
    """
    adam = torch.optim.Adam(model.parameters(), lr=budget.rate)
    generator = torch.Generator().manual_seed(derive_seed(seed, 1) % 2**63)
    updates, losses, ended, since = list[int](), list[float](), None, list[float]()
    model.train()
    for update in range(1, budget.updates + 1):
        for group in adam.param_groups:
            group["lr"] = budget.rate_at(update)
        source, targets = draw(generator)
        loss = loss_of(model(source), targets)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), budget.clip)
        adam.step()
        since.append(loss.item())
        if update % budget.every == 0 or update == budget.updates:
            updates.append(update)
            losses.append(sum(since) / len(since))
            since = []
            if not math.isfinite(losses[-1]):
                raise UserError(f"the loss is not finite after {update} updates")
            if losses[-1] < enough:
                ended = update
                break
    model.eval()
    return LossCurve(updates, losses, ended)


@dataclass(frozen=True)
class AccuracyByLength:
    """A training, and its accuracy at several lengths."""

    curve: LossCurve
    right: dict[int, float]  # accuracy at each length, in percent


def heldout_generator(seed: int) -> torch.Generator:
    """Return the random generator of test batches, which no training uses."""
    return torch.Generator().manual_seed(10**6 + seed)


def accuracy_figure(
    title: str, measured: Mapping[Trial, AccuracyByLength], shortcut: Cheat, x: str = "length"
) -> Figure:
    """Draw the accuracy of each model and part by length, mean over seeds, with a shortcut baseline.

    Args:
        title: Title of the figure.
        measured: Accuracies by trial.
        shortcut: The shortcut baseline, by length.
        x: Name of the length.
    """
    runs: dict[str, list[dict[int, float]]] = {}
    for trial, run in measured.items():
        runs.setdefault(_label(trial), []).append(run.right)
    shown = [
        series(
            label,
            label,
            [float(length) for length in own[0]],
            [mean([right[length] for right in own]) for length in own[0]],
        )
        for label, own in runs.items()
    ]
    lengths = sorted({length for own in runs.values() for right in own for length in right})
    shortcuts = [100 * shortcut.accuracy(length) for length in lengths]
    shown.append(series("shortcut baseline", "", [float(length) for length in lengths], shortcuts, reference=True))
    axes = (axis(x, log=True), axis("accuracy", "%"))
    return figure("accuracy", title, axes, shown, f"The shortcut baseline {shortcut.how}.")


def curves_figure(
    title: str, curves: Mapping[Trial, LossCurve], unit: str, baseline: tuple[str, float] | None = None
) -> Figure:
    """Draw the learning curve of each trial, with a baseline given by its name and its constant loss."""
    shown = [
        series(f"{_label(trial)}, seed {trial.seed}", _label(trial), curve.updates, curve.losses)
        for trial, curve in curves.items()
    ]
    if baseline is not None:
        name, loss = baseline
        ends = [0.0, float(max((curve.updates[-1] for curve in curves.values()), default=1))]
        shown.append(series(name, "", ends, [loss, loss], reference=True))
    return figure("losses", title, (axis("updates"), axis("loss", unit, log=True)), shown)


def _label(trial: Trial) -> str:
    return " ".join(filter(None, [trial.model, trial.part.replace("-", " ")]))
