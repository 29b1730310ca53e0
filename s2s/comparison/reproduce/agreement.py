"""Agreement of verb and subject in translation, beyond the distances learned (Tang et al. 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from s2s.comparison.matching import match_translator
from s2s.comparison.questions.long_range.learning import TrainingTask, answers
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, pairs
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Measured, Trial, Trials
from s2s.comparison.task_training import Budget, train_at_best
from s2s.data.exercises import Agreement as Sentences
from s2s.data.exercises import concatenate, unseen
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DeviceSettings
from s2s.training.device import derive_seed, select_device

_OPTIONS = {
    "encoder_layers": 2,
    "decoder_layers": 1,
    "dropout": 0.0,
    "feedforward_ratio": 2,
    "heads": 2,
    "bidirectional": True,
    "max_positions": 512,
}
_RATES = (0.002, 0.004)
_BUDGET = Budget(updates=2_400, rows=64, batches=4, every=50, trial=200, warmup=50)


@dataclass(frozen=True)
class Agreement(Reproduction):
    """A recurrent translator with attention and a Transformer, on verbs far from their subjects."""

    name = "agreement"
    finding = "Attention alone is no better than a recurrent network at making a verb agree with a distant subject."
    source = (
        "Tang, Müller, Rios & Sennrich 2018: self-attentional networks do not outperform recurrent ones in modelling "
        "subject-verb agreement over long distances (abstract; with another corpus and other sizes)"
    )
    method = (
        "Sentences of the built-in corpus with up to two relative clauses between subject and verb (0, 4 and 8 words), "
        "English to German, about 60,000 parameters, at most 2,400 updates at the better of two rates, fewer "
        "once 99 % are right; tested with 16 and 32 words between them: the right form of the verb must be likelier "
        "than the other number's. Beyond what was learned one seed says nothing: differences go from -37 to 38 points, "
        "and the same seed had -24 on another processor."
    )
    bands = (
        Band(key="learned", what="right verbs of lstm-attention at 8 words (%)", published="high", low=90.0),
        Band(
            key="gap",
            what="lstm-attention minus transformer at 32 words, four times what was learned (points)",
            published="not below 0",
            low=-5.0,
        ),
    )
    seconds = (700, 2_000)
    usual_seeds = 10

    trained: tuple[int, ...] = (0, 4, 8)
    longer: tuple[int, ...] = (16, 32)
    parameters: int = 60_000
    examples: int = 3_000
    held_out: int = 64
    tested: int = 200
    rates: tuple[float, ...] = _RATES
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """Both models."""
        return [Trial(kind, seed=seed) for seed in seeds for kind in ("lstm-attention", "transformer")]

    def measure(self, trial: Trial) -> Measured:
        """Trains one of them, and asks it at every distance."""
        seed, exercise = trial.seed or 0, _sentences()
        train = concatenate([exercise.examples(d, self.examples, seed) for d in self.trained])
        held_out = concatenate(
            [unseen(exercise.examples(d, self.held_out, seed, "held-out"), train) for d in self.trained]
        )
        settings = match_translator(trial.model, exercise.vocabulary_size, self.parameters, _OPTIONS, step=1)

        def _build() -> Seq2Seq:
            torch.manual_seed(derive_seed(seed))
            return module_of(trial.model).build(settings, exercise.vocabulary_size, exercise.vocabulary_size)

        device_context = select_device(DeviceSettings(kind="cpu", precision="fp32"))
        learned = train_at_best(
            TrainingTask(_build, train, held_out, self.budget, seed, device_context).start, self.rates
        )
        distances = self.trained + self.longer
        tests = [unseen(exercise.examples(d, self.tested, seed, "test"), train) for d in distances]
        right = [100 * answers(learned.trainer.model, test, device_context).accuracy for test in tests]
        return {
            "distances": list(distances),
            "right": right,
            "learned": right[len(self.trained) - 1],
            "longest": right[-1],
            "rate": learned.rate,
            "updates": learned.trainer.update,
        }

    def numbers(self, measured: Trials) -> Numbers:
        """Accuracy as learned, and the difference at the longest distance."""
        both = pairs(measured, "longest", ("lstm-attention", ""), ("transformer", ""))
        return {"learned": by_seed(measured, "learned", "lstm-attention"), "gap": [one - other for one, other in both]}

    def figures(self, measured: Trials) -> list[Figure]:
        """Accuracy against distance."""
        shown = [
            series(f"{trial.model}, seed {trial.seed}", trial.model, run["distances"], run["right"])
            for trial, run in measured.items()
        ]
        for run in list(measured.values())[:1]:
            places = [float(distance) for distance in run["distances"]]
            shown.append(series("guessing", "", places, [50.0] * len(places), reference=True))
        axes = (axis("words between subject and verb"), axis("right verbs", "%"))
        return [figure("agreement", f"Right verbs; learned up to {self.trained[-1]} words", axes, shown)]


@cache
def _sentences() -> Sentences:
    # its pieces are learned when it is made
    return Sentences()
