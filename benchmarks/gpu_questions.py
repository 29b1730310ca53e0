"""The parts of `gpu.py` that compare architectures: cost by length, long texts, and gradients by precision."""

import time

import torch
from gpu_training import Found, Options, median_seconds, short
from torch import Tensor

from s2s.comparison.instruments import unfused
from s2s.comparison.matching import settings_of
from s2s.comparison.operations import Operations
from s2s.comparison.task_training import Budget, TaskModel, TaskRun
from s2s.data.synthetic_tasks import AssociativeRecall, Copying, SyntheticTask
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.training.device import DeviceContext

KINDS = ("rnn", "lstm", "lstm-attention", "mingru", "conv", "transformer")
_VOCABULARY = 1000
_TOKENS = 65_536
"""Target tokens of a full batch."""
_LANES = 128
"""Single-precision units of a multiprocessor; the same in NVIDIA's architectures since 2020 but for some."""


def _model(kind: str, width: int, longest: int, vocabulary: int = _VOCABULARY, layers: int = 2) -> Seq2Seq:
    options = {
        "width": width,
        "feedforward": 2 * width,
        "heads": 4,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "dropout": 0.0,
        "bidirectional": False,
        "reverse_source": False,
        "residual": False,
        "scale_embeddings": True,
        "max_positions": longest + 2,
    }
    torch.manual_seed(1)
    return module_of(kind).build(settings_of(kind, options), vocabulary, vocabulary)


def _tokens(rows: int, length: int, device: torch.device) -> Tensor:
    return torch.randint(4, _VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1)).to(device)


def lengths(options: Options) -> Found:
    """Target tokens a second, forward and backward, by model, width and length: of one pair, and of full batches."""
    device = torch.device(options.device)
    widths, sizes = ((16,), (8, 16)) if options.tiny else ((64, 512), (64, 256, 1024, 4096))
    found: Found = {}
    for width in widths:
        for kind in KINDS:
            model = _model(kind, width, sizes[-1]).to(device).train()
            own = found.setdefault(str(width), {}).setdefault(kind, {})
            for length in sizes:
                many = max(1, (64 if options.tiny else _TOKENS) // length)
                for rows, name in ((1, "one"), (many, "full")):
                    source = _tokens(rows, length, device)
                    try:
                        seconds = median_seconds(lambda m=model, s=source: _step(m, s), device, 5)
                    except torch.OutOfMemoryError:
                        own[f"{name} {length}"] = None
                        continue
                    own[f"{name} {length}"] = round(rows * length / seconds)
            print(width, kind, own, flush=True)
    return found | {"overtakes": {width: _overtakes(own, sizes) for width, own in found.items()}}


def _overtakes(by_kind: Found, sizes: tuple[int, ...]) -> Found:
    """The least length from which on the Transformer is faster than the LSTM, for one pair and for full batches."""
    faster = {
        name: [(by_kind["transformer"][f"{name} {n}"] or 0) > (by_kind["lstm"][f"{name} {n}"] or 0) for n in sizes]
        for name in ("one", "full")
    }
    return {name: next((n for i, n in enumerate(sizes) if all(won[i:])), None) for name, won in faster.items()}


def _step(model: Seq2Seq, tokens: Tensor) -> None:
    model.zero_grad(set_to_none=True)
    model(tokens, torch.ones_like(tokens, dtype=torch.bool), tokens).sum().backward()


def speedup(options: Options) -> Found:
    """Times faster than one thread of the processor, beside the bound of Brent (1974): work / (work / p + span)."""
    device = torch.device(options.device)
    width, sizes = (16, (8,)) if options.tiny else (64, (64, 256))
    processors = 2
    if device.type == "cuda":
        processors = _LANES * torch.cuda.get_device_properties(device).multi_processor_count
    threads, found = torch.get_num_threads(), Found(processors=processors)
    for kind in KINDS:
        for length in sizes:
            on_cpu, on_device = _model(kind, width, length).train(), _model(kind, width, length).to(device).train()
            here, there = _tokens(1, length, torch.device("cpu")), _tokens(1, length, device)
            with unfused(), Operations() as counted:
                _step(on_cpu, here)
            torch.set_num_threads(1)
            alone = median_seconds(lambda m=on_cpu, s=here: _step(m, s), torch.device("cpu"), 3)
            torch.set_num_threads(threads)
            measured = median_seconds(lambda m=on_device, s=there: _step(m, s), device, 5)
            found[f"{kind} {length}"] = {
                "measured": short(alone / measured),
                "bound": short(counted.work / (counted.work / processors + counted.span)),
                "work": counted.work,
                "span": counted.span,
            }
            print(kind, length, found[f"{kind} {length}"], flush=True)
    return found


def long_texts(options: Options) -> Found:
    """Copying and associative recall trained on long texts: right answers, for a given time of each training."""
    context = DeviceContext(torch.device(options.device), torch.float32)
    width, sizes, seconds, step = (16, (4,), 0.0, 2) if options.tiny else (128, (256, 1024, 4096), 8.0, 25)
    found: Found = {}
    for length in sizes:
        steps = tuple(length >> i for i in range(4) if length >> i)
        pairs = tuple(each // 2 for each in steps if each > 1)
        tasks: list[SyntheticTask] = [
            Copying(26, steps, sorted(steps)),
            AssociativeRecall(pairs, sorted(pairs), kinds=max(128, length)),
        ]
        for task in tasks:
            for kind in ("lstm", "lstm-attention", "mingru", "transformer"):
                model = _model(kind, width, length, task.vocabulary_size, layers=1)
                budget = Budget(100_000, every=step, trial=100_000, warmup=100)
                learner = TaskModel(model, width, task.classes)
                run = TaskRun(learner, task, 0.002, budget, 1, context, held_out=8)
                began = time.monotonic()
                while not run.update or (time.monotonic() - began < seconds and not run.solved and not run.failure):
                    run.continue_until(run.update + step)
                longest = max(task.tested)
                right, _ = run.right(longest, 8, torch.Generator().manual_seed(2))
                name = f"{task.name} {longest} {kind}"
                found[name] = {"updates": run.update, "solved": run.solved, "right": round(right, 3)}
                print(name, found[name], flush=True)
    return found


def precision(options: Options) -> Found:
    """The distance beyond which the gradient with respect to an input is 0, by the precision of the computation."""
    device = torch.device(options.device)
    span, width = (40, 16) if options.tiny else (4_000, 64)
    formats = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
    # not the plain sum: the sum of a normalized state is constant, and its gradient rounding noise
    direction = torch.randn(width, generator=torch.Generator().manual_seed(3))
    found: Found = {}
    for kind in ("rnn", "lstm", "mingru", "transformer"):
        own = found.setdefault(kind, {})
        for name, dtype in formats.items():
            encoder = _model(kind, width, span, layers=1).encoder.to(device, dtype)
            source = _tokens(1, span, device)
            try:
                # fused kernels lack some of the formats; plain operations have all of them
                with unfused():
                    vectors = encoder.embedding(source).detach().requires_grad_()
                    valid = torch.ones_like(source, dtype=torch.bool)
                    last = encoder.read(vectors, valid).states[:, -1]
                    (gradient,) = torch.autograd.grad((last * direction.to(last)).sum(), vectors)
            except (RuntimeError, NotImplementedError) as error:
                own[name] = f"not computed: {str(error).splitlines()[0]}"
                continue
            left = gradient.abs().amax(dim=2)[0].flip(0) > 0
            own[name] = int(left.nonzero().max()) if bool(left.any()) else 0
        print(kind, own, flush=True)
    return {"span": span} | found
