"""Recurrent layers: the Elman network, GRU and LSTM as fused kernels; minGRU and minLSTM as a parallel scan.

A layer maps a sequence to a sequence of states, and goes on from where it stopped: fed token by token or all at once,
it gives the same numbers. A new cell is one class with `forward` and the number of its state tensors.

A fused kernel hides its recurrence, so `elman_step`, `gru_step` and `lstm_step` are the equations of one step, in
torch's order of gates. Nothing but a test runs them: it holds each kernel equal to them, from the same weights.
"""

from abc import ABC, abstractmethod
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from baselines.scan import scan
from s2s.nn.layers import Dropout, Summary, Vectors

Read = Float[Tensor, "batch steps inputs"]
Fused = TypeVar("Fused", bound=nn.RNNBase)
# each of shape (batch, width)
CellState = tuple[Tensor, ...]

# of one step; a weight has the rows of all gates, one gate's `width` rows below the other's
Input = Float[Tensor, "batch inputs"]
InputWeight = Float[Tensor, "gates inputs"]
RecurrentWeight = Float[Tensor, "gates width"]
Bias = Float[Tensor, " gates"]

# Gates that see the input alone start at their biases. At zero they would halve the memory with each token; at this
# bias nine tenths of it are kept. The LSTM's forget gate begins at 1, which keeps 73 %, but sees the state, too.
_REMEMBER = 2.2


class Cell(nn.Module, ABC):
    """One recurrent layer.

    Attributes:
        parts: how many tensors of shape `(batch, width)` its state has; the first is the hidden state.
    """

    parts: int = 1

    def forget_gate_biases(self) -> tuple[tuple[Tensor, float], ...]:
        """The biases that decide how much of the state is kept with each token, each with the sign in which it keeps.

        A kept state is worth σ(b) of itself where all of them are b times their sign. None without such a gate.
        """
        return ()

    @abstractmethod
    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        """The hidden state after each step, and the state after the last."""


def elman_step(
    x: Input, state: CellState, w: InputWeight, u: RecurrentWeight, b: Bias, d: Bias
) -> tuple[Summary, CellState]:
    """One step of the Elman network (Elman 1990), whose state h is written anew.

        h′ = tanh(W x + b + U h + d)

    Torch has two biases, b beside the input and d beside the state, where one would do.
    """
    (h,) = state
    h = torch.tanh(x @ w.T + b + h @ u.T + d)
    return h, (h,)


class Elman(Cell):
    """The Elman network as a fused kernel; `elman_step` has the equation."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.rnn = _initialized(nn.RNN(inputs, width, batch_first=True))

    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        outputs, hidden = self.rnn(x, state[0].to(x.dtype).unsqueeze(0))
        return outputs, (hidden[0],)


def gru_step(
    x: Input, state: CellState, w: InputWeight, u: RecurrentWeight, b: Bias, d: Bias
) -> tuple[Summary, CellState]:
    """One step of the gated recurrent unit (Cho et al. 2014): gates decide how much of the state h is read and kept.

        r  = σ(W_r x + b_r + U_r h + d_r)           the reset gate: how much of h the candidate reads
        z  = σ(W_z x + b_z + U_z h + d_z)           the update gate: how much of h is kept
        n  = tanh(W_n x + b_n + r ∘ (U_n h + d_n))  the candidate, h̃ in the paper
        h′ = (1 − z) ∘ n + z ∘ h

    This is the form that cuDNN and torch compute; the paper has the reset gate inside of the product, U_n (r ∘ h).
    """
    (h,) = state
    (w_r, w_z, w_n), (u_r, u_z, u_n), (b_r, b_z, b_n), (d_r, d_z, d_n) = (gates.chunk(3) for gates in (w, u, b, d))
    r = torch.sigmoid(x @ w_r.T + b_r + h @ u_r.T + d_r)
    z = torch.sigmoid(x @ w_z.T + b_z + h @ u_z.T + d_z)
    n = torch.tanh(x @ w_n.T + b_n + r * (h @ u_n.T + d_n))
    h = (1 - z) * n + z * h
    return h, (h,)


class GRU(Cell):
    """The gated recurrent unit as a fused kernel; `gru_step` has the equations."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.gru = _initialized(nn.GRU(inputs, width, batch_first=True))

    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        outputs, hidden = self.gru(x, state[0].to(x.dtype).unsqueeze(0))
        return outputs, (hidden[0],)

    def forget_gate_biases(self) -> tuple[tuple[Tensor, float], ...]:
        """Of the gate z; torch's order of gates is r, z, n."""
        return ((_second_gate(self.gru), 1.0),)


def lstm_step(
    x: Input, state: CellState, w: InputWeight, u: RecurrentWeight, b: Bias, d: Bias
) -> tuple[Summary, CellState]:
    """One step of long short-term memory (Hochreiter & Schmidhuber 1997; the forget gate: Gers et al. 2000).

    The state is (h, c): the hidden state, which is shown, and the memory cell, which is kept.

        i  = σ(W_i x + b_i + U_i h + d_i)     the input gate: how much is written
        f  = σ(W_f x + b_f + U_f h + d_f)     the forget gate: how much is kept
        g  = tanh(W_g x + b_g + U_g h + d_g)  the candidate: what is written
        o  = σ(W_o x + b_o + U_o h + d_o)     the output gate: how much is shown
        c′ = f ∘ c + i ∘ g
        h′ = o ∘ tanh(c′)
    """
    h, c = state
    i, f, g, o = (x @ w.T + b + h @ u.T + d).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, (h, c)


class LSTM(Cell):
    """Long short-term memory as a fused kernel; `lstm_step` has the equations.

    The forget gate's bias starts at 1, so that a young network remembers (Gers et al. 2000; Jozefowicz et al. 2015).
    """

    parts = 2

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.lstm = _initialized(nn.LSTM(inputs, width, batch_first=True))
        init_forget_bias(self, 1.0)

    def forget_gate_biases(self) -> tuple[tuple[Tensor, float], ...]:
        """Of the forget gate; torch's order of gates is i, f, g, o."""
        return ((_second_gate(self.lstm), 1.0),)

    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        hidden, cell = (part.to(x.dtype).unsqueeze(0) for part in state)
        outputs, (hidden, cell) = self.lstm(x, (hidden, cell))
        return outputs, (hidden[0], cell[0])


class MinGRU(Cell):
    """h′ = (1 − z) ∘ h + z ∘ h̃; z and h̃ see the input alone, so all steps are one scan (Feng et al. 2024)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs, 2 * width)
        initialize_parts(self.gates, width)
        init_forget_bias(self, _REMEMBER)

    def forget_gate_biases(self) -> tuple[tuple[Tensor, float], ...]:
        """Of the gate z, which overwrites."""
        return ((self.gates.bias.detach().chunk(2)[0], -1.0),)

    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        gate, candidate = _precise(self.gates(x)).chunk(2, dim=2)
        update = torch.sigmoid(gate)
        states = scan(1 - update, update * candidate, state[0].to(gate.dtype))
        return states, (states[:, -1],)


class MinLSTM(Cell):
    """h′ = f ∘ h + i ∘ h̃ with f + i = 1, where all three see the input alone (Feng et al. 2024, section 3.2)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs, 3 * width)
        initialize_parts(self.gates, width)
        init_forget_bias(self, _REMEMBER)

    def forget_gate_biases(self) -> tuple[tuple[Tensor, float], ...]:
        """Of the gates f, which keeps, and i, which writes."""
        forget, put, _ = self.gates.bias.detach().chunk(3)
        return ((forget, 1.0), (put, -1.0))

    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        forget, put, candidate = _precise(self.gates(x)).chunk(3, dim=2)
        # f / (f + i) of two sigmoids is a sigmoid again, which no small f and i can make 0 / 0
        decay = torch.sigmoid(functional.logsigmoid(forget) - functional.logsigmoid(put))
        states = scan(decay, (1 - decay) * candidate, state[0].to(candidate.dtype))
        return states, (states[:, -1],)


CELLS: dict[str, type[Cell]] = {"rnn": Elman, "gru": GRU, "lstm": LSTM, "mingru": MinGRU, "minlstm": MinLSTM}


def init_forget_bias(cell: Cell, bias: float) -> None:
    """Sets the biases of the gate that keeps the state; without such a gate, nothing is done."""
    for each, sign in cell.forget_gate_biases():
        each.fill_(sign * bias)


class Stack(nn.Module):
    """Recurrent layers, see `CELLS`, with dropout between them; `residual` adds the input of all but the first."""

    def __init__(self, cell: str, inputs: int, width: int, layers: int, dropout: float, residual: bool) -> None:
        super().__init__()
        self.width = width
        self.residual = residual
        self.layers = nn.ModuleList([CELLS[cell](width if i else inputs, width) for i in range(layers)])
        self.dropout = Dropout(dropout)
        self.parts = [CELLS[cell].parts] * layers

    def forward(self, x: Read, states: tuple[CellState, ...]) -> tuple[Vectors, tuple[CellState, ...]]:
        """The top layer's hidden state after each step, and every layer's state after the last."""
        kept = []
        for i, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            read = self.dropout(x) if i else x
            y, state = layer(read, state)
            x = x + y if self.residual and i else y
            kept.append(state)
        return x, tuple(kept)


def _precise(x: Tensor) -> Tensor:
    # a state adds up over hundreds of steps; the eight binary digits of bf16 would forget what is small
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _second_gate(layer: nn.RNNBase) -> Tensor:
    """The bias of the second gate, on the input's side."""
    return layer.get_parameter("bias_ih_l0").detach()[layer.hidden_size : 2 * layer.hidden_size]


def _initialized(layer: Fused) -> Fused:
    """Orthogonal recurrent weights, gate by gate (Saxe et al. 2014), Xavier input weights, zero biases."""
    for name, p in layer.named_parameters():
        for gate in p.detach().split(layer.hidden_size):
            if "bias" in name:
                nn.init.zeros_(gate)
            elif "weight_hh" in name:
                nn.init.orthogonal_(gate)
            else:
                nn.init.xavier_uniform_(gate)
    return layer


def initialize_parts(layer: nn.Linear, width: int) -> None:
    """Xavier weights for each part, of that width, of a layer that is several in one, and zero biases."""
    for part in layer.weight.detach().split(width):
        nn.init.xavier_uniform_(part)
    nn.init.zeros_(layer.bias)
