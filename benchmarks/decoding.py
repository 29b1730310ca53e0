"""Decoding speed of a trained run, in both precisions, and without the key/value cache.

    python -m benchmarks.decoding runs/multi30k            # its own test set
    python -m benchmarks.decoding runs/multi30k data.root=DIR

Sentences a second for greedy search and beam 5, batches of 64, on 2 threads. The contestants take turns on the same
chunk of sentences: in fp32; in bf16 (`decoding.precision`); and without a cache, which feeds the whole prefix again at
every step, as a decoder without state does. It is said how many translations are those of fp32, and how good they are.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import sacrebleu
import torch
from torch import Tensor

from benchmarks.keeping import asked
from s2s.data.pairs import load_split
from s2s.decoding.generate import TextTranslator
from s2s.models.base import BatchedState, Decoder, EncoderOutput, Seq2Seq
from s2s.recipe.schema import DeviceSettings
from s2s.run.inference import load
from s2s.tasks.base import LoadedModel
from s2s.training.device import setup_process

CHUNK = 250
CONTESTANTS = ("fp32", "bf16", "without cache")


@dataclass(frozen=True)
class Prefix(BatchedState):
    """What has been fed, and the state before it."""

    first: BatchedState
    tokens: Tensor


class Uncached(Decoder):
    """A decoder that remembers tokens instead of keys and values, and reads them all again at each step."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.max_positions, self.is_one_to_one = decoder.max_positions, decoder.is_one_to_one

    def start(self, memory: EncoderOutput, limit: int) -> tuple[BatchedState, Prefix]:
        """The context, and no tokens yet."""
        context, first = self.decoder.start(memory, limit)
        return context, Prefix(first, memory.valid.new_zeros(len(memory.valid), 0, dtype=torch.long))

    def forward(self, context: BatchedState, state: Prefix, tokens: Tensor) -> tuple[Tensor, Prefix]:
        """The states of the new tokens, from all tokens."""
        whole = torch.cat((state.tokens, tokens), dim=1)
        states, _ = self.decoder(context, state.first, whole)
        return states[:, -tokens.shape[1] :], Prefix(state.first, whole)


def translator(run: LoadedModel, beam: int, how: str) -> TextTranslator:
    """A translator of batches of 64."""
    cached = how != "without cache"
    model = run.model if cached else Seq2Seq(run.model.encoder, Uncached(run.model.decoder), run.model.projection)
    changes = {"beam": beam, "batch": 64, "precision": "bf16" if how == "bf16" else "fp32"}
    return TextTranslator(model, run.tokenizers[0], run.tokenizers[-1], run.recipe.decoding.model_copy(update=changes))


def contest(run: LoadedModel, pairs: Sequence[dict[str, str]], beam: int) -> None:
    """Lets all translate, chunk by chunk in turns, and prints a line for each."""
    translators = {how: translator(run, beam, how) for how in CONTESTANTS}
    speeds: dict[str, list[float]] = {how: [] for how in CONTESTANTS}
    texts: dict[str, list[str]] = {how: [] for how in CONTESTANTS}
    for first in range(0, len(pairs), CHUNK):
        chunk = [pair["source"] for pair in pairs[first : first + CHUNK]]
        for how, translate in translators.items():
            began = time.perf_counter()
            texts[how] += [t.text for t in translate.translate_chunk(chunk)]
            speeds[how].append(len(chunk) / (time.perf_counter() - began))
    references = [pair["target"] for pair in pairs]
    for how, written in texts.items():
        ratio = statistics.median(a / b for a, b in zip(speeds[how], speeds[CONTESTANTS[0]], strict=True))
        same = sum(a == b for a, b in zip(written, texts[CONTESTANTS[0]], strict=True))
        bleu = sacrebleu.corpus_bleu(written, [references]).score
        print(
            f"beam {beam}, {how:14} {statistics.median(speeds[how]):6.0f} sentences/s, {ratio:.2f}×, "
            f"{same:,} of {len(pairs):,} the same, BLEU {bleu:.2f}"
        )


def main() -> None:
    """Runs the contest and prints a table."""
    parser = asked(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    setup_process(DeviceSettings(threads=2))
    run = load(options.run, None, options.overrides)
    test = load_split(run.recipe.data, "test")
    if test is None:
        raise SystemExit("the run's recipe has no test set")
    pairs = cast(Sequence[dict[str, str]], list(test))
    print(f"{len(pairs):,} sentences, 2 threads, batches of 64")
    for beam in (1, 5):
        contest(run, pairs, beam)


if __name__ == "__main__":
    main()
