"""Processes that split a model among them, and processes that do not: a program of the tests.

    python -m tests.training.sharded FOLDER '{"updates": 4, "sizes": [1, 2], "cases": ["transformer"], "stories": []}'

learns each of the cases in as many processes as each size says, split where there are several; makes runs that go on in
another number of processes, or in another way; and prints what was found as JSON.
"""

import copy
import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.fsdp  # before processes are forked, which would each load it

from s2s.errors import UserError
from s2s.run import training
from s2s.run.tasks import read, task_of
from s2s.run.training import trainer_of
from s2s.training import drawing
from s2s.training.devices import choose
from s2s.training.ranks import Ranks
from tests.training.processes import _KILLED, _MODEL, lay_out, learned, ran, together

_LSTM = "{kind: lstm-attention, width: 16, dropout: 0.0}"
_ALL = ["clip=0.5", "ema=0.9", "optimizer=adamw", "weight_decay=0.1"]
# name: the task, its model where it is another, and what is asked besides
CASES = {
    "transformer": ("translation", _MODEL, [f"training.{word}" for word in _ALL]),
    # for few updates: its gradient jumps where a weight passes zero, which rounding decides sooner or later
    "l1": ("translation", _MODEL, ["training.l1=0.001"]),
    "lstm-attention": ("translation", _LSTM, []),
    "frozen": ("translation", _MODEL, ["training.freeze=[encoder]", "training.clip=0.1"]),
    "sgd": ("classification", None, ["training.optimizer=sgd", "training.momentum=0.9"]),
    "images": ("images", None, []),
    "language-model": ("language-model", None, []),
    "bf16": ("translation", _MODEL, ["device.precision=bf16"]),
}
_BROKEN = "decoder.layers.0.feedforward.expand.weight"
_SHARD = ["device.shard=true"]
# story: the run that is gone on with, if any, the number of processes, until which update, and what is asked
STORIES: dict[str, tuple[str, int, int, list[str], dict[int, Callable[[], object]]]] = {
    # one process has nobody to share with
    "one": ("", 1, 12, [*_SHARD, "training.ema=0.9"], {}),
    "two": ("", 2, 6, [*_SHARD, "training.ema=0.9"], {}),
    "two, on one": ("two", 1, 12, ["device.shard=false"], {}),
    "two, on three": ("two", 3, 12, [], {}),
    "half": ("", 1, 6, ["training.ema=0.9"], {}),
    "half, on two": ("half", 2, 12, _SHARD, {}),
    "lost": ("", 2, 12, _SHARD, {1: partial(os._exit, _KILLED)}),
    "lost, on two": ("lost", 2, 12, [], {}),
}


class _Scaled(torch.nn.Module):
    """A layer with a number of its own, which cannot be split."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, *inputs: Any) -> torch.Tensor:
        return self.layer(*inputs) * self.scale


def _trainer(ranks: Ranks, folder: Path, build: Callable[..., Any] | None = None) -> Any:
    """Of a small translator; one for several processes splits it when it follows."""
    recipe = read(folder / "transformer.yaml", [*CASES["transformer"][2], *_SHARD])
    task = task_of(recipe)
    task.build = build or task.build
    prepared = task.prepare(recipe, (), lambda text: None)
    recipe = task.resolved(recipe, prepared)
    return trainer_of(task, recipe, prepared, choose(recipe.device, ranks), (None, None))[0]


def numbered(ranks: Ranks, folder: Path) -> list[list[float]]:
    """Losses, norms and the number, of a model that has one, update by update."""
    build = task_of(read(folder / "transformer.yaml")).build

    def scaled(*words: Any) -> Any:
        model = build(*words)
        # a part of a sum: what scales all that a norm reads has next to no gradient, and Adam takes any size for one
        layer = model.encoder.layers[0]
        layer.feedforward = _Scaled(layer.feedforward)
        return model

    trainer, found = _trainer(ranks, folder, scaled), []
    trainer.follow()
    for update in trainer.updates(4):
        state, _ = trainer.state()
        found.append([update.loss, update.gradient_norm, float(state["model.encoder.layers.0.feedforward.scale"])])
    return found


def exchanged(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Losses from one state on: of who had it, of one process that loads it, of processes that split what one loads.

    Besides, what is said where a number of the last process's part is not finite.
    """
    split, again = _trainer(ranks, folder), _trainer(ranks, folder)
    split.follow()
    list(split.updates(2))
    state, place = split.state()
    found: dict[str, Any] = {"split": [update.loss for update in split.updates(4)]}
    if ranks.leads:
        alone = _trainer(Ranks(), folder)
        alone.load_state(state, place)
        # one that goes on moves what it was given
        again.load_state(copy.deepcopy(alone.state()[0]), place)
        found["alone"] = [update.loss for update in alone.updates(4)]
    again.follow()
    found["again"] = [update.loss for update in again.updates(4)]
    if ranks.rank == ranks.size - 1:
        split.optimization.parameters[split.optimization.names.index(_BROKEN)][-1, 0] = float("nan")
    try:
        list(split.updates(6))
    except UserError as error:
        found["said"] = str(error)
    return found


def _told(folder: Path, name: str) -> list[Any]:
    before, size, updates, more, happens = STORIES[name]
    if before:
        shutil.copytree(folder / before, folder / name)
    return together(size, ran, folder / name, updates, happens, more)


def main() -> None:
    """Prints what the processes found."""
    folder, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    os.environ["HF_DATASETS_CACHE"] = f"{folder}/cache"
    drawing.png = lambda figure: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1"
    said = (folder / "said").open("a")
    training.plain = lambda console: lambda text: print(text, file=said, flush=True)
    lay_out(folder)
    for name, (task, model, _) in CASES.items():
        page = (folder / f"{task}.yaml").read_text()
        (folder / f"{name}.yaml").write_text(page.replace(_MODEL, model) if model else page)
    found: dict[str, Any] = {}
    for size in asked.get("sizes", ()):
        tasks = {}
        for name in asked["cases"]:
            recipe = read(folder / f"{name}.yaml", [*CASES[name][2], *_SHARD])
            prepared = task_of(recipe).prepare(recipe, (), lambda text: None)
            tasks[name] = task_of(recipe), task_of(recipe).resolved(recipe, prepared), prepared
        found[size] = together(size, learned, tasks, asked["updates"])
    for name, work in (("exchanged", exchanged), ("numbered", numbered)):
        if name in asked:
            found[name] = [together(size, work, folder) for size in asked[name]]
    print(json.dumps(found | {name: _told(folder, name) for name in asked.get("stories", ())}))


if __name__ == "__main__":
    main()
