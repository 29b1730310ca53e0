"""What few shapes of batches save: the same training in two processes beside each other.

    python benchmarks/shapes.py recipes/mlm_imdb.yaml data.root=DIR model.kind=transformer

One rounds the widths of batches up, as `s2s train` does (`s2s.data.batches.widths_for`), the other takes each length as
its own width. Each has a thread of its own, so a noisy machine is noisy for both; what is compared is processor
seconds, memory, shapes and padding. The first updates, in which kernels are compiled in any case, are left out of the
seconds.
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

from s2s.data import batches
from s2s.recipe.reading import recipe_path
from s2s.run.tasks import read
from s2s.tasks.masked_lm.task import TASK
from s2s.training.device import select_device, setup_process
from s2s.training.trainer import Trainer

WAYS = {"few widths": batches._WIDTHS, "every width": 1 << 30}
WARM = 100


def measure(recipe_file: Path, overrides: list[str], updates: int, widths: int) -> dict[str, float]:
    """Trains in this process: nothing of it is shared with the other way."""
    batches._WIDTHS = widths
    recipe = read(recipe_path(recipe_file), ["device.threads=1", *overrides])
    setup_process(recipe.device)
    data, device_context = TASK.prepare(recipe, (), print), select_device(recipe.device)
    model = TASK.build(recipe, data.tokenizers).to(device_context.device)
    examples, loss = TASK.examples(recipe, data, model), TASK.loss(recipe)
    trainer = Trainer(model, examples, loss, recipe.training, recipe.seeds, device_context)
    shapes, real, began = set(), 0.0, 0.0
    collate = trainer.examples.collate

    def watched(rows, seed: int):
        """A batch whose shape is noted."""
        batch = collate(rows, seed)
        shapes.add(tuple(batch.source.shape))
        return batch

    trainer.examples.collate = watched
    for update in trainer.updates(updates):
        real += update.real_share
        if update.update == WARM:
            began = _processor_seconds()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "ms": 1000 * (_processor_seconds() - began) / (updates - WARM),
        "gib": used.ru_maxrss / 2**20,
        "shapes": len(shapes),
        "padding": 100 - 100 * real / updates,
    }


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Prints a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--widths", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.widths:
        print(json.dumps(measure(asked.recipe, asked.overrides, asked.updates, asked.widths)))
        return
    processes = {
        way: subprocess.Popen([sys.executable, *sys.argv, f"--widths={widths}"], stdout=subprocess.PIPE)
        for way, widths in WAYS.items()
    }
    found = {way: json.loads(process.communicate()[0]) for way, process in processes.items()}
    for way, of in found.items():
        print(
            f"{way:11} {of['ms']:6.0f} ms of a processor an update, {of['gib']:.2f} GiB at most, "
            f"{of['shapes']:3.0f} shapes, {of['padding']:.1f} % padding"
        )


if __name__ == "__main__":
    main()
