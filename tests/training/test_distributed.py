"""Data-parallel training equals training in one process."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from s2s.data.dataset import shard_batches
from s2s.errors import UserError
from s2s.training.distributed import Distributed, check_world_size
from tests.training.processes import RECIPES, lay_out

ROOT = Path(__file__).parents[2]


def _processes(folder: Path, **asked: object) -> dict:
    lay_out(folder)
    command = [sys.executable, "-m", "tests.training.processes", str(folder), json.dumps(asked)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_distributed_together_they_take_each_row_once_and_as_evenly_as_rows_allow():
    for many in range(8):
        batches = [np.arange(100 * n, 100 * n + 5 + n) for n in range(many)]
        for size in (1, 2, 3, 5):
            parts = [shard_batches(batches, rank, size) for rank in range(size)]
            rows = [row for part in parts for batch in part for row in batch.tolist()]
            assert sorted(rows) == [row for batch in batches for row in batch.tolist()]
            assert max(map(len, parts)) - min(map(len, parts)) <= (many % size and 1)
            assert all(len(batch) for part in parts for batch in part)


def test_distributed_batches_of_one_row_go_to_different_processes():
    batches = [np.array([7]), np.array([8]), np.array([9])]
    assert [[rows.tolist() for rows in shard_batches(batches, rank, 4)] for rank in range(4)] == [
        [[7]],
        [[8]],
        [[9]],
        [],
    ]


def _check_learned(found: dict, rounding: float) -> None:
    for task in RECIPES:
        (one,) = (process[task] for process in found["1"])
        for size in set(found) & {"2", "3"}:
            processes = [process[task] for process in found[size]]
            # counts are equal, losses within rounding
            for told in (process["told"] for process in processes):
                assert [update[:2] for update in told] == [update[:2] for update in one["told"]], task
                losses, alone = ([update[2] for update in each] for each in (told, one["told"]))
                assert losses == pytest.approx(alone, rel=rounding), task
            assert len({process["weights"] for process in processes}) == 1
            had = np.array([process["had"] for process in processes])
            assert (had.sum(axis=0) == one["had"]).all()
            assert (had.min(axis=0) < had.max(axis=0)).any(), f"{task}: no update was shared unequally"
            # all know the whole of a validation, and each computed a part
            scores, texts, score = one["validated"]
            for found_scores, found_texts, found_score in (process["validated"] for process in processes):
                assert found_scores == pytest.approx(scores, rel=rounding), task
                assert found_texts == texts
                assert found_score == pytest.approx(score, rel=rounding)
            assert np.sum([process["done"] for process in processes], axis=0).tolist() == one["done"]
            assert one["done"][0] > 0
            assert (one["done"][1] > 0) == (task in ("translation", "text-to-text"))


STOPPED = ["one", "stopped", "stopped, on one", "stopped, on three", "lost"]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Results of each task with one and two processes."""
    return _processes(tmp_path_factory.mktemp("learned"), updates=3, sizes=[1, 2])


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """A folder of runs that were stopped, and results of their processes."""
    folder = tmp_path_factory.mktemp("processes")
    return folder, _processes(folder, stories=STOPPED)


def test_distributed_two_processes_learn_what_one_learns_in_every_task(learned):
    _check_learned(learned, 1e-6)


@pytest.mark.slow
def test_distributed_two_and_three_processes_learn_what_one_learns_in_every_task_for_50_updates(tmp_path):
    found = _processes(tmp_path, updates=50, sizes=[1, 2, 3])
    _check_learned(found, 1e-5)
    # in the last update of an epoch, one has nothing at all
    assert min(min(process["images"]["had"]) for process in found["3"]) == 0


def test_distributed_shared_work_is_done_once_and_all_have_all_of_it_in_order():
    for size in (1, 2, 3, 5):
        asked: list[list[int]] = [[] for _ in range(size)]

        def work(rank, items, asked=asked):
            asked[rank] += items
            return [10 * item for item in items]

        # what each says to the others, by hand: nothing depends on more than its own items
        said = [work(rank, list(range(4))[rank::size]) for rank in range(size)]
        for rank in range(size):
            distributed = Distributed(rank, size)
            distributed.all_gather_object = lambda what, said=said, rank=rank: [*said[:rank], what, *said[rank + 1 :]]  # type: ignore[method-assign]
            assert distributed.map_sharded(lambda items, rank=rank: work(rank, items), range(4)) == [0, 10, 20, 30]
        assert sorted(item for items in asked for item in items) == sorted([0, 1, 2, 3] * 2)


def test_all_reduce_sums_gradients_and_losses_and_keeps_none_gradients(learned):
    for both, first, nobody, loss in learned["added"]:
        assert both == [1, 3, 5, 7, 9, 11]
        assert first == [1] * 6
        assert nobody is None
        assert loss == [3]


def _losses(run: Path) -> dict[int, float]:
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {entry["update"]: entry["loss"] for entry in entries if "loss" in entry}


def _order(processes: list) -> list[list[int]]:
    """The rows of each update, by all processes together."""
    orders = (order for order, _ in processes)
    return [sorted(row for rows in update for row in rows) for update in zip(*orders, strict=True)]


@pytest.mark.slow
def test_distributed_checkpoint_of_two_processes_goes_on_in_one_and_in_three_with_the_same_data(processes):
    folder, found = processes
    assert _order(found["stopped"]) == _order(found["one"])[:8]
    assert len(_order(found["one"])) == 12
    straight = _losses(folder / "one")
    for name in ("stopped, on one", "stopped, on three"):
        assert _order(found[name]) == _order(found["one"])[8:]
        assert _losses(folder / name) == pytest.approx(straight, rel=1e-5)
        assert len(straight) == 12


@pytest.mark.slow
def test_signal_to_one_rank_stops_all_and_rank_0_saves(processes):
    folder, found = processes
    (_, told), (_, other) = found["stopped"]
    assert "stopped after update 8 of 12; saved" in told
    assert "--resume" in told
    assert not other
    assert {path.name for path in (folder / "stopped" / "checkpoints").iterdir()} == {"0000006", "0000008"}


@pytest.mark.slow
def test_distributed_lost_process_ends_all_with_one_message_and_a_checkpoint_of_all_that_was_done(processes):
    folder, found = processes
    (_, told), other = found["lost"]
    assert other is None
    assert "another process of this training has ended" in told
    assert "stopped after update 7 of 12; saved" in told
    assert "resume with:" in told
    assert (folder / "lost" / "checkpoints" / "0000007" / "model.safetensors").exists()


@pytest.mark.slow
def test_resume_with_the_same_world_size_is_bit_identical(tmp_path):
    names = ["two", "stopped", "lost", "stopped, on two", "lost, on two"]
    _processes(tmp_path, stories=names)
    for name in names[3:]:
        assert _losses(tmp_path / name) == _losses(tmp_path / "two")
        for file in ("model.safetensors", "training.safetensors"):
            one, two = (load_file(tmp_path / run / "checkpoints" / "0000012" / file) for run in ("two", name))
            assert all(one[key].equal(two[key]) for key in one | two)


def test_distributed_more_processes_than_examples_are_refused_with_the_key():
    check_world_size(Distributed(0, 3), [1, 3, 3, 4], noise_scale=False)
    check_world_size(Distributed(0, 1), [], noise_scale=True)
    with pytest.raises(UserError, match="an update usually has 3 examples, which is fewer than 4 processes"):
        check_world_size(Distributed(0, 4), [1, 3, 3, 4], noise_scale=False)
    with pytest.raises(UserError, match=r"training\.noise_scale"):
        check_world_size(Distributed(0, 2), [9], noise_scale=True)
