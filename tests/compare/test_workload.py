import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from s2s.comparison.workload import (
    EXPLICIT,
    UNFUSED,
    VOCABULARY,
    Form,
    backward,
    built,
    generated,
    loss_of,
    other_forms,
    states_of,
    supported_lengths,
    texts,
)
from s2s.training.device import DeviceContext, is_out_of_memory

CPU = torch.device("cpu")
MODELS = ["rnn", "lstm", "mingru", "conv", "transformer", "lstm-attention"]


@pytest.fixture
def make(contest):
    """A function that builds a small model."""

    def build(kind, longest=64):
        shared = contest([kind])
        return built(shared, shared.candidate(kind), longest, CPU)

    return build


@pytest.mark.parametrize("kind", MODELS)
def test_workload_every_form_computes_the_same(make, kind):
    model, pairs = make(kind).eval(), texts(3, 9, 7, CPU)
    with torch.no_grad():
        states = [states_of(model, pairs, form) for form in (Form(), EXPLICIT, UNFUSED)]
    for other in states[1:]:
        torch.testing.assert_close(other, states[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "forms"),
    [
        ("rnn", []),
        ("lstm", [UNFUSED]),
        ("lstm-attention", [EXPLICIT, UNFUSED]),
        ("transformer", [EXPLICIT]),
        ("conv", [EXPLICIT]),
    ],
)
def test_workload_other_forms_launch_other_operations(make, kind, forms):
    assert other_forms(make(kind)) == forms


def test_workload_models_support_the_longest_text(make):
    model = make("conv", longest=1500)
    assert supported_lengths(model, (16, 1024, 1500)) == [16, 1024, 1500]
    model.decoder.max_positions = 100
    assert supported_lengths(model, (16, 100, 101)) == [16, 100]


def test_workload_texts_are_the_same_each_time():
    pairs = texts(4, 9, 7, CPU)
    assert pairs.source.shape == (4, 9)
    assert pairs.target.shape == pairs.target_valid.shape == (4, 7)
    assert pairs.source.min() >= 4
    assert pairs.source.max() < VOCABULARY
    assert pairs.valid.all()
    assert torch.equal(texts(4, 9, 7, CPU).target, pairs.target)


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_workload_generation_is_greedy(make, kind):
    model, pairs = make(kind).eval(), texts(2, 5, 6, CPU)
    with torch.no_grad():
        words = torch.cat(list(generated(model, pairs)), dim=1)
        fed = torch.cat((pairs.target[:, :1], words[:, :-1]), dim=1)
        again = model.logits(pairs.source, pairs.valid, fed).argmax(dim=2)
    assert torch.equal(words, again)


def test_workload_flops_are_proportional_to_the_batch(make):
    # so those of one pair are enough
    model, counts = make("transformer"), []
    for rows in (1, 3):
        with FlopCounterMode(display=False) as flops:
            backward(loss_of(model, texts(rows, 8, 8, CPU), UNFUSED, DeviceContext(CPU, torch.float32)), UNFUSED)
        counts.append(flops.get_total_flops())
    assert counts[1] == 3 * counts[0]


def test_is_out_of_memory_recognizes_errors_of_cpu_and_gpu():
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes"))
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`"))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**58)
    assert is_out_of_memory(caught.value)
