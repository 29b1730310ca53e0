"""The GPU benchmark, run in small on the CPU."""

import argparse
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu

    yield gpu
    for name in ("gpu", "gpu_parts", "gpu_questions", "gpu_training"):
        sys.modules.pop(name, None)


@pytest.fixture
def options(tmp_path) -> argparse.Namespace:
    return argparse.Namespace(out=tmp_path, data=None, device="cpu", tiny=True, only=None, minutes=10)


def _fake(tmp_path: Path, body: str) -> str:
    """A program that takes a part's arguments."""
    path = tmp_path / "fake.py"
    head = "import json, pathlib, subprocess, sys, time\nout, name = pathlib.Path(sys.argv[2]), sys.argv[-1]\n"
    path.write_text(head + body, encoding="utf-8")
    return str(path)


def test_gpu_benchmark_every_part_has_a_limit_and_the_usual_ones_fit_into_25_minutes(gpu):
    assert list(gpu.LIMITS) == list(gpu.gpu_parts.PARTS)
    assert sum(seconds for name, seconds in gpu.LIMITS.items() if name not in gpu.LATER) <= 25 * 60
    # what ends a single command after ten minutes ends no part
    assert max(gpu.LIMITS.values()) < 9 * 60


def test_part_that_fails_is_noted_and_the_others_go_on_and_are_not_repeated(gpu, options, tmp_path, monkeypatch):
    body = """
(out / "ran").open("a").write(name + "\\n")
if name == "scan" and (out / "ran").read_text().count("scan") == 1:
    sys.exit("no such kernel")
if name == "memory":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    time.sleep(60)
(out / f".{name}.json").write_text(json.dumps({"value": name}))
"""
    monkeypatch.setattr(gpu, "__file__", _fake(tmp_path, body))
    monkeypatch.setattr(gpu, "LIMITS", {"machine": 20, "scan": 20, "memory": 0.2})
    first = gpu.run_all(options, ["--out", str(tmp_path)])
    assert first == json.loads((tmp_path / "gpu.json").read_text())
    assert first["machine"]["value"] == "machine"
    assert (first["scan"]["error"], first["scan"]["told"].strip()) == ("ended with status 1", "no such kernel")
    assert first["memory"]["error"] == "took longer than 1 s"
    second = gpu.run_all(options, ["--out", str(tmp_path)])
    assert second["scan"]["value"] == "scan"
    assert (tmp_path / "ran").read_text().split() == ["machine", "scan", "memory", "scan", "memory"]


def test_gpu_benchmark_nothing_is_begun_when_the_minutes_are_over(gpu, options, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "__file__", _fake(tmp_path, "raise SystemExit(1)"))
    options.minutes = 0.1
    assert gpu.run_all(options, ["--out", str(tmp_path)]) == {}
    assert "machine: left for the next time" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["machine", "scan", "lengths", "speedup", "long", "precision"])
def test_gpu_benchmark_part_of_one_process_in_small(gpu, options, part):
    found = json.loads(json.dumps(gpu.gpu_parts.PARTS[part](options)))
    match part:
        case "machine":
            assert found["bf16_tflops"] > 0
        case "scan":
            assert all(its["error"] < 1e-5 and its["scan_ms"] > 0 for its in found.values())
        case "lengths":
            assert found["overtakes"]["16"].keys() == {"one", "full"}
            assert all(speed > 0 for kind in found["16"].values() for speed in kind.values())
        case "speedup":
            # no machine is faster than with as many processors as the work has
            bounds = [its for name, its in found.items() if name != "processors"]
            assert all(1 <= its["bound"] <= min(found["processors"], its["work"] / its["span"]) for its in bounds)
        case "long":
            assert all(0 <= its["right"] <= 1 and its["updates"] >= 2 for its in found.values())
        case "precision":
            # a tanh network's gradient fades, and sooner in the format with the fewest exponents
            assert found["rnn"]["fp64"] >= found["rnn"]["fp32"] >= found["rnn"]["fp16"]
            assert found["transformer"]["fp32"] == found["span"] - 1


def test_gpu_benchmark_operations_of_a_token_are_those_of_the_layers(gpu):
    width, inner, layers, pieces, length = 16, 32, 1, 50, 8
    from gpu_training import TINY_MODEL, Settings, flops_a_token

    settings = Settings(**TINY_MODEL)
    products = 4 * width**2 + 2 * width * inner + 8 * width**2 + 2 * width * inner + width * pieces
    scores = 3 * 2 * length * width
    # a multiplication and an addition, once there and twice back
    assert flops_a_token(settings, pieces, length) == pytest.approx(6 * (layers * products + scores))


def test_gpu_benchmark_without_its_data_a_part_says_so(gpu, options):
    options.tiny = False
    assert "no folder multi30k" in gpu.gpu_parts.multi30k(options)["skipped"]
    assert "no folder multi30k" in gpu.gpu_parts.quality(options)["skipped"]


@pytest.mark.slow
def test_gpu_benchmark_whole_command_in_small(gpu, options, tmp_path):
    options.only = list(gpu.LIMITS)
    found = gpu.run_all(options, ["--out", str(tmp_path), "--device", "cpu", "--tiny"])
    assert list(found) == list(gpu.LIMITS)
    assert {name: its["error"] for name, its in found.items() if "error" in its} == {}
    assert found["resume"]["transformer"]["resumed_to_the_same_bits"]
    assert found["tests"]["status"] == 0
    assert found["decoding"]["sentences"] == 40
    assert 0 < found["memory"]["fused"]["slope"] < 2.2
    assert found["costs"]["findings"]["memory"]
    assert len(found["quality"]["findings"]["quality"]) == 6
