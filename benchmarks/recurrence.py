"""What the form of a recurrence costs: one fused pass, one parallel scan, or a Python loop over time.

    python -m benchmarks.recurrence                  # layers alone
    python -m benchmarks.recurrence --root DIR       # and whole models, trained on Multi30k's files

The forms compute the same numbers, which is checked, and take turns, so that a noisy machine is noisy for all. Forward
and backward; medians.
"""

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from baselines.cells import LSTM, Cell, MinGRU
from baselines.scan import scan
from benchmarks.contest import in_turns, multi30k, seconds
from benchmarks.keeping import asked
from s2s.data.tokenized import TokenizedDataset
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DeviceSettings, SeedSettings
from s2s.tasks.seq2seq import translation_trainer
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.training.device import select_device, setup_process

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


def milliseconds(form: Form) -> float:
    """There and back."""
    return 1000 * seconds(lambda: form().sum().backward())


def contest(title: str, forms: dict[str, Form], rounds: int) -> None:
    """Prints the median time of each form, and how many times as long as the first it takes."""
    results = [form().detach() for form in forms.values()]
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-4, atol=1e-4)
    times = in_turns({name: partial(milliseconds, form) for name, form in forms.items()}, rounds, warm=0)
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


def training_loop(kind: str, options: dict[str, object], data: TokenizedDataset, size: int) -> Callable[[], float]:
    """s2s's own trainer; each call is one update and returns its seconds for each real target token."""
    module = module_of(kind)
    torch.manual_seed(1)
    trainer = translation_trainer(
        module.build(module.Settings.model_validate({"kind": kind, "width": 192} | options), size, size),
        data,
        TrainingSettings(updates=10_000, learning_rate=1e-4),
        BatchSettings(tokens=4096),
        SeedSettings(),
        select_device(DeviceSettings(kind="cpu")),
    )
    updates = (update.seconds / update.tokens for update in trainer.updates(10_000))
    return partial(next, updates)


def models(root: Path, rounds: int) -> None:
    """Training speed with and without attention, with and without input feeding."""
    data, tokenizer = multi30k(root)
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
    times = in_turns(loops, rounds)
    base = statistics.median(times["lstm"])
    print(f"{'training on Multi30k, width 192':42} {'tokens/s':>9}   time per token")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"  {name:40} {1 / median:9,.0f}   {median / base:6.2f}× lstm")


def main() -> None:
    """Runs the contests and prints their results."""
    parser = asked(__doc__)
    parser.add_argument("--root", type=Path, help="folder with Multi30k's files")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    setup_process(DeviceSettings(threads=2))
    layers(options.rounds)
    if options.root:
        models(options.root, 3 * options.rounds)


if __name__ == "__main__":
    main()
