"""State tracking: recurrent networks track automata at any length, Transformers do not (Delétang et al. 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduce.training import (
    AccuracyByLength,
    Budget,
    TextClassifier,
    accuracy,
    accuracy_figure,
    encoder_of,
    heldout_generator,
    random_lengths,
    target_cross_entropy,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.exercises import Cheat
from s2s.data.synthetic_tasks import NO_LABEL
from s2s.data.synthetic_tasks import StateTracking as Automaton

_BUDGET = Budget(updates=1_000, rate=0.003, every=50, warmup=50, decay=0.3)


@dataclass(frozen=True)
class StateTracking(Reproduction[AccuracyByLength]):
    """Parity and the word problem of S₃, trained to 40 symbols and tested to 500."""

    name = "state-tracking"
    finding = "RNNs and LSTMs track the state of an automaton beyond the training lengths; Transformers do not."
    source = (
        "Delétang et al. 2023 (Neural networks and the Chomsky hierarchy), abstract: RNNs and LSTMs solve regular "
        "tasks at longer lengths, Transformers fail on them; accuracies per task are not verified. Merrill et al. 2024 "
        "(The illusion of state): linear recurrences such as minGRU's cannot track S₃ at any length (not verified)"
    )
    method = (
        "Random symbols of an automaton; a linear head predicts its state after each symbol. Parity of ones and "
        "products of permutations of three elements (S₃), 1 to 40 symbols in training. Two layers of width 64, Adam at "
        "0.003, 1,000 updates of 64 fresh strings. Measured: accuracy of the last 10 states of 500, in 128 strings "
        "(publication: one answer at the end, trained to 40, tested to 500). Sizes were chosen in a pilot run of one "
        "seed per model."
    )
    bands = (
        Band(key="rnn-parity", what="accuracy of the tanh-RNN, parity at 500 (%)", published="100", low=99.0),
        Band(key="lstm-parity", what="accuracy of the LSTM, parity at 500 (%)", published="100", low=99.0),
        Band(
            key="transformer-parity",
            what="accuracy of the Transformer, parity at 500 (%)",
            published="about 50 (chance)",
            high=60.0,
        ),
        Band(
            key="mingru-parity",
            what="accuracy of minGRU, parity at 500 (%)",
            published="50 (chance; derived)",
            high=60.0,
        ),
        Band(key="lstm-s3", what="accuracy of the LSTM, S₃ at 500 (%)", published="100", low=95.0),
        Band(
            key="transformer-s3",
            what="accuracy of the Transformer, S₃ at 500 (%)",
            published="about 17 (chance)",
            high=30.0,
        ),
    )
    seconds = (150, 600)

    cases: tuple[tuple[str, str], ...] = (
        ("rnn", "parity"),
        ("lstm", "parity"),
        ("mingru", "parity"),
        ("transformer", "parity"),
        ("lstm", "s3"),
        ("transformer", "s3"),
    )
    width: int = 64
    longest: int = 40
    tested: tuple[int, ...] = (10, 20, 40, 100, 500)
    last: int = 10
    rows: int = 64
    texts: int = 128
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(kind, automaton, seed) for seed in seeds for kind, automaton in self.cases]

    def measure(self, trial: Trial) -> AccuracyByLength:
        """Train a model and test it at every length."""
        seed, task = trial.seed or 0, Automaton(trial.part, range(1, self.longest + 1), self.tested)
        options = {"width": self.width, "feedforward": 2 * self.width, "encoder_layers": 2}
        model = TextClassifier(*encoder_of(trial.model, task.vocabulary_size, seed, options), task.classes)
        curve = train(model, random_lengths(task, self.longest, self.rows), target_cross_entropy, self.budget, seed)
        return AccuracyByLength(curve, {n: accuracy(model, self.test(task, n, seed)) for n in self.tested})

    def test(self, task: Automaton, length: int, seed: int) -> tuple[Tensor, Tensor]:
        """Draw test strings of one length, with the last states as targets."""
        batch = task.draw(length, self.texts, heldout_generator(seed))
        targets = batch.wanted.clone()
        targets[:, : -self.last] = NO_LABEL
        return batch.source, targets

    def numbers(self, measured: Mapping[Trial, AccuracyByLength]) -> Numbers:
        return {
            f"{kind}-{automaton}": by_seed(measured, lambda m: m.right[self.tested[-1]], kind, automaton)
            for kind, automaton in self.cases
        }

    def figures(self, measured: Mapping[Trial, AccuracyByLength]) -> list[Figure]:
        parity = {trial: run for trial, run in measured.items() if trial.part == "parity"}
        title = f"Accuracy of the state, parity; trained up to {self.longest} symbols"
        task = Automaton("parity", range(1, self.longest + 1), self.tested)
        return [accuracy_figure(title, parity, Cheat(task.shortcut, task.shortcut_accuracy), "symbols")]
