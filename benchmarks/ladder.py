"""Training and decoding speed of the rungs of the ladder, taking turns.

    python -m benchmarks.ladder runs/multi30k_*

All runs must have learned the same corpus. In each round every one makes one update on the same batch, through the
trainer, and translates the same test sentences with the beam of its recipe; so a noisy machine is noisy for all.
Medians go to `docs/results/speed.json`, from which `benchmarks/results.py` makes the ladder's table.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.contest import in_turns, seconds
from benchmarks.keeping import RESULTS, asked, write
from s2s.data.pairs import load_split
from s2s.decoding.generate import TextTranslator
from s2s.recipe.schema import DeviceSettings
from s2s.run.inference import load
from s2s.tasks.base import LoadedModel
from s2s.tasks.seq2seq import translation_trainer
from s2s.tasks.translation.prepared import PreparedTranslation, prepare
from s2s.training.device import select_device, setup_process
from s2s.training.step import StepResult

CHUNK = 128


def updates(run: LoadedModel, data: PreparedTranslation) -> Iterator[StepResult]:
    """The run's trainer, going on from its weights."""
    recipe = run.recipe
    device_context = select_device(DeviceSettings(kind="cpu"))
    training = recipe.training.model_copy(update={"updates": 10**6})
    return translation_trainer(run.model, data.train, training, recipe.batches, recipe.seeds, device_context).updates(
        10**6
    )


def pace(trainer: Iterator[StepResult]) -> float:
    """Tokens a second of one update."""
    update = next(trainer)
    return update.tokens / update.seconds


def translating(run: LoadedModel, chunks: Sequence[list[str]]) -> Callable[[], float]:
    """Each call translates the next chunk; sentences a second."""
    translator = TextTranslator(run.model, run.tokenizers[0], run.tokenizers[-1], run.recipe.decoding)
    speeds = (len(chunk) / seconds(partial(translator.translate_chunk, chunk)) for chunk in chunks)
    return partial(next, speeds)


def main() -> None:
    """Runs the contest and writes the medians."""
    parser = asked(__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    setup_process(DeviceSettings(threads=2))
    runs = {path.resolve().name: load(path) for path in options.runs}
    first = next(iter(runs.values()))
    data = prepare(first.recipe, (first.tokenizers[0], first.tokenizers[-1]), print)
    test = load_split(first.recipe.data, "test")
    if test is None or any(run.tokenizers[0].digest != first.tokenizers[0].digest for run in runs.values()):
        raise SystemExit("the runs need a test set and one vocabulary")
    lines = list(test["source"])
    chunks = [lines[start : start + CHUNK] for start in range(0, len(lines), CHUNK)]
    decoding = in_turns({name: translating(run, chunks) for name, run in runs.items()}, len(chunks), warm=0)
    trainers = {name: updates(run, data) for name, run in runs.items()}
    training = in_turns({name: partial(pace, trainer) for name, trainer in trainers.items()}, options.rounds)
    speeds = {
        name: {"training": statistics.median(training[name]), "decoding": statistics.median(decoding[name])}
        for name in runs
    }
    print(f"{'':28} {'training, tokens/s':>20} {'decoding, sentences/s':>22}")
    for name, found in speeds.items():
        print(f"{name:28} {found['training']:20,.0f} {found['decoding']:22,.0f}")
    write(RESULTS / "speed.json", speeds)


if __name__ == "__main__":
    main()
