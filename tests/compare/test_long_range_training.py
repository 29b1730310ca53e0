"""Training of small models on exercises, their answers, and the search for a learning rate."""

import copy
import dataclasses
import math
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch

from s2s.comparison.matching import settings_of
from s2s.comparison.questions.long_range import learning
from s2s.comparison.questions.long_range.learning import ExerciseBudget, ExerciseRun, TrainingTask, answers, encoded
from s2s.comparison.questions.long_range.linear_head import with_linear_head
from s2s.comparison.task_training import Run, Validation, search, train_at_best
from s2s.comparison.tuning_search import RATES
from s2s.data.batches import collate
from s2s.data.exercises import FIRST, Associative, Examples, Recall, concatenate
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.decoding import beam_search
from s2s.errors import UserError
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DeviceSettings
from s2s.tasks.seq2seq import mean_loss
from s2s.tasks.translation.recipe import BatchSettings
from s2s.training.device import select_device
from s2s.training.trainer import Trainer

COMPUTER = select_device(DeviceSettings(kind="cpu", precision="fp32"))
OPTIONS = {
    "heads": 2,
    "feedforward": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dropout": 0.0,
    "bidirectional": False,
}
BUDGET = ExerciseBudget(updates=40, rows=32, batches=2, every=10, trial=20, warmup=5)
KINDS = 3
PIECES = FIRST + 2 * KINDS


def _builder(kind, pieces, seed=0, width=16):
    def build() -> Seq2Seq:
        torch.manual_seed(seed)
        return module_of(kind).build(settings_of(kind, OPTIONS | {"width": width}), pieces, pieces)

    return build


def _brackets(count=200, seed=1, split="train"):
    """Brackets to be closed, inmost first; one, two or three."""
    chance = np.random.default_rng([seed, len(split)])
    opened = [FIRST + chance.integers(KINDS, size=(count, depth)) for depth in (1, 2, 3)]
    return concatenate([Examples(each.tolist(), (KINDS + each[:, ::-1]).tolist()) for each in opened])


def _training_task(kind="gru", **changes):
    budget = dataclasses.replace(BUDGET, **changes)
    return TrainingTask(_builder(kind, PIECES), _brackets(), _brackets(20, 1, "held-out"), budget, 1, COMPUTER)


def _learn(rates=(0.02,), **changes):
    return train_at_best(_training_task(**changes).start, rates)


@pytest.fixture
def counted(monkeypatch):
    """Target tokens of every update."""
    tokens = []
    real = Trainer.updates

    def counting(self, until):
        for update in real(self, until):
            tokens.append(update.tokens)
            yield update

    monkeypatch.setattr(Trainer, "updates", counting)
    return tokens


@pytest.fixture(scope="module")
def halfway():
    """A model that knows some of the answers."""
    return _learn(updates=50, trial=50).trainer.model


def test_answers_equal_greedy_search(halfway):
    asked = _brackets(40, 9)
    found = answers(halfway, asked, COMPUTER)
    assert 0.2 < found.accuracy < 0.95
    for source, target, right in zip(asked.sources, asked.targets, found.right, strict=True):
        batch = collate([source], [target], [0])
        limits = np.array([len(target) + 3])
        ((best,),) = beam_search.search(halfway, batch.source, batch.source_valid, limits, beam_search.Beam(size=1))
        assert (list(best.tokens) == target) == right


def test_answers_loss_is_the_trainers(halfway):
    asked = _brackets(30, 4)
    data = encoded(asked)
    found = answers(halfway, asked, COMPUTER)
    # the trainer's includes tokens that no search writes
    assert found.loss == pytest.approx(mean_loss(halfway, data, BatchSettings(tokens=64), COMPUTER), rel=0.01)


def test_answers_exclude_tokens_that_no_search_writes(halfway):
    asked = _brackets(30, 4)
    model = copy.deepcopy(halfway)
    wide = torch.nn.Linear(16, PIECES)
    with torch.no_grad():
        wide.weight.copy_(model.projection.weight)
        wide.bias.zero_()
        wide.bias[[PAD, BOS]] = 100.0
    model.projection = wide
    assert answers(model, asked, COMPUTER).right.tolist() == answers(halfway, asked, COMPUTER).right.tolist()


def test_answers_with_a_rival_compare_two_tokens(halfway):
    asked = _brackets(30, 4)
    last = [(len(target) - 1, PIECES - 1 if target[-1] != PIECES - 1 else BOS + 3) for target in asked.targets]
    found = answers(halfway, Examples(asked.sources, asked.targets, last), COMPUTER)
    for i, (place, rival) in enumerate(last):
        batch = collate([asked.sources[i]], [asked.targets[i]], [i])
        with torch.no_grad():
            scores = halfway.logits(batch.source, batch.source_valid, batch.target_in)[0, place]
        assert found.right[i] == bool(scores[asked.targets[i][place]] > scores[rival])
    assert 0 < found.accuracy < 1


def test_train_at_best_stops_at_the_solution():
    train, held = Recall().examples(2, 1500, 1), Recall().examples(2, 60, 1, "held-out")
    budget = ExerciseBudget(updates=600, rows=64, batches=1, every=20, trial=600, warmup=10)
    task = TrainingTask(_builder("gru", Recall.vocabulary_size, width=32), train, held, budget, 1, COMPUTER)
    learned = train_at_best(task.start, (0.02,))
    assert learned.solved == learned.trainer.update == learned.looks[-1][0] < 600
    assert learned.solved % 20 == 0
    assert learned.score(1.0) < 0
    assert answers(learned.trainer.model, Recall().examples(2, 300, 1, "test"), COMPUTER).accuracy > 0.97


def test_run_is_reproducible_and_can_be_paused():
    first, second = _learn(), ExerciseRun(_training_task(), 0.02)
    second.continue_until(10)
    second.continue_until(40)
    assert first.looks == second.looks
    weights = first.trainer.model.state_dict()
    assert all(torch.equal(weights[name], p) for name, p in second.trainer.model.state_dict().items())


def test_train_at_best_continues_the_better_rate_only(counted):
    learned = _learn(rates=(1e-9, 0.02, 1e-8))
    assert learned.rate == 0.02
    assert learned.trainer.update == BUDGET.updates
    assert len(counted) == BUDGET.updates + 2 * BUDGET.trial
    assert learned.looks == _learn().looks


def _one_answer(count):
    return Examples([[4]] * count, [[5]] * count)


def _easy(**changes):
    budget = ExerciseBudget(updates=200, rows=8, batches=1, every=1, trial=200, warmup=0, **changes)
    return TrainingTask(_builder("gru", 8), _one_answer(64), _one_answer(4), budget, 1, COMPUTER)


def test_train_at_best_stops_all_rates_at_the_first_solution(counted):
    learned = train_at_best(_easy().start, (0.001, 0.05))
    assert learned.rate == 0.05
    assert learned.trainer.update == learned.solved < 100
    assert len(counted) == 2 * learned.solved


def test_train_at_best_skips_a_rate_that_fails():
    learned = _learn(rates=(1e38, 0.02))
    assert learned.rate == 0.02
    assert learned.looks == _learn().looks


def test_train_at_best_reports_failure_at_every_rate():
    with pytest.raises(UserError, match=r"every rate of 1e\+38"):
        _learn(rates=(1e38,))


class _Planted(ExerciseRun):
    """A training with a planted course: by rate, when it solves the task, and its loss and accuracy before."""

    courses: ClassVar[dict] = {}
    lost = False

    def __init__(self, training_task, rate):
        Run.__init__(self, rate, training_task.budget, len(training_task.held_out))
        self.trainer = SimpleNamespace(update=0)

    def continue_until(self, until):
        solved, loss, right = self.courses[self.rate]
        while self.trainer.update < until and self.solved is None:
            self.trainer.update += self.budget.every
            self.solved = self.trainer.update if self.trainer.update == solved else None
            self.looks.append(Validation(self.trainer.update, loss, 100.0 if self.solved else right))


def _searched(monkeypatch, courses, settle=0):
    monkeypatch.setattr(_Planted, "courses", courses)
    task = _training_task(updates=100, trial=60, settle=settle)
    return search(lambda rate: _Planted(task, rate), cheating=0.3)


def test_search_prefers_the_first_solution_to_the_lowest_loss(monkeypatch):
    planted = {0.001: (None, 0.1, 90), 0.002: (None, 0.5, 80), 0.004: (40, 0.9, 80), 0.008: (None, 1.0, 90)}
    found = _searched(monkeypatch, planted)
    assert (found.best, found.other, found.inside) == (0.004, 0.001, True)
    # all stop at the first solution
    assert [tried.updates for tried in found.tried.values()] == [40] * 4


def test_search_extends_the_grid_no_longer_than_the_best_took(monkeypatch):
    planted = dict.fromkeys((0.002, 0.004, 0.008), (None, 1.0, 90.0))
    found = _searched(monkeypatch, planted | {0.001: (50, 1.0, 90), 0.0005: (30, 1.0, 90), 0.00025: (40, 1.0, 90)})
    assert (found.best, found.inside) == (0.0005, True)
    assert found.tried[0.0005].solved == found.tried[0.00025].updates == 30


@pytest.mark.parametrize(("tied", "best"), [((0.002, 0.004, 0.008), 0.004), ((0.004, 0.008), 0.004), ((0.002,), 0.002)])
def test_search_takes_the_middle_of_tied_rates(monkeypatch, tied, best):
    planted = {rate: (20, 0.1 / rate, 90) if rate in tied else (None, 1.0, 90.0) for rate in RATES}
    found = _searched(monkeypatch, planted)
    assert (found.best, found.inside) == (best, True)
    assert found.other == min(set(tied) - {best} or set(RATES) - {best})
    # sooner comes before the middle
    found = _searched(monkeypatch, planted | {0.008: (10, 9.0, 90), 0.016: (20, 0.1, 90)})
    assert (found.best, found.inside) == (0.008, True)


def test_search_ignores_a_solution_that_is_lost_again(monkeypatch):
    def settle(run, updates):
        """The highest rates lose what they had."""
        assert updates == 5
        run.lost = run.rate > 0.004
        run.looks.append(Validation(run.trainer.update, 9.0 if run.lost else 0.2, 40.0 if run.lost else 100.0))

    monkeypatch.setattr(_Planted, "settle", settle)
    planted = {0.001: (None, 0.9, 90), 0.002: (40, 0.5, 90), 0.004: (30, 0.1, 90), 0.008: (10, 0.1, 90)}
    found = _searched(monkeypatch, planted, settle=5)
    # all go on until one keeps the solution
    assert (found.best, found.other, found.inside) == (0.004, 0.002, True)
    assert [tried.solved for tried in found.tried.values()] == [None, None, 30, None]


def test_run_settles_after_the_solution(counted):
    at_once, settled, unsolved = (ExerciseRun(_easy(), rate) for rate in (0.01, 0.01, 1e-9))
    for run in (at_once, settled, unsolved):
        run.continue_until(run.training_task.budget.updates)
    settled.settle(10)
    assert settled.solved == at_once.solved == at_once.trainer.update
    assert settled.trainer.update == settled.solved + 10
    assert settled.looks[: len(at_once.looks)] == at_once.looks
    assert settled.loss < at_once.loss
    before = unsolved.trainer.update
    unsolved.settle(10)
    assert (unsolved.solved, unsolved.trainer.update) == (None, before)


def test_search_censors_rates_at_chance(monkeypatch):
    planted = {0.001: (None, 0.1, 30), 0.002: (None, 0.9, 60), 0.004: (None, 0.5, 60), 0.008: (None, 1.0, 60)}
    found = _searched(monkeypatch, planted)
    assert (found.best, found.other) == (0.004, 0.002)
    assert [tried.left_chance for tried in found.tried.values()] == [False, True, True, True]


def test_search_prolongs_trials_while_all_are_at_chance(monkeypatch):
    planted = dict.fromkeys((0.001, 0.002, 0.008), (None, 1.0, 30.0)) | {0.004: (80, 1.0, 30.0)}
    found = _searched(monkeypatch, planted)
    assert (found.best, found.inside) == (0.004, True)
    assert [tried.updates for tried in found.tried.values()] == [80] * 4


def test_search_falls_back_to_the_loss_if_no_rate_leaves_chance(monkeypatch):
    grid = [RATES[0] / 4, RATES[0] / 2, *RATES]
    planted = {rate: (None, 1 + abs(math.log2(rate / grid[1])), 30.0) for rate in grid}
    found = _searched(monkeypatch, planted)
    assert (found.best, found.inside) == (grid[1], True)
    assert list(found.tried) == grid
    # each was tried as long as a training, and no other rate is worth one
    assert {tried.updates for tried in found.tried.values()} == {100}
    assert found.other is None


def test_run_fails_when_the_loss_is_not_finite(monkeypatch):
    def broken(model, examples, device_context):
        return dataclasses.replace(answers(model, examples, device_context), loss=float("nan"))

    monkeypatch.setattr(learning, "answers", broken)
    with pytest.raises(UserError, match="the validation loss is not finite"):
        _learn()


def test_answers_require_the_end():
    silent = _builder("gru", PIECES)().eval()
    with torch.no_grad():
        silent.projection.weight.zero_()
        silent.projection.weight[EOS] = 0
    asked = Examples([[4, 5]], [[6]])
    assert not answers(silent, asked, COMPUTER).right.any()


@pytest.mark.parametrize("kind", ["lstm", "transformer", "conv"])
def test_linear_head_reads_the_query_states(kind):
    found = concatenate([Associative().examples(distance, 6, 1) for distance in (1, 5)])
    model = _builder(kind, Associative.vocabulary_size)()
    whole = with_linear_head(model, Associative.asking, Associative.vocabulary_size).eval()
    data = encoded(found)
    batch = collate(*data.rows(np.arange(len(data))), np.arange(len(data)))
    with torch.no_grad():
        said = whole.logits(batch.source, batch.source_valid, batch.target_in)
        for row, (source, logits) in enumerate(zip(found.sources, said, strict=True)):
            alone = torch.tensor([[*source, EOS]])
            states = model.encoder(alone, torch.ones_like(alone, dtype=torch.bool)).states[0]
            # the two keys that ask stand before the end
            assert torch.allclose(logits[:2], states[-3:-1] @ whole.projection.weight.T, atol=1e-5), row
            assert torch.allclose(logits[2], whole.decoder.end @ whole.projection.weight.T)
        context, state = whole.decoder.start(whole.encoder(batch.source, batch.source_valid), 3)
        steps = []
        for token in batch.target_in.split(1, dim=1):
            output, state = whole.decoder(context, state, token)
            steps.append(whole.projection(output))
    assert torch.allclose(torch.cat(steps, dim=1), said, atol=1e-5)
