"""Training on synthetic tasks with fresh examples."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from s2s.comparison.matching import settings_of
from s2s.comparison.task_training import SOLVED, Budget, TaskModel, TaskRun, search, sum_of_losses
from s2s.data.batches import collate
from s2s.data.synthetic_tasks import FIRST, AssociativeRecall, Copying, StateTracking, SyntheticTask
from s2s.decoding import beam_search
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DeviceSettings
from s2s.training.device import select_device

COMPUTER = select_device(DeviceSettings(kind="cpu", precision="fp32"))
BUDGET = Budget(updates=40, every=10, trial=20, warmup=5)
COPYING = Copying(3, (1, 2, 3), (1, 2, 3, 6))


def _run(task: SyntheticTask = COPYING, kind: str = "gru", rate: float = 0.02, budget: Budget = BUDGET, seed: int = 1):
    shape = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0, "bidirectional": False}
    torch.manual_seed(seed)
    built = module_of(kind).build(settings_of(kind, shape), task.vocabulary_size, task.vocabulary_size)
    return TaskRun(TaskModel(built, 16, task.classes), task, rate, budget, seed, COMPUTER, held_out=16)


def test_task_run_is_reproducible_and_can_be_paused() -> None:
    first, second = _run(), _run()
    first.continue_until(40)
    torch.manual_seed(99)
    for until in (10, 30, 40):
        second.continue_until(until)
    assert first.looks == second.looks
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_task_run_copies_as_greedy_search_does() -> None:
    run = _run(kind="gru-attention", budget=Budget(150, every=50, trial=150, warmup=10))
    run.continue_until(150)
    right, _ = run.right(2, 60, torch.Generator().manual_seed(5))
    strings = COPYING.draw(2, 60, torch.Generator().manual_seed(5)).source[:, :2].tolist()
    found = []
    for string in strings:
        batch = collate([string], [string], [0])
        limits = np.array([8])
        ((best,),) = beam_search.search(
            run.model.model, batch.source, batch.source_valid, limits, beam_search.Beam(size=1)
        )
        found.append(list(best.tokens) == string)
    assert right > 0.2
    assert right == pytest.approx(np.mean(found))


def test_cross_entropy_is_the_probability_of_each_string_given_its_length() -> None:
    """Product over symbols of a string's probability, normalized over all strings of its length by enumeration."""
    run = _run(kind="gru-attention")
    run.continue_until(20)
    found = run.cross_entropy(2, 30, torch.Generator().manual_seed(7))
    source = COPYING.draw(2, 30, torch.Generator().manual_seed(7)).source
    everything = torch.cartesian_prod(torch.arange(3), torch.arange(3)) + FIRST
    bits = []
    for row in source:
        batch = COPYING.draw(2, 9, torch.Generator())
        written = torch.cat((batch.written[:, :1], everything[:, :1]), dim=1)
        batch = replace(batch, source=row.expand(9, -1), written=written)
        with torch.inference_mode():
            scores = run.model(batch)[1][:, :2]
        # (strings, symbols): of the symbols alone, since the length is known
        chances = scores.exp() / scores.exp()[..., FIRST : FIRST + 3].sum(dim=2, keepdim=True)
        string = chances.gather(2, everything[:, :, None])[..., 0].prod(dim=1)
        assert string.sum() == pytest.approx(1.0, abs=1e-5)
        bits.append(-np.log2(string[(everything == row[:2]).all(dim=1)].item()))
    assert found == pytest.approx(np.mean(bits), abs=1e-4)


def test_task_run_solves_parity_at_any_length() -> None:
    task = StateTracking("parity", range(1, 21), (2, 20, 60))
    run = _run(task, "rnn", 0.005, Budget(1_000, every=50, trial=1_000, warmup=10))
    run.continue_until(1_000)
    assert run.solved == run.update == run.looks[-1].update
    assert run.looks[-1].accuracy >= 100 * SOLVED
    run.settle(200)
    assert run.solved is not None
    assert run.update == run.solved + 200
    assert run._factor(run.update) == pytest.approx(1 / 200)
    assert run.right(60, 100, torch.Generator().manual_seed(3))[0] > 0.95


def test_sum_of_losses_adds_labels_and_targets() -> None:
    task = AssociativeRecall((3,), (3,), kinds=7)
    run = _run(task)
    batch = task.draw(3, 4, torch.Generator().manual_seed(1))
    named, scores = run.model(batch)
    assert named.shape == (4, 6, 7)
    assert scores.shape == (4, 3, FIRST + 14)
    # only the values have labels
    assert batch.labels is not None
    assert batch.target is not None
    heads = functional.cross_entropy(named[:, 1::2].transpose(1, 2), batch.labels[:, 1::2])
    targets = -scores.log_softmax(dim=2).gather(2, batch.target[:, :, None]).mean()
    assert torch.allclose(sum_of_losses(batch, named, scores), heads + targets)


def test_rate_warms_up_and_falls_to_zero() -> None:
    run = _run(budget=Budget(100, every=1, trial=1, warmup=10), rate=1.0)
    factors = [run._factor(update) for update in range(1, 101)]
    assert factors[:10] == pytest.approx([i / 10 for i in range(1, 11)])
    assert factors[10:70] == [1.0] * 60
    assert np.diff(factors[70:]) == pytest.approx(-1 / 30)
    assert factors[-1] == pytest.approx(1 / 30)


def test_rate_does_not_rise_when_a_task_is_solved_late() -> None:
    run = _run(budget=Budget(100, every=5, trial=1, warmup=10), rate=1e-3)
    run.train_until(90)
    run.solved, before = run.update, run._factor(90)
    assert before == pytest.approx(11 / 30)
    run.settle(20)
    factors = [run._factor(update) for update in range(91, 111)]
    assert factors[0] == pytest.approx(before)
    assert np.diff(factors) == pytest.approx(-before / 20)


def test_search_without_shortcut_ranks_rates_by_loss() -> None:
    found = search(lambda rate: _run(rate=rate), None)
    assert found.best == min(found.tried, key=lambda rate: found.tried[rate].loss or 0.0)
    assert all(tried.left_chance for tried in found.tried.values())
