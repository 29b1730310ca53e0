"""The network of `rnn-tagger`: the output at step t is read off the encoder's state at step t, and nothing else."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from s2s.models.contract import Decoder, Memory, Rows
from s2s.nn.dropout import Dropout


@dataclass(frozen=True)
class States(Rows):
    """One state for each source position; zeros where there is padding."""

    states: Float[Tensor, "batch source width"]


@dataclass(frozen=True)
class Place(Rows):
    """How many outputs have been given."""

    step: int


class TimeSyncedDecoder(Decoder[States, Place]):
    """Gives the encoder's states in their order. What was written before is not looked at.

    The source ends with `EOS`, so that its state is what the target's own `EOS` is read off: both have one length.

    Args:
        dropout: probability of dropping a number of an output.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.one_to_one = True

    def start(self, memory: Memory, limit: int) -> tuple[States, Place]:
        """Nothing is given yet; after the source's end there are zeros."""
        states = memory.states * memory.valid.unsqueeze(2)
        return States(functional.pad(states, (0, 0, 0, max(0, limit - states.shape[1])))), Place(0)

    def forward(
        self, context: States, state: Place, tokens: Int[Tensor, "batch steps"]
    ) -> tuple[Float[Tensor, "batch steps width"], Place]:
        """The next states, as many as there are tokens."""
        end = state.step + tokens.shape[1]
        return self.dropout(context.states[:, state.step : end]), Place(end)
