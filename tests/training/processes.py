"""Processes that train together, forked from one that has loaded everything and read the data: a program of the tests.

    python -m tests.training.processes FOLDER '{"updates": 4, "sizes": [1, 2], "stories": ["one", "lost"]}'

trains each task of `RECIPES` for so many updates, in as many processes as each size says; makes runs that end early or
lose a process, and go on; and prints what was found as JSON.
"""

import gc
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console

from s2s.data.dataset import Prefetcher
from s2s.decoding.generate import TextTranslator
from s2s.errors import Stopped, UserError
from s2s.run.tasks import read, task_of
from s2s.run.training import build_trainer, resume, run_worker, train
from s2s.tasks.base import PreparedData, Task, TrainContext
from s2s.training import figures
from s2s.training.device import select_device
from s2s.training.distributed import Distributed
from s2s.training.logger import NullLog

_MODEL = "{kind: transformer, width: 16, heads: 2, feedforward: 16, dropout: 0.0, encoder_layers: 1, decoder_layers: 1}"
_ENCODER = _MODEL.replace(", decoder_layers: 1", "")
_COURSE = "validation: {every: 1000}\ndevice: {kind: cpu, precision: fp32, threads: 1}\n"
_TRAINING = "updates: 1000, warmup: 10, learning_rate: 0.01"
# what has learned nothing yet writes as long as it may
_DECODING = "beam: 2, max_ratio: 0.2, max_extra: 4"
_BRIEF = ["validation.sentences=1", "decoding.beam=1", "decoding.max_ratio=0.1", "data.test=null", "model.dropout=0.0"]
_KILLED = 9
# three micro-batches or one; the last of an epoch are smaller, down to one example
RECIPES = {
    "translation": f"""
data: {{train: 61, validation: 4, test: 4}}
tokenizer: {{kind: char, size: 200}}
batches: {{tokens: 500}}
model: {_MODEL}
training: {{{_TRAINING}, tokens_per_update: 1200}}
decoding: {{{_DECODING}}}
""",
    "classification": f"""
data: {{train: texts.tsv, validation: 4, test: 4}}
tokenizer: {{kind: bytes}}
batches: {{tokens: 128, max_length: 64}}
model: {_ENCODER}
head: {{dropout: 0.0}}
training: {{{_TRAINING}, examples_per_update: 15}}
""",
    "masked-lm": f"""
data: {{train: texts.tsv, validation: 4, test: 4}}
tokenizer: {{kind: bytes}}
batches: {{tokens: 128, max_length: 64}}
model: {_ENCODER}
training: {{{_TRAINING}, tokens_per_update: 300}}
""",
    "images": f"""
data: {{train: images, validation: 3, test: null, size: 8}}
head: {{dropout: 0.0}}
batches: {{images: 5}}
model: {_ENCODER}
training: {{{_TRAINING}}}
""",
    "captioning": f"""
data: {{train: 20, validation: 4, test: 4, size: 16}}
stem: {{size: 4}}
tokenizer: {{kind: char, size: 60}}
batches: {{captions: 19}}
model: {_MODEL}
training: {{{_TRAINING}}}
""",
    "language-model": f"""
data: {{train: texts.tsv, validation: 4, test: 4}}
tokenizer: {{kind: bytes}}
batches: {{length: 32, tokens: 128}}
model: {_MODEL.replace("encoder_layers: 1, ", "")}
training: {{{_TRAINING}, tokens_per_update: 400}}
""",
    "text-to-text": f"""
data:
  mixing: 2
  corpora:
    en-de: {{prefix: "translate: ", metric: bleu, source: en, target: de, train: 40, validation: 4, test: 4}}
    words: {{objective: span-corruption, metric: loss, source: de, train: 40, validation: 4, test: 4}}
tokenizer: {{kind: char, size: 200}}
batches: {{tokens: 700}}
model: {_MODEL}
training: {{{_TRAINING}, tokens_per_update: 1800}}
decoding: {{{_DECODING}}}
""",
}


def lay_out(folder: Path) -> None:
    """Recipes of all tasks, with data of their own."""
    from PIL import Image

    rows = [f"text number {n} {'and ' * (n % 5)}\t{'good' if n % 2 else 'bad'}\n" for n in range(53)]
    (folder / "texts.tsv").write_text("text\tlabel\n" + "".join(rows))
    for n in range(24):
        path = folder / "images" / ("dark" if n % 2 else "light") / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 10 * n).save(path)
    for task, recipe in RECIPES.items():
        (folder / f"{task}.yaml").write_text(f"task: {task}\nname: {task}\n{recipe}\n{_COURSE}")


def together(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work` gives in each of so many processes, which know each other."""
    # what is there before they part is not looked through by each of them whenever it collects or counts
    gc.freeze()
    with tempfile.TemporaryDirectory() as place:
        children = []
        for rank in range(size):
            if not (child := os.fork()):
                try:
                    if size > 1:
                        store = dist.FileStore(f"{place}/store", size)
                        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
                    found = work(Distributed(rank, size), *arguments)
                    Path(place, str(rank)).write_bytes(pickle.dumps(found))
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    os._exit(1)
                os._exit(0)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if not set(codes) <= {0, _KILLED}:
            sys.exit(f"one of {size} processes failed")
        files = [Path(place, str(rank)) for rank in range(size)]
        return [pickle.loads(file.read_bytes()) if file.exists() else None for file in files]


def learned(distributed: Distributed, tasks: dict[str, tuple[Task, Any, PreparedData]], updates: int) -> dict[str, Any]:
    """Of each task: what each update and a validation tell, how many examples this process had, and the weights."""
    found = {}
    for name, (task, recipe, prepared) in tasks.items():
        trainer, _ = build_trainer(task, recipe, prepared, select_device(recipe.device, distributed), (None, None))
        trainer.sync_from_main()
        told, own, collate = [], [], trainer.examples.collate

        def counted(rows, seed, own=own, collate=collate):
            own.append(len(rows))
            return collate(rows, seed)

        trainer.examples.collate = counted
        had = []
        for update in trainer.updates(updates):
            told.append([update.count, update.tokens, update.loss, update.gradient_norm])
            had.append(sum(own))
            own.clear()
        with trainer.optimization.use_ema_weights():
            weights = sum(float(p.detach().double().abs().sum()) for p in trainer.model.parameters())
            validated, done = _validated(task, TrainContext(recipe, prepared, trainer))
        found[name] = {"told": told, "had": had, "weights": weights, "validated": validated, "done": done}
    return found


class _Noted(NullLog):
    def log_validation(self, update, scores, samples=()):
        self.scores, self.texts_written = scores, [sample.translation for sample in samples]

    def add_texts(self, name, texts, update):
        pass


def _validated(task: Task, train_context: TrainContext) -> tuple[list, list[int]]:
    """The scores, what was written, the deciding score; how many examples this process read, and how many it wrote."""
    rows, written, batches, write, log = [], [], Prefetcher.batches, TextTranslator.translate, _Noted()

    def noted(ahead, group, seed, following=None):
        rows.extend(len(each) for each in group)
        return batches(ahead, group, seed, following)

    def translated(translator, lines, *rest):
        written.extend(lines)
        return write(translator, lines, *rest)

    Prefetcher.batches, TextTranslator.translate = noted, translated
    value = task.validate(train_context, log).value
    Prefetcher.batches, TextTranslator.translate = batches, write
    return [log.scores, log.texts_written, value], [sum(rows), len(written)]


def added(distributed: Distributed) -> list[list[float] | None]:
    """The sums of gradients, where both processes, the first one alone, and none of them have one; and of the loss."""
    parameters = [torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(3)]
    parameters[0].grad = torch.arange(6.0).view(2, 3) + distributed.rank
    if distributed.is_main_process:
        parameters[1].grad = torch.ones(2, 3)
    loss = distributed.all_reduce_gradients(parameters, torch.tensor(1.5))
    return [p.grad if p.grad is None else p.grad.flatten().tolist() for p in parameters] + [[float(loss)]]


def ran(
    distributed: Distributed, run: Path, updates: int, happens: dict[int, Callable[[], object]]
) -> tuple[list, str]:
    """Trains `translation.yaml` or goes on with it; which rows this process learned from, and what ended it.

    Something may happen to each process, by its number, while it begins the eighth update of the run.
    """
    order, batches = [], Prefetcher.batches

    def noted(ahead, group, seed, following=None):
        # a validation's seed is 0
        if seed:
            order.append([int(row) for rows in group for row in rows])
            if len(order) == 8 and distributed.rank in happens:
                happens[distributed.rank]()
        return batches(ahead, group, seed, following)

    Prefetcher.batches = noted
    try:
        if not distributed.is_main_process:
            run_worker(distributed)
        elif run.exists():
            resume(run, Console(quiet=True), [f"training.updates={updates}"], None, distributed)
        else:
            overrides = [f"training.updates={updates}", f"run.dir={run}", "validation.every=6", *_BRIEF]
            train(read(run.parent / "translation.yaml", overrides), Console(quiet=True), distributed=distributed)
    except (UserError, Stopped) as error:
        return order, str(error)
    return order, ""


# story: the run that is gone on with, if any, the number of processes, and what happens to which of them
STORIES = {
    "one": ("", 1, {}),
    "two": ("", 2, {}),
    # only one of them is told to stop
    "stopped": ("", 2, {1: lambda: os.kill(os.getpid(), signal.SIGTERM)}),
    "lost": ("", 2, {1: partial(os._exit, _KILLED)}),
    "stopped, on one": ("stopped", 1, {}),
    "stopped, on two": ("stopped", 2, {}),
    "stopped, on three": ("stopped", 3, {}),
    "lost, on two": ("lost", 2, {}),
}


def _told(folder: Path, name: str) -> list[Any]:
    """What each process of a story found."""
    before, size, happens = STORIES[name]
    if before:
        shutil.copytree(folder / before, folder / name)
    return together(size, ran, folder / name, 12, happens)


def main() -> None:
    """Prints what the processes found: of each size, or story, of each process."""
    folder, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    os.environ["HF_DATASETS_CACHE"] = f"{folder}/cache"
    # pictures are looked at elsewhere
    figures.render_png = lambda figure: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1"
    tasks, found = {}, {}
    for name in RECIPES if asked.get("sizes") else ():
        recipe = read(folder / f"{name}.yaml")
        prepared = task_of(recipe).prepare(recipe, (), lambda text: None)
        tasks[name] = task_of(recipe), task_of(recipe).finalize_config(recipe, prepared), prepared
    for size in asked.get("sizes", ()):
        found[size] = together(size, learned, tasks, asked["updates"])
    found["added"] = together(2, added)
    if asked.get("stories"):
        # what one run loads the others need not
        overrides = [f"run.dir={folder}/loaded", "training.updates=1", "training.warmup=1", *_BRIEF]
        train(read(folder / "translation.yaml", overrides), Console(quiet=True))
    print(json.dumps(found | {name: _told(folder, name) for name in asked.get("stories", ())}))


if __name__ == "__main__":
    main()
