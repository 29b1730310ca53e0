"""Small models learn pieces, and their answers are counted in two ways."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from s2s.data.batches import collate
from s2s.data.exercises import Dyck, Examples, Recall, joined
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.decoding.beam import Beam, search
from s2s.errors import UserError
from s2s.experiments.long_range import learning
from s2s.experiments.long_range.learning import Budget, answers, encoded, learn
from s2s.experiments.matching import settings_of
from s2s.models.contract import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DeviceSettings
from s2s.tasks.translation.recipe import BatchSettings
from s2s.tasks.translation.task import mean_loss
from s2s.training.devices import choose
from s2s.training.trainer import Trainer

COMPUTER = choose(DeviceSettings(kind="cpu", precision="fp32"))
OPTIONS = {
    "heads": 2,
    "feedforward": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dropout": 0.0,
    "bidirectional": False,
}
BUDGET = Budget(updates=40, rows=32, batches=2, every=10, trial=20, rates=(0.02,), warmup=5)


def _builder(kind, pieces, seed=0, width=16):
    def build() -> Seq2Seq:
        torch.manual_seed(seed)
        return module_of(kind).build(settings_of(kind, OPTIONS | {"width": width}), pieces, pieces)

    return build


def _brackets(count=200, seed=1, split="train"):
    return joined([Dyck().examples(depth, count, seed, split) for depth in (1, 2, 3)])


def _learn(kind="gru", **changes):
    budget = Budget(**(vars(BUDGET) | changes))
    return learn(_builder(kind, Dyck.pieces), _brackets(), _brackets(20, 1, "held-out"), budget, 1, COMPUTER)


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
    return _learn(updates=50, trial=50).model


def test_counted_answers_are_those_of_greedy_search(halfway):
    asked = _brackets(40, 9)
    found = answers(halfway, asked, COMPUTER)
    assert 0.2 < found.accuracy < 0.95
    for source, target, right in zip(asked.sources, asked.targets, found.right, strict=True):
        batch = collate([source], [target], [0])
        limits = np.array([len(target) + 3])
        ((best,),) = search(halfway, batch.source, batch.source_valid, limits, Beam(size=1))
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
    wide = torch.nn.Linear(16, Dyck.pieces)
    with torch.no_grad():
        wide.weight.copy_(model.projection.weight)
        wide.bias.zero_()
        wide.bias[[PAD, BOS]] = 100.0
    model.projection = wide
    assert answers(model, asked, COMPUTER).right.tolist() == answers(halfway, asked, COMPUTER).right.tolist()


def test_a_rival_decides_alone_where_there_is_one(halfway):
    asked = _brackets(30, 4)
    last = [
        (len(target) - 1, Dyck.pieces - 1 if target[-1] != Dyck.pieces - 1 else BOS + 3) for target in asked.targets
    ]
    found = answers(halfway, Examples(asked.sources, asked.targets, last), COMPUTER)
    for i, (place, rival) in enumerate(last):
        batch = collate([asked.sources[i]], [asked.targets[i]], [i])
        with torch.no_grad():
            scores = halfway.logits(batch.source, batch.source_valid, batch.target_in)[0, place]
        assert found.right[i] == bool(scores[asked.targets[i][place]] > scores[rival])
    assert 0 < found.accuracy < 1


def test_examples_become_what_the_trainer_reads():
    asked = _brackets(5)
    data = encoded(asked)
    assert [data.pair(i) for i in range(len(data))] == list(zip(asked.sources, asked.targets, strict=True))
    assert data.source_lengths.tolist() == [len(row) + 1 for row in asked.sources]


def test_an_easy_task_is_learned_and_training_stops_there():
    train, held = Recall().examples(2, 1500, 1), Recall().examples(2, 60, 1, "held-out")
    budget = Budget(updates=600, rows=64, batches=1, every=20, trial=600, rates=(0.02,), warmup=10)
    learned = learn(_builder("gru", Recall.pieces, width=32), train, held, budget, 1, COMPUTER)
    assert learned.solved == learned.updates < 600
    assert learned.solved % 20 == 0
    assert answers(learned.model, Recall().examples(2, 300, 1, "test"), COMPUTER).accuracy > 0.97


def test_two_trainings_of_one_seed_are_the_same():
    first, second = _learn(), _learn()
    assert first.losses == second.losses
    assert first.loss == second.loss
    weights = first.model.state_dict()
    assert all(torch.equal(weights[name], p) for name, p in second.model.state_dict().items())


def test_the_better_rate_goes_on_and_the_other_stops():
    learned = _learn(rates=(1e-9, 0.02, 1e-8))
    assert learned.rate == 0.02
    assert list(learned.losses) == [1e-9, 0.02, 1e-8]
    assert learned.losses[0.02] < min(learned.losses[1e-9], learned.losses[1e-8])
    assert learned.updates == BUDGET.updates
    assert learned.trial_seconds > 0
    alone = _learn()
    assert learned.loss == alone.loss
    assert learned.losses[0.02] == alone.losses[0.02] > learned.loss


def test_all_stop_when_the_first_has_solved_the_task(counted):
    def one_answer(count):
        return Examples([[4]] * count, [[5]] * count)

    budget = Budget(updates=200, rows=8, batches=1, every=1, trial=200, rates=(0.001, 0.05), warmup=0)
    learned = learn(_builder("gru", 8), one_answer(64), one_answer(4), budget, 1, COMPUTER)
    assert learned.rate == 0.05
    assert learned.solved is not None
    assert learned.updates == learned.solved < 100
    assert len(counted) == 2 * learned.solved


def test_a_rate_at_which_training_fails_is_passed_over():
    learned = _learn(rates=(1e38, 0.02))
    assert learned.losses[1e38] is None
    assert learned.losses[0.02] == _learn().losses[0.02]
    assert learned.updates == BUDGET.updates
    assert learned.rate == 0.02


def test_a_model_that_fails_at_every_rate_says_so():
    with pytest.raises(UserError, match=r"every rate of 1e\+38"):
        _learn(rates=(1e38,))


def test_an_update_has_about_as_many_examples_as_the_budget_says(counted):
    _learn(rows=48, updates=30, trial=30)
    mean_length = encoded(_brackets()).target_lengths.mean()
    assert np.mean(counted) / mean_length == pytest.approx(48, rel=0.3)


def test_answers_that_are_no_longer_finite_are_a_failure(monkeypatch):
    def broken(model, examples, computer):
        return dataclasses.replace(answers(model, examples, computer), loss=float("nan"))

    monkeypatch.setattr(learning, "answers", broken)
    with pytest.raises(UserError, match="no longer finite"):
        _learn()


def test_the_end_must_be_written_too():
    silent = _builder("gru", Dyck.pieces)().eval()
    with torch.no_grad():
        silent.projection.weight.zero_()
        silent.projection.weight[EOS] = 0
    asked = Examples([[4, 5]], [[6]])
    assert not answers(silent, asked, COMPUTER).right.any()
