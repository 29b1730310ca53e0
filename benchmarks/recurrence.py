"""What the form of a recurrence costs: one fused pass, one parallel scan, or a Python loop over time.

    python benchmarks/recurrence.py                  # layers alone
    python benchmarks/recurrence.py --root DIR       # and whole models, trained on Multi30k's files

The forms compute the same numbers, which is checked, and take turns, so that a noisy machine is noisy for all. Forward
and backward; medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from baselines.cells import LSTM, Cell, MinGRU
from baselines.scan import scan
from s2s.data.encoding import Encoded, encode_corpus
from s2s.data.pairs import load
from s2s.data.tokenizers import train_pair
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DeviceSettings, SeedSettings, TokenizerSettings
from s2s.tasks.translation.recipe import BatchSettings, DataSettings, TrainingSettings
from s2s.tasks.translation.task import translation_trainer
from s2s.training.devices import choose, prepare_process

Form = Callable[[], Tensor]


def stepping(cell: Cell, x: Tensor, state: tuple[Tensor, ...]) -> Tensor:
    """The cell fed one step after another."""
    outputs = []
    for step in x.split(1, dim=1):
        output, state = cell(step, state)
        outputs.append(output)
    return torch.cat(outputs, dim=1)


def lstm_cell(layer: LSTM) -> nn.LSTMCell:
    """The same layer as `torch.nn.LSTMCell`."""
    cell = nn.LSTMCell(layer.lstm.input_size, layer.lstm.hidden_size)
    cell.load_state_dict({name.removesuffix("_l0"): p for name, p in layer.lstm.state_dict().items()})
    return cell


def lstm_loop(cell: nn.LSTMCell, x: Tensor) -> Tensor:
    """The cell, step by step."""
    hidden = memory = x.new_zeros(len(x), cell.hidden_size)
    outputs = []
    for step in x.unbind(1):
        hidden, memory = cell(step, (hidden, memory))
        outputs.append(hidden)
    return torch.stack(outputs, dim=1)


def recurrence_loop(decays: Tensor, update: Tensor, state: Tensor) -> Tensor:
    """The recurrence h = a h + b, step by step, and nothing else."""
    outputs = []
    for decay, add in zip(decays.unbind(1), update.unbind(1), strict=True):
        state = decay * state + add
        outputs.append(state)
    return torch.stack(outputs, dim=1)


def contest(title: str, forms: dict[str, Form], rounds: int) -> None:
    """Prints the median time of each form, and how many times as long as the first it takes."""
    results = [form().detach() for form in forms.values()]
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-4, atol=1e-4)
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, form in forms.items():
            began = time.perf_counter()
            form().sum().backward()
            times[name].append(1000 * (time.perf_counter() - began))
    base = statistics.median(next(iter(times.values())))
    print(title)
    for name, values in times.items():
        median = statistics.median(values)
        print(f"  {name:44} {median:9.2f} ms   {min(values):9.2f} to {max(values):9.2f}   {median / base:7.2f}×")


def layers(rounds: int) -> None:
    """The layers of minGRU by scan and by loop; LSTM fused and by loop."""
    torch.manual_seed(1)
    for batch, width in ((1, 64), (4, 128), (16, 256)):
        cell, x = MinGRU(width, width), torch.randn(batch, 1024, width)
        start = (torch.zeros(batch, width),)
        forms: dict[str, Form] = {
            "one parallel scan": lambda cell=cell, x=x, start=start: cell(x, start)[0],
            "its own loop over time": lambda cell=cell, x=x, start=start: stepping(cell, x, start),
        }
        contest(f"mingru layer, 1,024 steps, batch {batch}, width {width}", forms, rounds)
        decay = torch.rand_like(x).requires_grad_()
        update = torch.randn_like(x).requires_grad_()
        forms = {
            "one parallel scan": lambda d=decay, u=update, s=start: scan(d, u, s[0]),
            "loop over time": lambda d=decay, u=update, s=start: recurrence_loop(d, u, s[0]),
        }
        contest("  its recurrence alone", forms, rounds)
    for batch, steps, width in ((300, 13, 128), (64, 64, 256), (8, 1024, 256)):
        layer, x = LSTM(width, width), torch.randn(batch, steps, width)
        cell = lstm_cell(layer)
        zeros = (torch.zeros(batch, width), torch.zeros(batch, width))
        forms = {
            "fused (torch.nn.LSTM)": lambda layer=layer, x=x, zeros=zeros: layer(x, zeros)[0],
            "Python loop over torch.nn.LSTMCell": lambda cell=cell, x=x: lstm_loop(cell, x),
        }
        contest(f"LSTM layer, batch {batch}, {steps} steps, width {width}", forms, rounds)


def training_loop(kind: str, options: dict[str, object], data: Encoded, size: int) -> Callable[[], int]:
    """s2s's own trainer; each call is one update and returns its real target tokens."""
    module = module_of(kind)
    torch.manual_seed(1)
    trainer = translation_trainer(
        module.build(module.Settings.model_validate({"kind": kind, "width": 192} | options), size, size),
        data,
        TrainingSettings(updates=10_000, learning_rate=1e-4),
        BatchSettings(tokens=4096),
        SeedSettings(),
        choose(DeviceSettings(kind="cpu")),
    )
    updates = trainer.updates(10_000)
    return lambda: next(updates).tokens


def models(root: Path, rounds: int) -> None:
    """Training speed with and without attention, with and without input feeding."""
    corpus = load(DataSettings(corpus="bentrevett/multi30k", root=str(root)))
    tokenizer, _ = train_pair(corpus.train["source"], corpus.train["target"], TokenizerSettings(size=8000))
    data = encode_corpus(corpus.train, tokenizer, tokenizer)
    cases: dict[str, tuple[str, dict[str, object]]] = {
        "lstm": ("lstm", {}),
        "lstm-attention, general": ("lstm-attention", {}),
        "lstm-attention, additive": ("lstm-attention", {"attention": "additive"}),
        "lstm-attention, general, input feeding": ("lstm-attention", {"input_feeding": True}),
        "gru": ("gru", {}),
        "rnn": ("rnn", {}),
        "mingru": ("mingru", {}),
        "conv": ("conv", {}),
        "transformer": ("transformer", {"heads": 4, "feedforward": 512}),
    }
    loops = {name: training_loop(kind, options, data, tokenizer.size) for name, (kind, options) in cases.items()}
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for turn in range(rounds + 2):
        for name, update in loops.items():
            began = time.perf_counter()
            tokens = update()
            if turn >= 2:
                seconds[name].append((time.perf_counter() - began) / tokens)
    base = statistics.median(seconds["lstm"])
    print(f"{'training on Multi30k, width 192':42} {'tokens/s':>9}   time per token")
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"  {name:40} {1 / median:9,.0f}   {median / base:6.2f}× lstm")


def main() -> None:
    """Runs the contests and prints their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder with Multi30k's files")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    prepare_process(DeviceSettings(threads=2))
    layers(options.rounds)
    if options.root:
        models(options.root, 3 * options.rounds)


if __name__ == "__main__":
    main()
