"""Subject-verb agreement in translation, over longer distances than in training (Tang et al. 2018)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import sub

import torch

from s2s.comparison.matching import match_translator
from s2s.comparison.questions.long_range.learning import ExerciseBudget, TrainingTask, answers
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, paired
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.comparison.task_training import train_at_best
from s2s.data.exercises import CHEATS, concatenate, unseen
from s2s.data.exercises import Agreement as Sentences
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
_BUDGET = ExerciseBudget(updates=2_400, rows=64, batches=4, every=50, trial=200, warmup=50)


@dataclass(frozen=True)
class Verbs:
    """Accuracy of one model."""

    distances: list[int]  # words between subject and verb
    right: list[float]  # accuracy at each distance, in percent
    learned: float  # accuracy at the longest trained distance
    longest: float  # accuracy at the longest tested distance
    rate: float
    updates: int


@dataclass(frozen=True)
class Agreement(Reproduction[Verbs]):
    """A recurrent translator with attention and a Transformer, on verbs far from their subjects."""

    name = "agreement"
    finding = "A Transformer is no better than an RNN with attention at subject-verb agreement over long distances."
    source = (
        "Tang, Müller, Rios & Sennrich 2018, abstract: self-attentional networks do not outperform recurrent ones in "
        "modelling subject-verb agreement over long distances (another corpus, other sizes; distances lie within "
        "the trained range)"
    )
    method = (
        "Sentences of the built-in corpus with up to two relative clauses between subject and verb (0, 4 and 8 words), "
        "English to German, about 60,000 parameters, up to 2,400 updates at the better of two rates, or until 99 % of "
        "the answers are right. Tested with 16 and 32 words between subject and verb: the right form of the verb must "
        "be more probable than that of the other number."
    )
    setting = "beyond the trained distances"
    bands = (
        Band(
            key="learned",
            what="accuracy of lstm-attention at 8 words (%)",
            published="high",
            low=90.0,
            validity=True,
        ),
        Band(
            key="gap",
            what="accuracy at 32 words, four times the longest trained, lstm-attention minus transformer (points)",
            published="not below 0",
            low=-5.0,
            valid_if=("learned",),
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
    budget: ExerciseBudget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(kind, seed=seed) for seed in seeds for kind in ("lstm-attention", "transformer")]

    def measure(self, trial: Trial) -> Verbs:
        """Train a model and test it at every distance."""
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
        at_end = right[len(self.trained) - 1]
        return Verbs(list(distances), right, at_end, right[-1], learned.rate, learned.trainer.update)

    def numbers(self, measured: Mapping[Trial, Verbs]) -> Numbers:
        recurrent, attention = (
            by_seed(measured, lambda m: m.longest, kind) for kind in ("lstm-attention", "transformer")
        )
        learned = by_seed(measured, lambda m: m.learned, "lstm-attention")
        return {"learned": learned, "gap": paired(recurrent, attention, sub)}

    def figures(self, measured: Mapping[Trial, Verbs]) -> list[Figure]:
        shown = [
            series(f"{trial.model}, seed {trial.seed}", trial.model, [float(d) for d in run.distances], run.right)
            for trial, run in measured.items()
        ]
        cheat, distances = CHEATS[Sentences.name], self.trained + self.longer
        shortcuts = [100 * cheat.accuracy(distance) for distance in distances]
        shown.append(series("shortcut baseline", "", [float(d) for d in distances], shortcuts, reference=True))
        axes = (axis("words between subject and verb"), axis("accuracy", "%"))
        title = f"Accuracy of verb forms; trained up to {self.trained[-1]} words"
        return [figure("agreement", title, axes, shown, f"The shortcut baseline {cheat.how}.")]


@cache
def _sentences() -> Sentences:
    # the tokenizer is trained when the exercise is made
    return Sentences()
