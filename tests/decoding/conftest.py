"""Models and sources for the tests of decoding."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from s2s.models.base import BatchedState, Decoder, Encoder, EncoderOutput, Seq2Seq, mean_over_valid
from s2s.models.transformer import Settings, build

SIZE = 7


@dataclass(frozen=True)
class Nothing(BatchedState):
    pass


@dataclass(frozen=True)
class Cell(BatchedState):
    hidden: Tensor


class BagEncoder(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SIZE, 8)

    def read(self, vectors: Tensor, valid: Tensor) -> EncoderOutput:
        return EncoderOutput(vectors, valid, mean_over_valid(vectors, valid))


class CellDecoder(Decoder[Nothing, Cell]):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(SIZE, 8)
        self.cell = nn.GRUCell(8, 8)

    def start(self, memory: EncoderOutput, limit: int) -> tuple[Nothing, Cell]:
        return Nothing(), Cell(memory.summary)

    def forward(self, context: Nothing, state: Cell, tokens: Tensor) -> tuple[Tensor, Cell]:
        states = []
        for step in range(tokens.shape[1]):
            state = Cell(self.cell(self.table(tokens[:, step]), state.hidden))
            states.append(state.hidden)
        return torch.stack(states, dim=1), state


@pytest.fixture(params=["transformer", "recurrent"])
def model(request) -> Seq2Seq:
    torch.manual_seed(2)
    if request.param == "transformer":
        small = Settings(width=8, heads=2, feedforward=16, encoder_layers=1, decoder_layers=1, dropout=0.0)
        made = build(small, SIZE, SIZE)
    else:
        made = Seq2Seq(BagEncoder(), CellDecoder(), nn.Linear(8, SIZE))
    with torch.no_grad():
        # sharper than initial weights are, so that hypotheses differ
        made.projection.weight.mul_(2)
    return made.double().eval()


@pytest.fixture
def other_model() -> Seq2Seq:
    torch.manual_seed(4)
    small = Settings(width=12, heads=2, feedforward=16, encoder_layers=2, decoder_layers=1, dropout=0.0)
    return build(small, SIZE, SIZE).double().eval()


@pytest.fixture
def sources() -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    valid = torch.ones(5, 4, dtype=torch.bool)
    valid[1, 2:] = False
    valid[3, 1:] = False
    return torch.randint(4, SIZE, (5, 4)), valid
