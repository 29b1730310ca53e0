"""Small models learn pieces, their answers are counted in two ways, and a rate is chosen by who solves a task first."""

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
from s2s.comparison.questions.long_range.head import headed
from s2s.comparison.questions.long_range.learning import Budget, Run, TrainingTask, answers, encoded, learn, search
from s2s.comparison.tuning_search import RATES
from s2s.data.batches import collate
from s2s.data.exercises import FIRST, Associative, Examples, Recall, concatenate
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.decoding import beam_search
from s2s.errors import UserError
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DeviceSettings
from s2s.tasks.translation.recipe import BatchSettings
from s2s.tasks.translation.task import mean_loss
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
BUDGET = Budget(updates=40, rows=32, batches=2, every=10, trial=20, rates=(0.02,), warmup=5)
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


def _learn(kind="gru", **changes):
    return learn(_training_task(kind, **changes))


@pytest.fixture
def counted(monkeypatch):
    """Target pieces of every update made."""
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
    """A model that knows some answers and not others."""
    return _learn(updates=50, trial=50).trainer.model


def test_counted_answers_are_those_of_greedy_search(halfway):
    asked = _brackets(40, 9)
    found = answers(halfway, asked, COMPUTER)
    assert 0.2 < found.accuracy < 0.95
    for source, target, right in zip(asked.sources, asked.targets, found.right, strict=True):
        batch = collate([source], [target], [0])
        limits = np.array([len(target) + 3])
        ((best,),) = beam_search.search(halfway, batch.source, batch.source_valid, limits, beam_search.Beam(size=1))
        assert (list(best.tokens) == target) == right


def test_the_loss_is_the_trainers_and_pieces_are_counted_with_the_end(halfway):
    asked = _brackets(30, 4)
    data = encoded(asked)
    found = answers(halfway, asked, COMPUTER)
    # the one leaves out what no search writes
    assert found.loss == pytest.approx(mean_loss(halfway, data, BatchSettings(tokens=64), COMPUTER), rel=0.01)
    batch = collate(*data.rows(np.arange(len(data))), np.arange(len(data)))
    with torch.no_grad():
        said = halfway.logits(batch.source, batch.source_valid, batch.target_in).argmax(dim=2)
    hits = (said == batch.target_out)[batch.target_valid]
    assert found.pieces == pytest.approx(float(hits.float().mean()))


def test_what_no_search_writes_is_no_answer(halfway):
    asked = _brackets(30, 4)
    model = copy.deepcopy(halfway)
    wide = torch.nn.Linear(16, PIECES)
    with torch.no_grad():
        wide.weight.copy_(model.projection.weight)
        wide.bias.zero_()
        wide.bias[[PAD, BOS]] = 100.0
    model.projection = wide
    assert answers(model, asked, COMPUTER).right.tolist() == answers(halfway, asked, COMPUTER).right.tolist()


def test_a_rival_decides_alone_where_there_is_one(halfway):
    asked = _brackets(30, 4)
    last = [(len(target) - 1, PIECES - 1 if target[-1] != PIECES - 1 else BOS + 3) for target in asked.targets]
    found = answers(halfway, Examples(asked.sources, asked.targets, last), COMPUTER)
    for i, (place, rival) in enumerate(last):
        batch = collate([asked.sources[i]], [asked.targets[i]], [i])
        with torch.no_grad():
            scores = halfway.logits(batch.source, batch.source_valid, batch.target_in)[0, place]
        assert found.right[i] == bool(scores[asked.targets[i][place]] > scores[rival])
    assert 0 < found.accuracy < 1


def test_an_easy_task_is_learned_and_training_stops_there():
    train, held = Recall().examples(2, 1500, 1), Recall().examples(2, 60, 1, "held-out")
    budget = Budget(updates=600, rows=64, batches=1, every=20, trial=600, rates=(0.02,), warmup=10)
    learned = learn(TrainingTask(_builder("gru", Recall.vocabulary_size, width=32), train, held, budget, 1, COMPUTER))
    assert learned.solved == learned.trainer.update == learned.looks[-1][0] < 600
    assert learned.solved % 20 == 0
    assert learned.score(1.0) < 0
    assert answers(learned.trainer.model, Recall().examples(2, 300, 1, "test"), COMPUTER).accuracy > 0.97


def test_two_trainings_of_one_seed_are_the_same_and_a_pause_changes_nothing():
    first, second = _learn(), Run(_training_task(), 0.02)
    second.continue_until(10)
    second.continue_until(40)
    assert first.looks == second.looks
    weights = first.trainer.model.state_dict()
    assert all(torch.equal(weights[name], p) for name, p in second.trainer.model.state_dict().items())


def test_the_better_rate_goes_on_and_the_other_stops(counted):
    learned = _learn(rates=(1e-9, 0.02, 1e-8))
    assert learned.rate == 0.02
    assert learned.trainer.update == BUDGET.updates
    assert len(counted) == BUDGET.updates + 2 * BUDGET.trial
    assert learned.looks == _learn().looks


def _one_answer(count):
    return Examples([[4]] * count, [[5]] * count)


def _easy(**changes):
    budget = Budget(updates=200, rows=8, batches=1, every=1, trial=200, warmup=0, **changes)
    return TrainingTask(_builder("gru", 8), _one_answer(64), _one_answer(4), budget, 1, COMPUTER)


def test_all_stop_when_the_first_has_solved_the_task(counted):
    learned = learn(_easy(rates=(0.001, 0.05)))
    assert learned.rate == 0.05
    assert learned.trainer.update == learned.solved < 100
    assert len(counted) == 2 * learned.solved


def test_a_rate_at_which_training_fails_is_passed_over():
    learned = _learn(rates=(1e38, 0.02))
    assert learned.rate == 0.02
    assert learned.looks == _learn().looks


def test_a_model_that_fails_at_every_rate_says_so():
    with pytest.raises(UserError, match=r"every rate of 1e\+38"):
        _learn(rates=(1e38,))


class _Told(Run):
    """A training whose course is told: by rate, when it solves the task, and its loss and share right before."""

    courses: ClassVar[dict] = {}
    lost = False

    def __init__(self, training_task, rate):
        self.training_task, self.rate, self.solved, self.looks, self.failure = training_task, rate, None, [], ""
        self.trainer = SimpleNamespace(update=0)

    def continue_until(self, until):
        solved, loss, right = self.courses[self.rate]
        while self.trainer.update < until and self.solved is None:
            self.trainer.update += self.training_task.budget.every
            self.solved = self.trainer.update if self.trainer.update == solved else None
            self.looks.append((self.trainer.update, loss, 100.0 if self.solved else right))


def _searched(monkeypatch, courses, settle=0):
    monkeypatch.setattr(learning, "Run", _Told)
    monkeypatch.setattr(_Told, "courses", courses)
    return search(_training_task(updates=100, trial=60, settle=settle), cheating=0.3)


def test_the_rate_is_that_of_who_solves_the_task_first_not_of_the_lowest_loss(monkeypatch):
    told = {0.001: (None, 0.1, 90), 0.002: (None, 0.5, 80), 0.004: (40, 0.9, 80), 0.008: (None, 1.0, 90)}
    found = _searched(monkeypatch, told)
    assert (found.best, found.other, found.inside) == (0.004, 0.001, True)
    # nobody learns on after somebody has solved it
    assert [tried["updates"] for tried in found.tried.values()] == [40] * 4


def test_the_grid_grows_while_its_best_is_at_an_end_but_no_longer_than_the_best_took(monkeypatch):
    told = dict.fromkeys((0.002, 0.004, 0.008), (None, 1.0, 90.0))
    found = _searched(monkeypatch, told | {0.001: (50, 1.0, 90), 0.0005: (30, 1.0, 90), 0.00025: (40, 1.0, 90)})
    assert (found.best, found.inside) == (0.0005, True)
    assert found.tried[0.0005]["solved"] == found.tried[0.00025]["updates"] == 30


@pytest.mark.parametrize(("tied", "best"), [((0.002, 0.004, 0.008), 0.004), ((0.004, 0.008), 0.004), ((0.002,), 0.002)])
def test_of_rates_that_solve_it_at_the_same_look_the_one_in_the_middle_is_the_best(monkeypatch, tied, best):
    told = {rate: (20, 0.1 / rate, 90) if rate in tied else (None, 1.0, 90.0) for rate in RATES}
    found = _searched(monkeypatch, told)
    assert (found.best, found.inside) == (best, True)
    assert found.other == min(set(tied) - {best} or set(RATES) - {best})
    # sooner comes before the middle
    found = _searched(monkeypatch, told | {0.008: (10, 9.0, 90), 0.016: (20, 0.1, 90)})
    assert (found.best, found.inside) == (0.008, True)


def test_a_rate_that_loses_the_task_again_has_not_solved_it(monkeypatch):
    def settle(run, updates):
        """The highest rates lose what they had."""
        assert updates == 5
        run.lost = run.rate > 0.004
        run.looks.append((run.trainer.update, 9.0 if run.lost else 0.2, 40.0 if run.lost else 100.0))

    monkeypatch.setattr(_Told, "settle", settle)
    told = {0.001: (None, 0.9, 90), 0.002: (40, 0.5, 90), 0.004: (30, 0.1, 90), 0.008: (10, 0.1, 90)}
    found = _searched(monkeypatch, told, settle=5)
    # the race goes on until somebody holds it
    assert (found.best, found.other, found.inside) == (0.004, 0.002, True)
    assert [tried["solved"] for tried in found.tried.values()] == [None, None, 30, None]


def test_who_has_solved_a_task_learns_on_for_a_while(counted):
    at_once, settled, unsolved = (Run(_easy(), rate) for rate in (0.01, 0.01, 1e-9))
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


def test_a_rate_that_has_not_left_chance_is_censored_whatever_its_loss(monkeypatch):
    told = {0.001: (None, 0.1, 30), 0.002: (None, 0.9, 60), 0.004: (None, 0.5, 60), 0.008: (None, 1.0, 60)}
    found = _searched(monkeypatch, told)
    assert (found.best, found.other) == (0.004, 0.002)
    assert [tried["left chance"] for tried in found.tried.values()] == [False, True, True, True]


def test_trials_that_are_all_at_chance_go_on(monkeypatch):
    told = dict.fromkeys((0.001, 0.002, 0.008), (None, 1.0, 30.0)) | {0.004: (80, 1.0, 30.0)}
    found = _searched(monkeypatch, told)
    assert (found.best, found.inside) == (0.004, True)
    assert [tried["updates"] for tried in found.tried.values()] == [80] * 4


def test_where_no_rate_leaves_chance_the_loss_says_where_the_grid_grows(monkeypatch):
    grid = [RATES[0] / 4, RATES[0] / 2, *RATES]
    told = {rate: (None, 1 + abs(math.log2(rate / grid[1])), 30.0) for rate in grid}
    found = _searched(monkeypatch, told)
    assert (found.best, found.inside) == (grid[1], True)
    assert list(found.tried) == grid
    # nobody left chance, so each was tried as long as a training, and no other rate is worth one
    assert {tried["updates"] for tried in found.tried.values()} == {100}
    assert found.other is None


def test_answers_that_are_no_longer_finite_are_a_failure(monkeypatch):
    def broken(model, examples, device_context):
        return dataclasses.replace(answers(model, examples, device_context), loss=float("nan"))

    monkeypatch.setattr(learning, "answers", broken)
    with pytest.raises(UserError, match="no longer finite"):
        _learn()


def test_the_end_must_be_written_too():
    silent = _builder("gru", PIECES)().eval()
    with torch.no_grad():
        silent.projection.weight.zero_()
        silent.projection.weight[EOS] = 0
    asked = Examples([[4, 5]], [[6]])
    assert not answers(silent, asked, COMPUTER).right.any()


@pytest.mark.parametrize("kind", ["lstm", "transformer", "conv"])
def test_a_linear_head_answers_from_the_states_that_ask(kind):
    found = concatenate([Associative().examples(distance, 6, 1) for distance in (1, 5)])
    model = _builder(kind, Associative.vocabulary_size)()
    whole = headed(model, Associative.asking, Associative.vocabulary_size).eval()
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
