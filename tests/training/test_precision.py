"""`precision: auto` follows its benchmark, and a run keeps its precision."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import EOS
from s2s.decoding.beam_search import Beam, search
from s2s.errors import UserError
from s2s.models.transformer import Settings, build
from s2s.nn import precision as nn_precision
from s2s.nn.precision import autocast_matmul, fp32_layers
from s2s.recipe.schema import DeviceSettings, SeedSettings
from s2s.tasks.seq2seq import translation_trainer
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.training import precision
from s2s.training.device import parse_precision, select_device, setup_process
from s2s.training.precision import PrecisionBenchmark, benchmark_precision, check_precision
from s2s.training.trainer import Trainer

FP32 = torch.float32


def _trainer() -> Trainer:
    generator = np.random.default_rng(0)
    sides = [[list(generator.integers(4, 20, generator.integers(1, 9))) for _ in range(60)] for _ in range(2)]
    torch.manual_seed(0)
    return translation_trainer(
        build(Settings(width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1, dropout=0.2), 20, 20),
        TokenizedDataset.from_rows(*sides),
        TrainingSettings(updates=10, warmup=2, learning_rate=0.01),
        BatchSettings(tokens=50),
        SeedSettings(),
        select_device(DeviceSettings(kind="cpu")),
    )


def _seen(trainer):
    """What the gradients of a trainer are computed of, and in which precision."""
    seen, whole = [], trainer.loss

    def loss(model, batch):
        assert model.training
        seen.append((batch.source, torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else FP32))
        return whole(model, batch)

    trainer.loss = loss
    return seen


def test_gradients_of_the_first_batches_are_measured_in_both_precisions(monkeypatch):
    trainer = _trainer()
    count = len(trainer.groups)
    first = [trainer.examples.collate(batches[0], 0).source for batches in trainer.groups]
    assert len({each.shape for each in first}) > 2
    seen = _seen(trainer)
    # by this clock the very first gradients take longest, and of the others bf16's half of fp32's time
    taken = [50.0, 90.0, *(seconds for _ in range(24) for seconds in (4.0, 2.0))]
    ticks = iter([tick for seconds in taken for tick in (0.0, seconds)])
    monkeypatch.setattr(precision, "_PATIENCE", 1e9)
    clock = SimpleNamespace(process_time=lambda: next(ticks), perf_counter=lambda: 0.0)
    monkeypatch.setattr(precision, "time", clock)
    measured = benchmark_precision(trainer)
    assert [dtype for _, dtype in seen] == 25 * [FP32, torch.bfloat16]
    # one batch after the other, as in training; those of an epoch again where it has too few
    assert all(torch.equal(source, first[i // 2 % count]) for i, (source, _) in enumerate(seen))
    assert measured == PrecisionBenchmark(fp32=4.0, bf16=2.0, threads=torch.get_num_threads())
    assert measured.faster == torch.bfloat16


def test_precision_benchmark_measures_slow_steps_three_times(monkeypatch):
    trainer = _trainer()
    seen = _seen(trainer)
    monkeypatch.setattr(precision, "_PATIENCE", 0.0)
    benchmark_precision(trainer)
    assert [dtype for _, dtype in seen] == 3 * [FP32, torch.bfloat16]


def test_precision_training_is_the_same_whether_it_was_measured_or_not():
    plain, measured = _trainer(), _trainer()
    torch.manual_seed(3)
    benchmark_precision(measured)
    after = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(3), after)
    assert all(p.grad is None for p in measured.model.parameters())
    for trainer in (plain, measured):
        assert [update.update for update in trainer.updates(4)] == [1, 2, 3, 4]
    assert all(map(torch.equal, plain.model.parameters(), measured.model.parameters()))


@pytest.mark.parametrize(("fp32", "bf16", "faster"), [(1.0, 2.0, torch.float32), (2.0, 1.0, torch.bfloat16)])
def test_precision_faster_one_is_taken_and_said(fp32, bf16, faster):
    measured = PrecisionBenchmark(fp32, bf16, threads=1)
    assert measured.faster == faster
    name, other = ("bf16", "fp32") if faster == torch.bfloat16 else ("fp32", "bf16")
    assert str(measured) == f"precision: {name} (a gradient takes 0.50 times as long as in {other} on this device)"
    near = PrecisionBenchmark(1.0, 0.9, threads=1)
    assert "; another start may choose the other, --precision-of RUN this one)" in str(near)


def test_precision_bf16_is_taken_where_fp32_does_not_fit():
    measured = PrecisionBenchmark(None, 2.0, threads=1)
    assert measured.faster == torch.bfloat16
    assert str(measured).startswith("precision: bf16 (in fp32 a gradient needs more than half of the device's memory")


@pytest.mark.parametrize(
    ("given", "undecided"),
    [({}, True), ({"compile": True}, False), ({"precision": "bf16"}, False), ({"precision": "fp32"}, False)],
)
def test_precision_gpu_with_bf16_is_measured_but_for_a_compiled_model(given, undecided, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    device_context = select_device(DeviceSettings(kind="cuda", **given))
    assert device_context.autoselect_precision == undecided
    assert device_context.precision == (torch.float32 if given.get("precision") == "fp32" else torch.bfloat16)


def test_precision_gpu_without_bf16_computes_in_fp32(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    device_context = select_device(DeviceSettings(kind="cuda"))
    assert (device_context.autoselect_precision, device_context.precision) == (False, torch.float32)


def test_written_computer_tells_its_precision():
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        assert parse_precision(str(select_device(DeviceSettings(kind="cpu", precision=name)))) == dtype
    undecided = select_device(DeviceSettings(kind="cpu"))
    assert undecided.autoselect_precision
    assert parse_precision(str(undecided)) is None


class _NoBf16(torch.nn.Linear):
    """A layer whose kernel has no bf16 version, as oneDNN's LSTM on a CPU without AVX-512."""

    def forward(self, given):
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("could not create a primitive descriptor for the LSTM forward propagation primitive")
        return super().forward(given)


def _without_bf16(trainer: Trainer) -> Trainer:
    for layer in trainer.model.encoder.modules():
        if type(layer) is torch.nn.Linear:
            layer.__class__ = _NoBf16
    return trainer


def test_precision_auto_takes_fp32_where_bf16_raises_and_says_why():
    measured = benchmark_precision(_without_bf16(_trainer()))
    assert (measured.faster, measured.bf16) == (torch.float32, None)
    assert str(measured).startswith(
        "precision: fp32 (bf16 does not work for this model on this device: could not create"
    )


def test_precision_bf16_that_raises_is_refused_before_training():
    trainer = _without_bf16(_trainer())
    trainer.device_context = select_device(DeviceSettings(kind="cpu", precision="bf16"))
    with pytest.raises(
        UserError, match=r"cannot be computed in bf16 on this device: could not create(.|\n)*precision=fp32"
    ):
        check_precision(trainer)
    trainer.device_context = select_device(DeviceSettings(kind="cpu", precision="fp32"))
    check_precision(trainer)
    with pytest.raises(UserError, match="cannot be computed in bf16"):
        check_precision(trainer, torch.bfloat16)


def test_precision_search_in_bf16_that_raises_is_a_clear_error():
    model = _without_bf16(_trainer()).model.eval()
    source = torch.tensor([[5, 6, EOS]])
    with pytest.raises(UserError, match="cannot be computed in bf16"):
        search(model, source, source > 0, np.array([3]), Beam(2, precision=torch.bfloat16))
    assert search(model, source, source > 0, np.array([3]), Beam(2))[0]


@pytest.mark.parametrize("bidirectional", [False, True])
def test_precision_lstm_layers_run_in_fp32_where_there_is_no_bf16_kernel(bidirectional, monkeypatch):
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(8, 8, batch_first=True, bidirectional=bidirectional)
    x = torch.randn(2, 3, 8)
    assert fp32_layers(lstm, {torch.float32}, x.device) == ""
    monkeypatch.setattr(nn_precision, "has_bf16_lstm", lambda: False)
    assert "LSTM layers run in fp32" in fp32_layers(lstm, {torch.bfloat16}, x.device)
    assert fp32_layers(torch.nn.GRU(8, 8), {torch.bfloat16}, x.device) == ""
    with autocast_matmul(torch.bfloat16, x.device):
        # what comes before may be in bf16
        found, _ = lstm(x)
        also, _ = lstm(x.bfloat16())
        product = torch.nn.functional.linear(x, torch.eye(8))
    assert torch.equal(found, lstm(x)[0])
    torch.testing.assert_close(also, found, atol=0.02, rtol=0.02)
    assert (found.dtype, product.dtype) == (torch.float32, torch.bfloat16)
    found.sum().backward()
    assert all(p.grad is not None for p in lstm.parameters())


def test_precision_has_bf16_lstm_tells_what_an_lstm_does():
    lstm, x = torch.nn.LSTM(8, 8, batch_first=True), torch.randn(2, 3, 8)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            lstm(x)[0].float().sum().backward()
        works = True
    except RuntimeError:
        works = False
    assert nn_precision.has_bf16_lstm() == works


def test_precision_more_threads_than_a_machine_can_use_are_refused():
    before = torch.get_num_threads()
    with pytest.raises(UserError, match=r"device.threads: is 2,048, but this machine has \d+ CPU cores"):
        setup_process(DeviceSettings(threads=2048))
    assert torch.get_num_threads() == before


def test_precision_cpu_without_a_compiler_compiles_nothing(monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent/g++")
    with pytest.raises(UserError, match=r"device.compile: needs a C\+\+ compiler"):
        select_device(DeviceSettings(kind="cpu", compile=True))
