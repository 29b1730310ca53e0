"""Short trainings of deep Transformers with pre-norm and post-norm, with and without learning-rate warm-up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from s2s.comparison.runs import prepared
from s2s.comparison.spec import Trial
from s2s.comparison.translation import built_in, sizes_of, trainer_for, unigram_loss
from s2s.tasks.seq2seq import mean_loss
from s2s.tasks.translation.recipe import BatchSettings, Recipe
from s2s.training.device import select_device


@dataclass(frozen=True)
class DeepTraining:
    """Measurement of one training."""

    updates: list[int]  # number of updates at each validation
    losses: list[float]  # validation losses in nats per token
    loss: float  # the last of them
    unigrams: float  # loss of the unigram distribution


@dataclass(frozen=True)
class DeepTrainings:
    """Sizes of the trainings."""

    updates: int = 600
    warmup: int = 200
    layers: int = 6
    width: int = 64
    pairs: int = 20_000
    tokens: int = 512
    every: int = 60

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """Return the trials of both kinds of normalization, with and without warm-up."""
        parts = [f"{norm}-warmup-{warmup}" for norm in ("post", "pre") for warmup in (0, self.warmup)]
        return [Trial("transformer", part, seed) for seed in seeds for part in parts]

    def measure(self, trial: Trial) -> DeepTraining:
        """Train one model."""
        norm, _, warmup = trial.part.partition("-warmup-")
        recipe = self.recipe(norm, int(warmup))
        data, device_context = prepared(recipe), select_device(recipe.device)
        trainer = trainer_for(recipe, sizes_of(data), data.train, trial.seed or 0, device_context)
        updates, losses = [], []
        for until in range(self.every, self.updates + self.every, self.every):
            for _ in trainer.updates(min(until, self.updates)):
                pass
            updates.append(trainer.update)
            losses.append(mean_loss(trainer.model, data.validation, recipe.batches, device_context))
        unigrams = unigram_loss(data.train, data.validation, sizes_of(data)[1])
        return DeepTraining(updates, losses, losses[-1], unigrams)

    def recipe(self, norm: str, warmup: int) -> Recipe[Any]:
        """Return the recipe of one training."""
        constant = {"learning_rate": 0.001, "betas": (0.9, 0.98), "schedule": "constant", "ema": None, "clip": 100.0}
        return built_in(
            {"norm": norm, "width": self.width, "encoder_layers": self.layers, "decoder_layers": self.layers},
            {"train": self.pairs, "validation": 100, "test": None},
            {"updates": self.updates, "warmup": warmup, **constant},
            BatchSettings(tokens=self.tokens, max_length=128),
        )
