"""The part of `gpu.py` that trains: how fast, and with what share of the peak."""

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from s2s.comparison.instruments import spent, unfused
from s2s.data.tokenized import TokenizedDataset
from s2s.models.base import count_parameters
from s2s.models.transformer import Settings, build
from s2s.recipe.schema import SeedSettings
from s2s.tasks.seq2seq import translation_trainer
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.training.device import DeviceContext
from s2s.training.precision import benchmark_precision

Options = argparse.Namespace
Found = dict[str, Any]

TINY_MODEL = {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1}
# Vaswani et al. (2017), table 3
BASE = {"width": 512, "heads": 8, "feedforward": 2048, "encoder_layers": 6, "decoder_layers": 6}
BIG = {"width": 1024, "heads": 16, "feedforward": 4096, "encoder_layers": 6, "decoder_layers": 6}


def short(value: float) -> float:
    """Four digits that count."""
    return float(f"{value:.4g}")


def median_seconds(work: Callable[[], object], device: torch.device, repetitions: int = 10) -> float:
    """The median of some repetitions, after three to warm up."""
    times = [spent(work, device) for _ in range(repetitions + 3)]
    return statistics.median(times[3:])


def training(options: Options) -> Found:
    """Target tokens a second in bf16, and the share of the measured peak that the model's own products use."""
    shapes = {"tiny": TINY_MODEL} if options.tiny else {"base": BASE, "big": BIG}
    peak = _products_per_second(options)
    return {name: _throughput(options, shape, peak) for name, shape in shapes.items()}


def _products_per_second(options: Options) -> float:
    device, side = torch.device(options.device), 256 if options.tiny else 8192
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * side**3 / median_seconds(lambda: a @ b, device)


def _throughput(options: Options, shape: dict[str, int], peak: float) -> Found:
    device = torch.device(options.device)
    pieces, tokens, updates = (50, 200, 3) if options.tiny else (32_000, 25_000, 40)
    data = random_pairs(60 if options.tiny else 60_000, pieces)
    torch.manual_seed(1)
    model = build(Settings(**shape, dropout=0.1), pieces, pieces).to(device)
    trainer = translation_trainer(
        model,
        data,
        TrainingSettings(updates=10_000, learning_rate=1e-4),
        BatchSettings(tokens=tokens),
        SeedSettings(),
        DeviceContext(device, torch.bfloat16),
    )
    taken = benchmark_precision(trainer)
    steps, first = trainer.updates(10_000), 1 if options.tiny else 10
    for _ in range(first):
        # to ask for the loss is to wait
        print(f"loss {next(steps).loss:.3f}", flush=True)
    counted = 0

    def work() -> None:
        nonlocal counted
        for _ in range(updates):
            last = next(steps)
            counted += last.tokens
        print(f"loss {last.loss:.3f}", flush=True)

    seconds = spent(work, device)
    flops = flops_a_token(Settings(**shape), pieces)
    found = {
        "parameters": count_parameters(model),
        "target_tokens_per_second": round(counted / seconds),
        "updates_per_second": round(updates / seconds, 2),
        "tokens_per_update": round(counted / updates),
        "flops_per_target_token": flops,
        "utilisation": short(flops * counted / seconds / peak),
        "auto": str(taken),
    }
    if device.type == "cuda":
        found["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        torch.cuda.reset_peak_memory_stats()
    return found


def flops_a_token(settings: Settings, pieces: int, length: int = 32) -> float:
    """Floating-point operations of a model's products per target token of a pair of equal sides, there and back."""
    explicit = settings.model_copy(update={"attention": "explicit"})
    with torch.device("meta"):
        # sinusoids are numbers even where nothing else is
        model = build(explicit, pieces, pieces).to("meta")
        tokens = torch.zeros(4, length, dtype=torch.long)
        valid = torch.ones(4, length, dtype=torch.bool)
        with unfused(), FlopCounterMode(display=False) as flops:
            model.logits(tokens, valid, tokens).sum().backward()
    return flops.get_total_flops() / tokens.numel()


def random_pairs(count: int, pieces: int) -> TokenizedDataset:
    """Pairs of random pieces, 20 to 60 on each side."""
    generator = np.random.default_rng(0)
    return TokenizedDataset.from_rows(
        *(
            [generator.integers(4, pieces, n, dtype=np.int32) for n in generator.integers(20, 61, count)]
            for _ in range(2)
        )
    )
