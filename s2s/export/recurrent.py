"""Export of recurrent layers as ONNX operators, which torch would unroll.

In a copy of the model, each torch layer is replaced by a custom operator that only knows its shapes, and the exporter
maps it to ONNX. ONNX orders gates differently: z, r, n instead of torch's r, z, n; and i, o, f, g instead of i, f,
g, o.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, library, nn

_ORDERS = {"rnn": (0,), "gru": (1, 0, 2), "lstm": (0, 3, 1, 2)}
_KINDS: dict[type[nn.RNNBase], str] = {nn.RNN: "rnn", nn.GRU: "gru", nn.LSTM: "lstm"}


@library.custom_op("s2s::recurrent", mutates_args=())
def recurrent(kind: str, x: Tensor, hidden: Tensor, cell: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Declare the operator of a recurrent layer (`cell` is for `lstm`); ONNX computes it."""
    raise NotImplementedError("it has shapes, and ONNX computes it")


@recurrent.register_fake
def _shapes(kind: str, x: Tensor, hidden: Tensor, cell: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], x.shape[1], hidden.shape[1]), torch.empty_like(hidden)


class _Layer(nn.Module):
    """Replacement of a unidirectional, single torch layer."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.kind = _KINDS[type(layer)]
        self.weights = nn.ParameterList(layer.all_weights[0])

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, cell = state if self.kind == "lstm" else (state, state)
        outputs, last = recurrent(self.kind, x, hidden[0], cell[0], list(self.weights))
        end = outputs[:, -1].unsqueeze(0)
        return outputs, (end, last.unsqueeze(0)) if self.kind == "lstm" else end


def replaced(module: nn.Module) -> nn.Module:
    """Return a copy of a module in which custom operators replace recurrent layers."""
    if not any(isinstance(each, nn.RNNBase) for each in module.modules()):
        return module
    module = copy.deepcopy(module)
    for parent in list(module.modules()):
        for name, each in list(parent.named_children()):
            if isinstance(each, nn.RNNBase):
                setattr(parent, name, _Layer(each))
    return module


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the ONNX implementation of the custom operator, for `torch.onnx.export`."""
    import onnxscript

    op: Any = onnxscript.opset18

    def ordered(weight: Any, kind: str) -> Any:
        """Reorder gates for ONNX, and add an axis for directions."""
        order = _ORDERS[kind]
        if len(order) == 1:
            return op.Unsqueeze(weight, op.Constant(value_ints=[0]))
        gates = op.Split(weight, num_outputs=len(order), axis=0)
        return op.Unsqueeze(op.Concat(*(gates[i] for i in order), axis=0), op.Constant(value_ints=[0]))

    def written(kind: str, x: Any, hidden: Any, cell: Any, weights: Any) -> tuple[Any, Any]:
        """Build the ONNX operator, with axes transposed from and to torch's order."""
        inputs, recurrences, input_biases, biases = (ordered(weight, kind) for weight in weights)
        both, first = op.Concat(input_biases, biases, axis=1), op.Constant(value_ints=[0])
        given = (op.Transpose(x, perm=[1, 0, 2]), inputs, recurrences, both, None, op.Unsqueeze(hidden, first))
        size = weights[1].shape[1]
        last = cell
        if kind == "lstm":
            states, _, last = op.LSTM(*given, op.Unsqueeze(cell, first), hidden_size=size)
            last = op.Squeeze(last, first)
        elif kind == "gru":
            states, _ = op.GRU(*given, hidden_size=size, linear_before_reset=1)
        else:
            states, _ = op.RNN(*given, hidden_size=size)
        # steps, directions, batch, width
        return op.Transpose(op.Squeeze(states, op.Constant(value_ints=[1])), perm=[1, 0, 2]), last

    return {torch.ops.s2s.recurrent.default: written}
