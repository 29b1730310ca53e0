"""s2s: its trainer, and its translation of lines of text."""

from typing import cast

import numpy as np
import torch

from benchmarks.peers.task import BATCH, BEAM, PENALTY, RATE, Pair, Task, lines
from benchmarks.peers.turns import Given, Turns, decode, train
from benchmarks.training import Precision, s2s_trainer
from s2s.data.tokenized import TokenizedDataset
from s2s.recipe.schema import DeviceSettings
from s2s.run.folder import open_run
from s2s.training.device import setup_process


def encoded(task: Task) -> TokenizedDataset:
    """The training pairs as s2s holds them."""
    numbers = {name: number for number, name in enumerate(task.pieces)}
    sides = ([[numbers[name] for name in text.split(" ")] for text in side] for side in zip(*task.pairs, strict=True))
    return TokenizedDataset.from_rows(*sides)


def training(given: Given) -> None:
    """The trainer, in a precision."""
    pieces, data = np.array(given.task.pieces), encoded(given.task)
    trainer = s2s_trainer(data, len(pieces), cast(Precision, given.form), RATE, given.task.tokens)
    # the trainer is a generator: how many updates is said by who asks
    updates = trainer.updates(1_000_000)

    def update(turns: Turns) -> None:
        done = next(updates)
        groups, position = trainer.groups, trainer.position

        def pairs() -> list[Pair]:
            rows = data.rows(np.concatenate(groups[position - 1]))
            texts = ([" ".join(pieces[row]) for row in side] for side in rows)
            return list(zip(*texts, strict=True))

        positions = sum(len(rows) * int(data.target_lengths[rows].max()) for rows in groups[position - 1])
        turns.learned(done.tokens, positions, done.loss, pairs)

    train(given, update)


def decoding(given: Given) -> None:
    """`s2s translate`."""
    from s2s.run.inference import line_translator

    pieces = np.array(given.task.pieces)
    settings = [f"decoding.{key}={value}" for key, value in decoding_settings().items()]
    settings += ["decoding.precision=bf16"] if given.form == "torch in bf16" else []
    run = open_run(given.task.run, [*settings, f"device.threads={given.threads}"], ["translation"])
    translator, _ = line_translator(run, 1)
    texts = lines(given.task.texts)

    def translate() -> list[str]:
        found = translator.translate_chunk(texts)
        return [" ".join(pieces[list(each.candidates[0].hypothesis.tokens)]) for each in found]

    decode(given, translate)


def decoding_settings() -> dict[str, float]:
    """The section `decoding` of a recipe."""
    return {"beam": BEAM, "batch": BATCH, "length_penalty": PENALTY}


def main() -> None:
    given = Given.read()
    setup_process(DeviceSettings(threads=given.threads))
    with torch.inference_mode(given.part == "decoding"):
        {"training": training, "decoding": decoding}[given.part](given)


if __name__ == "__main__":
    main()
