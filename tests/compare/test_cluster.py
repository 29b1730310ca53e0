"""On a cluster the same seeds give the same cells, whichever nodes are lost; what cannot work there is told."""

import io
import json
import math
import os
import signal
import socket
import threading
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from s2s.cli.main import commands
from s2s.comparison import engine, setup
from s2s.comparison.cluster import Cluster, RayWorkers
from s2s.comparison.request import Order, order
from s2s.comparison.runs import COST
from s2s.comparison.tasks import trained
from s2s.errors import UserError
from s2s.files import file_lock
from s2s.recipe.schema import DeviceSettings
from s2s.run.folder import LOCK, RECIPE, run_lock
from s2s.training.device import select_device

SETTINGS = DeviceSettings(kind="cpu", precision="fp32")
HERE = select_device(SETTINGS)
TINY = ("data.train=300", "data.validation=20", "data.test=20", "tokenizer.size=450", "batches.tokens=512")
TINY += ("training.updates=150", "training.warmup=2", "device.precision=fp32", "device.threads=1", "device.kind=cpu")
TINY += ("decoding.max_ratio=0.5", "decoding.max_extra=1", "validation.every=75")


def test_without_the_extra_one_line_says_so_and_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr("s2s.comparison.request.find_spec", lambda name: None)
    words = ["compare", "rnn", "transformer", "--cluster", "auto", "--out", str(tmp_path / "new")]
    with pytest.raises(
        UserError, match=r"^--cluster: a cluster needs Ray\n.*pip install -c constraints.txt -e '\.\[cluster\]'$"
    ):
        commands(words, standalone_mode=False)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("address", ["localhost:1", "ray://localhost:1", "localhost:port"])
def test_where_nobody_answers_nobody_waits(address):
    pytest.importorskip("ray")
    with pytest.raises(UserError, match=rf"--cluster {address}: no Ray cluster can be used: .*\n.*ray start --head"):
        Cluster(address).__enter__()


def test_a_run_that_another_machine_still_holds_is_waited_for(contest, tmp_path):
    folder = tmp_path / "runs" / "rnn-seed1"
    folder.mkdir(parents=True)
    candidate_recipe = contest(["rnn"])
    held, over = threading.Event(), []

    def elsewhere() -> None:
        with file_lock(folder / LOCK):
            held.set()
            time.sleep(0.3)
            (folder / COST).write_text('{"seconds": 1, "cpu_seconds": 1}')
            over.append(True)

    other = threading.Thread(target=elsewhere)
    other.start()
    held.wait()
    assert trained(candidate_recipe, "rnn", 1) == folder
    # what it finished is not trained again
    assert over
    assert not (folder / RECIPE).exists()
    other.join()


@pytest.fixture
def two_nodes(monkeypatch):
    """A Ray cluster of two nodes of one processor each, of which the second can be lost."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster as Machines

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    small = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
    soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = small | {"_system_config": soon, "ray_client_server_port": port}
    machines = Machines(initialize_head=True, head_node_args=head)
    second = machines.add_node(num_cpus=1, object_store_memory=80_000_000)
    raylet = second.all_processes["raylet"][0].process.pid
    client = f"ray://127.0.0.1:{port}"
    yield SimpleNamespace(address=machines.address, client=client, lose=second.kill_raylet, raylet=raylet)
    machines.shutdown()


def _begin(folder: Path, *experiments: str) -> Path:
    planned = order(Order(("rnn", "lstm", *TINY), seeds=2, experiments=experiments, out=folder))
    setup.create(planned.folder, planned.base, planned.summary)
    return folder


def _cells(folder: Path) -> dict[str, object]:
    """All that was measured but times, which nobody measures twice."""

    def timeless(value: object) -> object:
        if isinstance(value, dict):
            return {key: timeless(each) for key, each in value.items() if "seconds" not in key}
        return value

    cells = (folder / "cells").glob("*/*.json")
    return {str(path.relative_to(folder)): timeless(json.loads(path.read_text())) for path in cells}


def _trains(folder: Path, raylet: int) -> tuple[Path, int] | None:
    """The run that a process of a node is in the midst of, and the process, which is then held."""
    children = (file.read_text().split() for file in Path(f"/proc/{raylet}/task").glob("*/children"))
    for worker in map(int, chain.from_iterable(children)):
        held = {os.path.realpath(file) for file in Path(f"/proc/{worker}/fd").glob("*")}
        for metrics in folder.resolve().glob("runs/*/metrics.jsonl"):
            if str(metrics.with_name(LOCK)) in held:
                os.kill(worker, signal.SIGSTOP)
                if not metrics.with_name(COST).exists():
                    return metrics.parent, worker
                os.kill(worker, signal.SIGCONT)
    return None


ours = pytest.mark.filterwarnings("default")


@ours
@pytest.mark.slow
def test_a_node_that_is_killed_while_it_measures_changes_no_cell(two_nodes, few_trials, tmp_path, monkeypatch):
    monkeypatch.setattr(engine.tuning, "depths_of", lambda recipe, own: ())
    monkeypatch.setattr(engine, "number_for", lambda device_context: 1)
    here = _begin(tmp_path / "here", "quality", "bottleneck")
    engine.resume(here, Console(file=io.StringIO()))
    monkeypatch.chdir(tmp_path)
    there = _begin(Path("there"), "quality", "bottleneck")
    begun: list[str] = []

    def lose() -> None:
        while not (found := _trains(there, two_nodes.raylet)):
            time.sleep(0.02)
        run, worker = found
        begun.append(run.name)
        two_nodes.lose()
        # a process that outlived its node for a while could end the training
        os.kill(worker, signal.SIGKILL)

    loss = threading.Thread(target=lose)
    loss.start()
    told = io.StringIO()
    with Cluster(two_nodes.address) as cluster:
        engine.resume(there, Console(file=told, width=200), cluster)
    loss.join()
    assert "FAILED" not in told.getvalue()
    assert ", 2 at a time" in told.getvalue()
    assert _cells(there) == _cells(here)
    assert len(_cells(there)) == 4 + 4 + 4
    # what the node that was killed had begun was begun again
    starts = {path.parent.name: len(json.loads(path.read_text())) for path in there.glob("runs/*/manifest.json")}
    assert sorted(starts.values()) == [1, 1, 1, 2]
    assert max(starts, key=starts.__getitem__) == begun[0]
    # once more, and without a cluster: nothing is left to do
    before = {path: path.stat().st_mtime_ns for path in (there / "cells").glob("*/*.json")}
    engine.resume(there, Console(file=io.StringIO()))
    assert {path: path.stat().st_mtime_ns for path in (there / "cells").glob("*/*.json")} == before


@ours
@pytest.mark.slow
def test_nodes_do_what_workers_do_and_refuse_what_they_would_do_otherwise(two_nodes, tmp_path, monkeypatch):
    import ray

    monkeypatch.chdir(tmp_path)
    asked_to_stop = signal.getsignal(signal.SIGTERM)
    with run_lock(tmp_path), Cluster(two_nodes.address):
        assert signal.getsignal(signal.SIGTERM) is asked_to_stop
        with RayWorkers(tmp_path, HERE, SETTINGS) as nodes:
            assert str(nodes) == "2 in parallel on 2 nodes"
            assert dict(nodes.map_unordered(math.sqrt, [1, 4, 9])) == {1: 1, 4: 2, 9: 3}
            # a node that is stopped is no user who wants a training to stop
            assert dict(nodes.map_unordered(signal.getsignal, [signal.SIGTERM])) == {signal.SIGTERM: signal.SIG_IGN}
            # a process that dies each time takes down its own call only, and an error is the caller's
            assert dict(nodes.map_unordered(os._exit, [1])) == {1: None}
            with pytest.raises(ValueError, match="math domain error"):
                list(nodes.map_unordered(math.sqrt, [-1]))
            # while times are measured here, nobody computes on this machine
            with nodes.exclusive() as measuring:
                assert dict(measuring.map_unordered(abs, [-1])) == {-1: 1}
                meanwhile = ray.remote(lambda: os.getpid()).remote()
                assert ray.wait([meanwhile], timeout=3)[0] == []
            assert ray.get(meanwhile) != os.getpid()
            nodes._place = replace(nodes._place, versions=nodes._place.versions | {"torch": "0.1"})
            with pytest.raises(UserError, match=r"has torch .* instead of torch 0\.1\n.*install the same"):
                list(nodes.map_unordered(math.sqrt, [1]))
        # nobody waits for a GPU that no node has
        monkeypatch.setattr("s2s.comparison.cluster._PATIENCE", 1)
        on_gpus = RayWorkers(tmp_path, replace(HERE, device=torch.device("cuda")), SETTINGS)
        with on_gpus as nodes, pytest.raises(UserError, match="no node is left that offers 1 CPU and 1 GPU"):
            list(nodes.map_unordered(math.sqrt, [1]))
        # a folder of the same name that is another one, or that is not there, is not shared
        for other in (tmp_path / "other", tmp_path / "missing"):
            if other.name == "other":
                other.mkdir()
                (other / ".lock").touch()
            with (
                RayWorkers(other, HERE, SETTINGS) as nodes,
                pytest.raises(UserError, match=rf"does not share {other} and"),
            ):
                list(nodes.map_unordered(math.sqrt, [1]))
    with run_lock(tmp_path), Cluster(two_nodes.client), RayWorkers(tmp_path, HERE, SETTINGS) as nodes:
        assert dict(nodes.map_unordered(math.sqrt, [1, 4])) == {1: 1, 4: 2}
        assert dict(nodes.map_unordered(os._exit, [1])) == {1: None}
        with pytest.raises(ValueError, match="math domain error"):
            list(nodes.map_unordered(math.sqrt, [-1]))
        with nodes.exclusive() as measuring:
            assert dict(measuring.map_unordered(abs, [-1])) == {-1: 1}
