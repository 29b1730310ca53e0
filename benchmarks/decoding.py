"""Decoding speed of a trained run, with and without the key/value cache.

    python benchmarks/decoding.py runs/multi30k            # its own test set
    python benchmarks/decoding.py runs/multi30k data.root=DIR

Sentences a second for greedy search and beam 5, batches of 64, on 2 threads. The two contestants take turns on the
same chunk of sentences. "without cache" feeds the whole prefix again at every step, as a decoder without state does;
both give the same translations, which is checked.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from s2s.data.pairs import load_split
from s2s.decoding.translator import Translator
from s2s.models.contract import Decoder, Memory, Rows, Seq2Seq
from s2s.recipe.schema import DeviceSettings
from s2s.run.loaded import load
from s2s.tasks.contract import Loaded
from s2s.training.devices import prepare_process

CHUNK = 250


@dataclass(frozen=True)
class Prefix(Rows):
    """What has been fed, and the state before it."""

    first: Rows
    tokens: Tensor


class Uncached(Decoder):
    """A decoder that remembers tokens instead of keys and values, and reads them all again at each step."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.longest, self.one_to_one = decoder.longest, decoder.one_to_one

    def start(self, memory: Memory, limit: int) -> tuple[Rows, Prefix]:
        """The context, and no tokens yet."""
        context, first = self.decoder.start(memory, limit)
        return context, Prefix(first, memory.valid.new_zeros(len(memory.valid), 0, dtype=torch.long))

    def forward(self, context: Rows, state: Prefix, tokens: Tensor) -> tuple[Tensor, Prefix]:
        """The states of the new tokens, from all tokens."""
        whole = torch.cat((state.tokens, tokens), dim=1)
        states, _ = self.decoder(context, state.first, whole)
        return states[:, -tokens.shape[1] :], Prefix(state.first, whole)


def translator(run: Loaded, beam: int, cached: bool) -> Translator:
    """A translator of batches of 64."""
    model = run.model if cached else Seq2Seq(run.model.encoder, Uncached(run.model.decoder), run.model.projection)
    settings = run.recipe.decoding.model_copy(update={"beam": beam, "batch": 64})
    return Translator(model, run.tokenizers[0], run.tokenizers[-1], settings)


def main() -> None:
    """Runs the contest and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    prepare_process(DeviceSettings(threads=2))
    run = load(options.run, None, options.overrides)
    test = load_split(run.recipe.data, "test")
    if test is None:
        raise SystemExit("the run's recipe has no test set")
    lines = list(test["source"])
    print(f"{len(lines):,} sentences, 2 threads, fp32, batches of 64")
    for beam in (1, 5):
        contestants = {name: translator(run, beam, name == "cached") for name in ("cached", "without cache")}
        speeds: dict[str, list[float]] = {name: [] for name in contestants}
        for first in range(0, len(lines), CHUNK):
            chunk, texts = lines[first : first + CHUNK], []
            for name, translate in contestants.items():
                began = time.perf_counter()
                texts.append([t.text for t in translate.translate_chunk(chunk)])
                speeds[name].append(len(chunk) / (time.perf_counter() - began))
            same = sum(a == b for a, b in zip(*texts, strict=True))
            print(f"  beam {beam}, sentences {first}–{first + len(chunk) - 1}: {same} of {len(chunk)} the same")
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        print(
            f"beam {beam}: {medians['cached']:.0f} sentences/s cached, {medians['without cache']:.0f} without: "
            f"{medians['cached'] / medians['without cache']:.2f}×"
        )


if __name__ == "__main__":
    main()
