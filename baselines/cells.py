"""Recurrent layers: Elman network, GRU, LSTM, minGRU and minLSTM.

Elman network, GRU and LSTM are fused kernels, minGRU and minLSTM parallel scans. A layer maps a sequence of vectors to
a sequence of states, and continues from a given state: token by token or all at once, it gives the same numbers.

To add a cell, write a subclass of `Cell` with `forward`, set `parts` to the number of its state tensors, and `is_scan`
if it is a parallel scan, and add it to `CELLS`. docs/adding-a-model.md lists the further steps.

A fused kernel hides its recurrence. Read `elman_step`, `gru_step` and `lstm_step` for the equations of one step, in
torch's order of gates. Only tests run these functions: they compare each kernel with its equations, for the same
weights.
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
# One or two tensors of shape (batch, width).
CellState = tuple[Tensor, ...]

# Tensors of one step. A weight stacks the rows of all gates, `width` rows for each gate.
Input = Float[Tensor, "batch inputs"]
InputWeight = Float[Tensor, "gates inputs"]
RecurrentWeight = Float[Tensor, "gates width"]
Bias = Float[Tensor, " gates"]

# Initial bias of gates that depend on the input only (minGRU, minLSTM). With a bias of zero they would halve the state
# with each token; σ(2.2) keeps nine tenths. The LSTM's forget gate starts at a bias of 1, which keeps 73 %, but it
# also depends on the state.
_REMEMBER = 2.2


class Cell(nn.Module, ABC):
    """Base class of recurrent layers.

    Attributes:
        parts: Number of state tensors of shape `(batch, width)`; the first one is the hidden state.
        is_scan: True if the recurrence is linear in the state, so that a parallel scan computes it.
    """

    parts: int = 1
    is_scan: bool = False

    def forget_gate_biases(self) -> tuple[tuple[Tensor, float], ...]:
        """Return the biases of the gates that keep the state, each with a sign.

        With all of them at b times their sign, σ(b) of the state is kept at each step.

        Returns:
            Pairs of a bias, a view of `(width,)`, and 1 for a gate that keeps or -1 for a gate that overwrites. Empty
            for layers without such a gate.
        """
        return ()

    @abstractmethod
    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        """Read a sequence, starting from a state.

        Args:
            x: Input vectors, `(batch, steps, inputs)`.
            state: State before the first step, `parts` tensors `(batch, width)`.

        Returns:
            The hidden state after each step, `(batch, steps, width)`, and the state after the last step.
        """


def elman_step(
    x: Input, state: CellState, w: InputWeight, u: RecurrentWeight, b: Bias, d: Bias
) -> tuple[Summary, CellState]:
    """Compute one step of the Elman network (Elman 1990).

        h′ = tanh(W x + b + U h + d)

    torch has two biases, b for the input and d for the state, where one would be enough.

    Args:
        x: Input of the step, `(batch, inputs)`.
        state: (h,), the hidden state, `(batch, width)`.
        w: W, `(width, inputs)`.
        u: U, `(width, width)`.
        b: `(width,)`.
        d: `(width,)`.

    Returns:
        The new hidden state h′, and the new state (h′,).

    Example:
        >>> one, zero = torch.ones(1, 1), torch.zeros(1)
        >>> h, state = elman_step(one, (one,), w=one, u=one, b=zero, d=zero)
        >>> h.round(decimals=3)  # tanh(1 + 1)
        tensor([[0.9640]])
    """
    (h,) = state
    h = torch.tanh(x @ w.T + b + h @ u.T + d)
    return h, (h,)


class Elman(Cell):
    """Elman network as a fused kernel; `elman_step` has the equation.

    Args:
        inputs: Size of the input vectors.
        width: Size of the hidden state.

    Example:
        >>> outputs, state = Elman(inputs=3, width=4)(torch.randn(2, 5, 3), (torch.zeros(2, 4),))
        >>> outputs.shape, len(state)
        (torch.Size([2, 5, 4]), 1)
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.rnn = _initialized(nn.RNN(inputs, width, batch_first=True))

    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        outputs, hidden = self.rnn(x, state[0].to(x.dtype).unsqueeze(0))
        return outputs, (hidden[0],)


def gru_step(
    x: Input, state: CellState, w: InputWeight, u: RecurrentWeight, b: Bias, d: Bias
) -> tuple[Summary, CellState]:
    """Compute one step of the gated recurrent unit (GRU; Cho et al. 2014).

        r  = σ(W_r x + b_r + U_r h + d_r)           reset gate: how much of h the candidate reads
        z  = σ(W_z x + b_z + U_z h + d_z)           update gate: how much of h is kept
        n  = tanh(W_n x + b_n + r ∘ (U_n h + d_n))  candidate, h̃ in the paper
        h′ = (1 − z) ∘ n + z ∘ h

    This is the form of cuDNN and torch. In the paper the reset gate is inside of the product, U_n (r ∘ h).

    Args:
        x: Input of the step, `(batch, inputs)`.
        state: (h,), the hidden state, `(batch, width)`.
        w: W_r, W_z and W_n, stacked, `(3 · width, inputs)`.
        u: U_r, U_z and U_n, stacked, `(3 · width, width)`.
        b: b_r, b_z and b_n, `(3 · width,)`.
        d: d_r, d_z and d_n, `(3 · width,)`.

    Returns:
        The new hidden state h′, and the new state (h′,).

    Example:
        With weights of zero both gates are ½ and the candidate is 0, so half of the state remains:

        >>> one, weight, bias = torch.ones(1, 1), torch.zeros(3, 1), torch.zeros(3)
        >>> h, state = gru_step(one, (one,), weight, weight, bias, bias)
        >>> h
        tensor([[0.5000]])
    """
    (h,) = state
    # Split the stacked weights by gate; each part has `width` rows.
    (w_r, w_z, w_n), (u_r, u_z, u_n), (b_r, b_z, b_n), (d_r, d_z, d_n) = (gates.chunk(3) for gates in (w, u, b, d))
    r = torch.sigmoid(x @ w_r.T + b_r + h @ u_r.T + d_r)
    z = torch.sigmoid(x @ w_z.T + b_z + h @ u_z.T + d_z)
    n = torch.tanh(x @ w_n.T + b_n + r * (h @ u_n.T + d_n))
    h = (1 - z) * n + z * h
    return h, (h,)


class GRU(Cell):
    """Gated recurrent unit as a fused kernel; `gru_step` has the equations.

    Args:
        inputs: Size of the input vectors.
        width: Size of the hidden state.

    Example:
        >>> outputs, state = GRU(inputs=3, width=4)(torch.randn(2, 5, 3), (torch.zeros(2, 4),))
        >>> outputs.shape, len(state)
        (torch.Size([2, 5, 4]), 1)
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.gru = _initialized(nn.GRU(inputs, width, batch_first=True))

    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        outputs, hidden = self.gru(x, state[0].to(x.dtype).unsqueeze(0))
        return outputs, (hidden[0],)

    def forget_gate_biases(self) -> tuple[tuple[Tensor, float], ...]:
        """Return the bias of the update gate z; torch's order of gates is r, z, n."""
        return ((_second_gate(self.gru), 1.0),)


def lstm_step(
    x: Input, state: CellState, w: InputWeight, u: RecurrentWeight, b: Bias, d: Bias
) -> tuple[Summary, CellState]:
    """Compute one step of long short-term memory (LSTM; Hochreiter & Schmidhuber 1997).

    The forget gate is from Gers et al. (2000). The state is (h, c): the hidden state, which is the output, and the
    memory cell.

        i  = σ(W_i x + b_i + U_i h + d_i)     input gate: how much is written
        f  = σ(W_f x + b_f + U_f h + d_f)     forget gate: how much is kept
        g  = tanh(W_g x + b_g + U_g h + d_g)  candidate: the values to write
        o  = σ(W_o x + b_o + U_o h + d_o)     output gate: how much is output
        c′ = f ∘ c + i ∘ g
        h′ = o ∘ tanh(c′)

    Args:
        x: Input of the step, `(batch, inputs)`.
        state: (h, c), `(batch, width)` each.
        w: W_i, W_f, W_g and W_o, stacked, `(4 · width, inputs)`.
        u: U_i, U_f, U_g and U_o, stacked, `(4 · width, width)`.
        b: b_i, b_f, b_g and b_o, `(4 · width,)`.
        d: d_i, d_f, d_g and d_o, `(4 · width,)`.

    Returns:
        The new hidden state h′, and the new state (h′, c′).

    Example:
        With weights of zero all gates are ½ and the candidate is 0, so half of the cell remains:

        >>> zeros = torch.zeros(4, 1)
        >>> h, (h, c) = lstm_step(
        ...     torch.ones(1, 1), (torch.ones(1, 1), torch.ones(1, 1)), zeros, zeros, torch.zeros(4), torch.zeros(4)
        ... )
        >>> c
        tensor([[0.5000]])
    """
    h, c = state
    # One product for all gates, (batch, 4 · width), then four parts (batch, width).
    i, f, g, o = (x @ w.T + b + h @ u.T + d).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, (h, c)


class LSTM(Cell):
    """Long short-term memory as a fused kernel; `lstm_step` has the equations.

    The bias of the forget gate starts at 1, so that an untrained network keeps its cell (Gers et al. 2000; Jozefowicz
    et al. 2015).

    Args:
        inputs: Size of the input vectors.
        width: Size of the hidden state and of the cell.

    Example:
        >>> zeros = torch.zeros(2, 4)
        >>> outputs, state = LSTM(inputs=3, width=4)(torch.randn(2, 5, 3), (zeros, zeros))
        >>> outputs.shape, len(state)
        (torch.Size([2, 5, 4]), 2)
    """

    parts = 2

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.lstm = _initialized(nn.LSTM(inputs, width, batch_first=True))
        init_forget_bias(self, 1.0)

    def forget_gate_biases(self) -> tuple[tuple[Tensor, float], ...]:
        """Return the bias of the forget gate; torch's order of gates is i, f, g, o."""
        return ((_second_gate(self.lstm), 1.0),)

    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        hidden, cell = (part.to(x.dtype).unsqueeze(0) for part in state)
        outputs, (hidden, cell) = self.lstm(x, (hidden, cell))
        return outputs, (hidden[0], cell[0])


class MinGRU(Cell):
    """minGRU: a GRU whose gates depend on the input only (Feng et al. 2024, 3.1).

        z  = σ(W_z x + b_z)
        h̃  = W_h x + b_h
        h′ = (1 − z) ∘ h + z ∘ h̃

    The recurrence is linear in h, so one parallel scan computes all steps (`baselines.scan`).

    Args:
        inputs: Size of the input vectors.
        width: Size of the hidden state.

    Example:
        All steps at once and two halves give the same states:

        >>> _ = torch.manual_seed(0)
        >>> cell, x, start = MinGRU(inputs=3, width=4), torch.randn(2, 6, 3), (torch.zeros(2, 4),)
        >>> at_once, _ = cell(x, start)
        >>> first, state = cell(x[:, :3], start)
        >>> second, state = cell(x[:, 3:], state)
        >>> torch.allclose(at_once, torch.cat((first, second), dim=1), atol=1e-6)
        True
    """

    is_scan = True

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs, 2 * width)
        initialize_parts(self.gates, width)
        init_forget_bias(self, _REMEMBER)

    def forget_gate_biases(self) -> tuple[tuple[Tensor, float], ...]:
        """Return the bias of the gate z, which overwrites the state."""
        return ((self.gates.bias.detach().chunk(2)[0], -1.0),)

    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        # (batch, steps, inputs) -> 2 × (batch, steps, width)
        gate, candidate = _precise(self.gates(x)).chunk(2, dim=2)
        update = torch.sigmoid(gate)
        states = scan(1 - update, update * candidate, state[0].to(gate.dtype))
        return states, (states[:, -1],)


class MinLSTM(Cell):
    """minLSTM: an LSTM whose gates depend on the input only (Feng et al. 2024, 3.2).

        f, i = σ(W_f x + b_f), σ(W_i x + b_i)
        h̃    = W_h x + b_h
        h′   = f′ ∘ h + i′ ∘ h̃    with f′ = f / (f + i) and i′ = i / (f + i)

    The recurrence is linear in h, so one parallel scan computes all steps (`baselines.scan`).

    Args:
        inputs: Size of the input vectors.
        width: Size of the hidden state.

    Example:
        >>> outputs, state = MinLSTM(inputs=3, width=4)(torch.randn(2, 5, 3), (torch.zeros(2, 4),))
        >>> outputs.shape, len(state)
        (torch.Size([2, 5, 4]), 1)
    """

    is_scan = True

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs, 3 * width)
        initialize_parts(self.gates, width)
        init_forget_bias(self, _REMEMBER)

    def forget_gate_biases(self) -> tuple[tuple[Tensor, float], ...]:
        """Return the biases of the gates f, which keeps the state, and i, which writes."""
        forget, put, _ = self.gates.bias.detach().chunk(3)
        return ((forget, 1.0), (put, -1.0))

    def forward(self, x: Read, state: CellState) -> tuple[Vectors, CellState]:
        # (batch, steps, inputs) -> 3 × (batch, steps, width)
        forget, put, candidate = _precise(self.gates(x)).chunk(3, dim=2)
        # f / (f + i) = σ(log f − log i). This form avoids 0 / 0 where f and i are both tiny.
        decay = torch.sigmoid(functional.logsigmoid(forget) - functional.logsigmoid(put))
        states = scan(decay, (1 - decay) * candidate, state[0].to(candidate.dtype))
        return states, (states[:, -1],)


CELLS: dict[str, type[Cell]] = {"rnn": Elman, "gru": GRU, "lstm": LSTM, "mingru": MinGRU, "minlstm": MinLSTM}


def init_forget_bias(cell: Cell, bias: float) -> None:
    """Set the bias of the gates that keep the state; no effect without such a gate.

    Args:
        cell: Recurrent layer.
        bias: σ(bias) is the initial share of the state that is kept at each step, before weights have an effect.

    Example:
        >>> cell = LSTM(inputs=3, width=2)
        >>> init_forget_bias(cell, 5.0)
        >>> [bias.tolist() for bias, sign in cell.forget_gate_biases()]
        [[5.0, 5.0]]
    """
    for each, sign in cell.forget_gate_biases():
        each.fill_(sign * bias)


class Stack(nn.Module):
    """Stack of recurrent layers, with dropout between them.

    Args:
        cell: Kind of the layers, a key of `CELLS`.
        inputs: Size of the input vectors of the first layer.
        width: Size of the hidden states.
        layers: Number of layers.
        dropout: Dropout rate between layers; there is no dropout from step to step (Zaremba et al. 2014).
        residual: Add the input of each layer but the first to its output (Wu et al. 2016, section 3.1).

    Example:
        >>> stack = Stack("lstm", inputs=3, width=4, layers=2, dropout=0.1, residual=False)
        >>> zeros = torch.zeros(2, 4)
        >>> outputs, states = stack(torch.randn(2, 5, 3), ((zeros, zeros), (zeros, zeros)))
        >>> outputs.shape, len(states)
        (torch.Size([2, 5, 4]), 2)
    """

    def __init__(self, cell: str, inputs: int, width: int, layers: int, dropout: float, residual: bool) -> None:
        super().__init__()
        self.width = width
        self.residual = residual
        self.layers = nn.ModuleList([CELLS[cell](width if i else inputs, width) for i in range(layers)])
        self.dropout = Dropout(dropout)
        self.parts = [CELLS[cell].parts] * layers
        self.is_scan = CELLS[cell].is_scan

    def forward(self, x: Read, states: tuple[CellState, ...]) -> tuple[Vectors, tuple[CellState, ...]]:
        """Read a sequence with all layers, bottom to top.

        Args:
            x: Input vectors, `(batch, steps, inputs)`.
            states: State of each layer before the first step.

        Returns:
            The top layer's hidden state after each step, `(batch, steps, width)`, and the state of each layer after the
            last step.
        """
        kept = []
        for i, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            read = self.dropout(x) if i else x
            y, state = layer(read, state)
            x = x + y if self.residual and i else y
            kept.append(state)
        return x, tuple(kept)


def _precise(x: Tensor) -> Tensor:
    # A state is a sum over hundreds of steps; bf16, with 8 binary digits, would lose small summands.
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _second_gate(layer: nn.RNNBase) -> Tensor:
    """Return the input-side bias of the second gate."""
    return layer.get_parameter("bias_ih_l0").detach()[layer.hidden_size : 2 * layer.hidden_size]


def _initialized(layer: Fused) -> Fused:
    """Initialize each gate separately.

    Recurrent weights are orthogonal (Saxe et al. 2014), input weights Xavier, biases zero.
    """
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
    """Initialize a linear layer that stacks several layers: Xavier weights, zero biases.

    Args:
        layer: Linear layer whose rows are those of several layers.
        width: Rows of each of them.
    """
    for part in layer.weight.detach().split(width):
        nn.init.xavier_uniform_(part)
    nn.init.zeros_(layer.bias)
