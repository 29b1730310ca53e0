"""The parts of `gpu.py`: each takes the options and gives back what JSON can hold."""

import json
import math
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch
from gpu_questions import lengths, long_texts, precision, speedup
from gpu_training import BASE, TINY_MODEL, Found, Options, median_seconds, short, training

from baselines.scan import scan
from s2s.comparison.instruments import peak_bytes, spent
from s2s.data.pairs import load_split
from s2s.decoding.generate import TextTranslator
from s2s.errors import UserError
from s2s.models.transformer import Settings, build
from s2s.run.inference import load
from s2s.run.tasks import read
from s2s.training.device import DeviceContext
from s2s.training.loss import cross_entropy
from s2s.training.tensor_files import read_tensors

ROOT = Path(__file__).parents[1]


def machine(options: Options) -> Found:
    """What computes, and what it can do at best: products in bf16 and fp32, and copies."""
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    side = 256 if options.tiny else 8192
    found: Found = {
        "device": torch.cuda.get_device_name(device) if cuda else platform.processor() or device.type,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "tiny": options.tiny,
    }
    if cuda:
        found["memory_gib"] = round(torch.cuda.get_device_properties(device).total_memory / 2**30, 1)
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        # random numbers: zeros are multiplied faster than real data are
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        found[f"{name}_tflops"] = short(2 * side**3 / median_seconds(lambda a=a, b=b: a @ b, device) / 1e12)
    large = torch.randn(2**18 if options.tiny else 2**30, device=device)
    other = torch.empty_like(large)
    seconds = median_seconds(lambda: other.copy_(large), device)
    found["copy_tb_per_second"] = short(2 * 4 * large.numel() / seconds / 1e12)
    return found


def tests(options: Options) -> Found:
    """The equalities of the fast tests, and every task, computed on the device."""
    where = ["tests/devices/test_on_device.py", "tests/devices/test_tasks.py"]
    # four contexts on a GPU
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0" if options.tiny else "4", "-m", ""]
    command += ["-p", "no:cacheprovider", *where]
    environment = os.environ | {"S2S_TEST_DEVICE": options.device, "S2S_TEST_ALL": "0" if options.tiny else "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error|skipped)", done.stdout)}
    failed = re.findall(r"^(?:FAILED|ERROR) (.*)$", done.stdout, re.M)
    return {"status": done.returncode, "counts": counts, "failed": failed}


RUN = """
name: resume
data: {train: 400, validation: 8, test: 4}
tokenizer: {kind: char, size: 200}
batches: {tokens: 400}
model: {kind: KIND, width: 32, encoder_layers: 1, decoder_layers: 1, dropout: 0.2}
training: {updates: 60, warmup: 10, learning_rate: 0.003, tokens_per_update: 700, ema: 0.9}
validation: {every: 20, metric: loss, sentences: 3}
"""


def resume(options: Options) -> Found:
    """Whether a run that is killed and resumed ends with the bits of one that was not."""
    kinds = ["transformer"] if options.tiny else ["transformer", "lstm-attention", "mingru"]
    with ThreadPoolExecutor() as pool:
        return dict(zip(kinds, pool.map(partial(_killed, options), kinds), strict=True))


def _killed(options: Options, kind: str) -> Found:
    folder = options.out / "resume"
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / f"{kind}.yaml"
    recipe.write_text(RUN.replace("KIND", kind), encoding="utf-8")
    asked = [f"device.kind={options.device}", "device.deterministic=true"]
    try:
        read(recipe, asked)
    except UserError as error:
        asked, deterministic = asked[:1], f"not available: {error.what}"
    else:
        deterministic = "asked for"
    # cuBLAS repeats itself only with buffers of a fixed size
    environment = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    command = [sys.executable, "-m", "s2s.cli.main", "train"]
    runs = [folder / f"{kind}-{name}" for name in ("whole", "again", "killed")]
    for run in runs[:2]:
        subprocess.run([*command, str(recipe), f"run.dir={run}", "--overwrite", *asked], env=environment, check=True)
    process = subprocess.Popen([*command, str(recipe), f"run.dir={runs[2]}", "--overwrite", *asked], env=environment)
    metrics = runs[2] / "metrics.jsonl"
    while process.poll() is None and (not metrics.exists() or metrics.read_bytes().count(b'"gradient_norm"') < 30):
        time.sleep(0.01)
    in_time = process.poll() is None
    process.kill()
    process.wait()
    subprocess.run([*command, str(runs[2]), "--resume"], env=environment, check=True)
    whole, again, killed = (read_tensors(run / "checkpoints/0000060/training.safetensors") for run in runs)
    return {
        "deterministic": deterministic,
        "killed_in_time": in_time,
        "twice_the_same_bits": _equal(whole, again),
        "resumed_to_the_same_bits": _equal(whole, killed),
    }


def _equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def multi30k(options: Options) -> Found:
    """The recipe to its score; in tiny sizes, the built-in corpus in its place."""
    run = options.out / "multi30k"
    # ended by its limit, it goes on from there
    asked = [f"run.dir={run}", f"device.kind={options.device}", "run.save_minutes=1"]
    if options.tiny:
        recipe = "translate"
        asked += ["data.train=2000", "data.validation=20", "data.test=40", "tokenizer.size=500", "training.updates=20"]
        asked += ["training.warmup=5", "validation.every=10", "model.width=16", "model.heads=2", "model.feedforward=32"]
    elif options.data is None or not (options.data / "multi30k").is_dir():
        return {"skipped": f"no folder multi30k in --data ({options.data})"}
    else:
        recipe = "multi30k"
        asked += [f"data.root={options.data / 'multi30k'}", "validation.every=2000"]
    command = [sys.executable, "-m", "s2s.cli.main", "train"]
    begun = (run / "manifest.json").exists()
    words = [str(run), "--resume"] if begun else [str(ROOT / "recipes" / f"{recipe}.yaml"), *asked]
    subprocess.run([*command, *words], check=True)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    updates = [line for line in lines if "loss" in line]
    scores = json.loads((run / "evaluation-test.json").read_text(encoding="utf-8"))["scores"]
    return {
        "recipe": recipe,
        "scores": scores,
        "updates": len(updates),
        "seconds_of_updates": round(sum(line["seconds"] for line in updates), 1),
        "target_tokens_per_second": round(sum(u["tokens"] for u in updates) / sum(u["seconds"] for u in updates)),
    }


def decoding(options: Options) -> Found:
    """Sentences a second of the run that the part before trained, greedy and with a beam of five."""
    path = options.out / "multi30k"
    if not path.is_dir():
        return {"skipped": "multi30k left no run"}
    run = load(path)
    test = load_split(run.recipe.data, "test")
    lines = list(test["source"]) if test is not None else []
    found: Found = {"sentences": len(lines)}
    for beam in (1, 5):
        for batch in (64, 256):
            settings = run.recipe.decoding.model_copy(update={"beam": beam, "batch": batch})
            translate = TextTranslator(run.model, run.tokenizers[0], run.tokenizers[-1], settings)
            translate.translate_chunk(lines[:batch])
            seconds = spent(lambda t=translate: t.translate_chunk(lines), run.device_context.device)
            found[f"beam {beam}, batches of {batch}"] = round(len(lines) / seconds, 1)
    return found


def scanning(options: Options) -> Found:
    """The parallel scan against the loop over time: milliseconds there and back, and whether they agree."""
    device = torch.device(options.device)
    batch, width, lengths = (2, 8, (16, 33)) if options.tiny else (16, 256, (512, 1024, 4096))
    found: Found = {}
    for length in lengths:
        torch.manual_seed(0)
        decay = torch.rand(batch, length, width, device=device).requires_grad_()
        update = torch.randn(batch, length, width, device=device).requires_grad_()
        start = torch.zeros(batch, width, device=device)
        terms = (decay, update, start)
        ways = {"scan": lambda terms=terms: scan(*terms), "loop": lambda terms=terms: loop(*terms)}
        states = [way().detach() for way in ways.values()]
        error = float((states[0] - states[1]).norm() / states[1].norm())
        times = {
            name: 1000 * median_seconds(lambda way=way: way().sum().backward(), device, 10 if name == "scan" else 3)
            for name, way in ways.items()
        }
        found[str(length)] = {f"{name}_ms": round(ms, 3) for name, ms in times.items()} | {
            "times": round(times["loop"] / times["scan"], 1),
            "error": error,
        }
    return found


def loop(decay: torch.Tensor, update: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """The recurrence, step by step."""
    states = []
    for keep, add in zip(decay.unbind(1), update.unbind(1), strict=True):
        state = keep * state + add
        states.append(state)
    return torch.stack(states, dim=1)


def memory(options: Options) -> Found:
    """How the peak of an update grows with the length: the exponent between the two longest, for both attentions."""
    device = torch.device(options.device)
    lengths = (16, 48) if options.tiny else (1024, 2048, 4096, 8192)
    shape = TINY_MODEL if options.tiny else BASE | {"width": 256, "heads": 4, "feedforward": 1024}
    found: Found = {}
    for kind in ("fused", "explicit"):
        torch.manual_seed(0)
        model = build(Settings(**shape, attention=kind, dropout=0.1), 1000, 1000).to(device).train()
        device_context, peaks = DeviceContext(device, torch.bfloat16), {}
        for length in lengths:
            tokens = torch.randint(4, 1000, (1, length)).to(device)
            valid = torch.ones_like(tokens, dtype=torch.bool)

            def work(tokens=tokens, valid=valid, model=model, device_context=device_context) -> None:
                with device_context.mixed_precision():
                    loss = cross_entropy(model(tokens, valid, tokens), model.projection.weight, tokens, valid)[0]
                loss.backward()

            work()
            try:
                peaks[length] = peak_bytes(work, device)
            except torch.OutOfMemoryError:
                break
        longest, before = sorted(peaks)[-1], sorted(peaks)[-2]
        slope = math.log(peaks[longest] / peaks[before]) / math.log(longest / before)
        found[kind] = {"mib": {n: round(b / 2**20, 2) for n, b in peaks.items()}, "slope": round(slope, 3)}
    return found


def costs(options: Options) -> Found:
    """What the lecture's six models, as deep as it chose them, cost on this machine: rows that need no training."""
    lecture = json.loads((ROOT / "docs/comparison-lecture/comparison.json").read_text(encoding="utf-8"))
    words = [*lecture["models"], f"device.kind={options.device}", "device.precision=fp32"]
    for each in lecture["contenders"]:
        for key in ("encoder_layers", "decoder_layers", "residual"):
            if each["settings"].get(key):
                words.append(f"{each['model']}.{key}={json.dumps(each['settings'][key])}")
    asked = ["memory"] if options.tiny else ["parallelism", "memory", "decoding"]
    words += ["--profile", "quick" if options.tiny else "lecture"]
    return _compared(options.out / "costs", words + [word for name in asked for word in ("--experiment", name)])


def quality(options: Options) -> Found:
    """The six models on Multi30k, each tuned, five seeds: quality, and quality on longer texts; goes on each time."""
    lecture = json.loads((ROOT / "docs/comparison-lecture/comparison.json").read_text(encoding="utf-8"))
    words = [*lecture["models"], f"device.kind={options.device}", "device.precision=fp32", "--experiment", "quality"]
    if options.tiny:
        words += ["--profile", "quick", "--seeds", "1", "data.train=200", "data.validation=8", "data.test=8"]
        words += ["tokenizer.size=450", "batches.tokens=400", "model.width=32", "training.updates=5"]
        words += ["training.warmup=2", "validation.every=5", "decoding.max_ratio=0.5", "decoding.max_extra=1"]
    elif options.data is None or not (options.data / "multi30k").is_dir():
        return {"skipped": f"no folder multi30k in --data ({options.data})"}
    else:
        words += ["--experiment", "bottleneck", "--profile", "definitive", f"data.root={options.data / 'multi30k'}"]
    return _compared(options.out / "quality", words)


def _compared(out: Path, words: list[str]) -> Found:
    """Goes on with a comparison, or begins the one that these words ask for; what its table says."""
    command = [sys.executable, "-m", "s2s.cli.main", "compare"]
    begun = (out / "comparison.json").exists()
    subprocess.run([*command, *(["--resume", str(out)] if begun else [*words, "--out", str(out)])], check=True)
    findings = {}
    for path in sorted(out.glob("*/result.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        findings[result["experiment"]] = result["findings"]
    return {"findings": findings}


PARTS: dict[str, Callable[[Options], Found]] = {
    "machine": machine,
    "lengths": lengths,
    "costs": costs,
    "speedup": speedup,
    "long": long_texts,
    "precision": precision,
    "scan": scanning,
    "memory": memory,
    "tests": tests,
    "resume": resume,
    "training": training,
    "multi30k": multi30k,
    "decoding": decoding,
    "quality": quality,
}
