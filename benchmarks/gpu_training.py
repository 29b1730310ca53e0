"""The parts of `gpu.py` that train: how fast, of what peak, and how many trainings beside each other."""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import islice, product
from threading import Barrier
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from s2s.comparison.instruments import spent, unfused
from s2s.comparison.workers import Workers
from s2s.data.tokenized import TokenizedDataset
from s2s.models.base import count_parameters
from s2s.models.transformer import Settings, build
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DeviceSettings, SeedSettings
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.tasks.translation.task import translation_trainer
from s2s.training.device import PRECISION_NAMES, DeviceContext
from s2s.training.precision import benchmark_precision
from s2s.training.trainer import Trainer

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


def small(options: Options) -> Found:
    """Milliseconds of an update of models of a comparison's size, with 1,024 tokens: hardly more than launching it."""
    device, found, measured = torch.device(options.device), Found(), 2 if options.tiny else 60
    kinds = ("rnn", "lstm", "lstm-attention", "mingru", "conv", "transformer")
    for kind, (dtype, name) in product(kinds, PRECISION_NAMES.items()):
        trainer = small_training(kind, DeviceContext(device, dtype), options.tiny)
        found[f"{kind}, auto"] = str(benchmark_precision(trainer))
        steps = trainer.updates(10_000)
        list(islice(steps, measured))
        seconds = spent(lambda steps=steps: list(islice(steps, measured)), device)
        found[f"{kind}, {name}"] = short(1000 * seconds / measured)
    return found


def small_training(kind: str, device_context: DeviceContext, tiny: bool) -> Trainer[Any, Any]:
    """The training of a model of a comparison's size."""
    data = random_pairs(60 if tiny else 6000, 4000)
    torch.manual_seed(1)
    module = module_of(kind)
    model = module.build(module.Settings(kind=kind, width=96, encoder_layers=2, decoder_layers=2), 4000, 4000)
    recipe, batches = TrainingSettings(updates=10_000, learning_rate=1e-4), BatchSettings(tokens=1024)
    return translation_trainer(model.to(device_context.device), data, recipe, batches, SeedSettings(), device_context)


def beside(options: Options) -> Found:
    """Updates a second of all small trainings together, by how many there are beside each other."""
    found: Found = {"kind": "lstm-attention", "updates_per_second": {}}
    for number in (1, 2) if options.tiny else (1, 2, 4, 8):
        with (
            multiprocessing.get_context("spawn").Manager() as manager,
            Workers(number, DeviceSettings(kind=options.device)) as workers,
        ):
            call = partial(_counted, options.device, options.tiny, manager.Barrier(number))
            counts = [count for _, count in workers.map_unordered(call, [found["kind"]] * number)]
        together = sum(count or 0 for count in counts) / _seconds(options.tiny)
        found["updates_per_second"][str(number)] = round(together, 1)
        print(number, counts, flush=True)
    return found


def _seconds(tiny: bool) -> float:
    return 1.0 if tiny else 6.0


def _counted(device: str, tiny: bool, together: Barrier, kind: str) -> int:
    """Updates of a training in some seconds, begun when all others are warm, too."""
    device_context = DeviceContext(torch.device(device), torch.bfloat16 if device == "cuda" else torch.float32)
    steps = small_training(kind, device_context, tiny).updates(10_000)
    list(islice(steps, 2 if tiny else 60))
    together.wait()
    until, count = time.perf_counter() + _seconds(tiny), 0
    while time.perf_counter() < until:
        next(steps)
        count += 1
    return count


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
