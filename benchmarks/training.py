"""Training throughput of s2s against loops over torch.nn.Transformer, step by step in turn.

    python -m benchmarks.training --root DIR      # DIR holds train.en, train.de (Multi30k's files, .gz or not)

Everyone trains the same shape on the same pieces: width 256, 3+3 layers, feed-forward 1024, 8,000 joint pieces,
about 4,096 target positions a batch, dropout 0.1, Adam, clipping. The contestants take turns, one update each, so
that a noisy machine is noisy for all; what is compared is the median of real target tokens a second.

- s2s: what `s2s train` runs on this machine (bf16 where the processor has it).
- sorted: `torch.nn.Transformer` in fp32, batches of similar length, as a careful engineer writes it.
- unsorted: the same loop over shuffled, padded batches of as many sentences, as tutorials write it.
"""

import resource
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.contest import in_turns, multi30k, seconds
from benchmarks.keeping import asked
from s2s.data.batches import ParallelBatch, collate, make_batches
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import PAD
from s2s.models.base import Seq2Seq
from s2s.nn.embeddings import sinusoids
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DeviceSettings, SeedSettings
from s2s.tasks.seq2seq import translation_trainer
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.training.device import select_device, setup_process
from s2s.training.precision import benchmark_precision as measure_precision
from s2s.training.trainer import Trainer

WIDTH, HEADS, INNER, LAYERS, TOKENS, RATE = 256, 4, 1024, 3, 4096, 1e-4
Precision = Literal["auto", "fp32", "bf16"]


class TutorialTransformer(nn.Module):
    """torch.nn.Transformer with embeddings, positions and an output layer, as the usual tutorials have it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, WIDTH)
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)
        self.transformer = nn.Transformer(
            WIDTH, HEADS, LAYERS, LAYERS, INNER, dropout=0.1, batch_first=True, norm_first=True
        )
        self.register_buffer("positions", sinusoids(512, WIDTH))

    def forward(self, batch: ParallelBatch) -> Tensor:
        """The label-smoothed loss, averaged over real tokens."""
        read = self._embed(batch.source)
        written = self._embed(batch.target_in)
        causal = nn.Transformer.generate_square_subsequent_mask(written.shape[1])
        states = self.transformer(
            read,
            written,
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=torch.zeros(batch.source.shape).masked_fill(~batch.source_valid, float("-inf")),
            memory_key_padding_mask=torch.zeros(batch.source.shape).masked_fill(~batch.source_valid, float("-inf")),
        )
        logits = functional.linear(states, self.embedding.weight)
        return functional.cross_entropy(
            logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD, label_smoothing=0.1
        )

    def _embed(self, tokens: Tensor) -> Tensor:
        return functional.dropout(self.embedding(tokens) * WIDTH**0.5 + self.positions[: tokens.shape[1]], 0.1)


def tutorial_loop(
    size: int, batches: Iterator[ParallelBatch], precision: str = "fp32", rate: float = RATE
) -> Callable[[], tuple[int, float]]:
    """A plain training loop; each call is one update and returns its real target tokens and its smoothed loss."""
    torch.manual_seed(1)
    model = TutorialTransformer(size)
    adam = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98), eps=1e-9)

    def update() -> tuple[int, float]:
        batch = next(batches)
        adam.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        return batch.tokens, float(loss)

    return update


def s2s_trainer(
    data: TokenizedDataset,
    size: int,
    precision: Precision,
    rate: float = RATE,
    tokens: int = TOKENS,
    kind: str = "transformer",
) -> Trainer[Seq2Seq, ParallelBatch]:
    """The trainer of s2s; of a Transformer unless another kind of model is given."""
    torch.manual_seed(1)
    settings = {"kind": kind, "width": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "dropout": 0.1}
    if kind == "transformer":
        settings |= {"heads": HEADS, "feedforward": INNER}
    module = module_of(kind)
    model = module.build(module.Settings.model_validate(settings), size, size)
    device_context = select_device(DeviceSettings(kind="cpu", precision=precision))
    trainer = translation_trainer(
        model,
        data,
        TrainingSettings(updates=10_000, learning_rate=rate, schedule="constant", warmup=0),
        BatchSettings(tokens=tokens),
        SeedSettings(),
        device_context,
    )
    if device_context.autoselect_precision:
        trainer.device_context = replace(
            device_context, precision=measure_precision(trainer).faster, autoselect_precision=False
        )
    return trainer


def s2s_loop(data: TokenizedDataset, size: int, precision: Precision) -> Callable[[], tuple[int, float]]:
    """The trainer of s2s; each call is one update and returns its real target tokens and its plain loss."""
    updates = ((update.tokens, update.loss) for update in s2s_trainer(data, size, precision).updates(10_000))
    return lambda: next(updates)


def sorted_batches(data: TokenizedDataset, tokens: int = TOKENS) -> Iterator[ParallelBatch]:
    """Batches of similar length under the token budget: the same ones that s2s trains on."""
    epoch = 0
    while True:
        for rows in make_batches(data.source_lengths, data.target_lengths, tokens, 1, epoch):
            yield collate(*data.rows(rows), rows)
        epoch += 1


def unsorted_batches(data: TokenizedDataset, sentences: int) -> Iterator[ParallelBatch]:
    """Shuffled batches of a fixed number of sentences, padded to the longest."""
    generator = torch.Generator().manual_seed(1)
    while True:
        order = torch.randperm(len(data), generator=generator).numpy()
        for first in range(0, len(order) - sentences, sentences):
            rows = order[first : first + sentences]
            yield collate(*data.rows(rows), rows)


def speed(update: Callable[[], tuple[int, float]]) -> float:
    """Real target tokens a second of one update."""
    made: list[int] = []
    took = seconds(lambda: made.append(update()[0]))
    return made[0] / took


def main() -> None:
    """Runs the contest and prints a table."""
    parser = asked(__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder with Multi30k's files")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    setup_process(DeviceSettings(threads=2))
    data, tokenizer = multi30k(options.root)
    batches = make_batches(data.source_lengths, data.target_lengths, TOKENS, 1, 0)
    sentences = round(len(data) / len(batches))
    contestants = {
        "s2s": s2s_loop(data, tokenizer.size, "auto"),
        "s2s in fp32": s2s_loop(data, tokenizer.size, "fp32"),
        "nn.Transformer, sorted": tutorial_loop(tokenizer.size, sorted_batches(data)),
        "nn.Transformer, unsorted": tutorial_loop(tokenizer.size, unsorted_batches(data, sentences)),
    }
    speeds = in_turns({name: partial(speed, update) for name, update in contestants.items()}, options.rounds)
    base = statistics.median(speeds["s2s"])
    print(f"{'real target tokens/s':28} {'median':>8} {'min':>8} {'max':>8} {'s2s is':>8}")
    for name, values in speeds.items():
        median = statistics.median(values)
        print(f"{name:28} {median:8,.0f} {min(values):8,.0f} {max(values):8,.0f} {base / median:7.2f}×")
    print(f"peak memory of all together: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
