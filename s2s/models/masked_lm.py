"""The masked-language model (Devlin et al. 2019): an encoder that names the pieces it was not shown."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from s2s.errors import UserError
from s2s.models.base import Encoder
from s2s.nn.layers import PaddingMask, SourceTokens


class MaskedLM(nn.Module):
    """A text with holes in, scores of the pieces that stood there out: encoder, output transform and projection.

    The output transform is the published one: a linear layer, GELU and layer normalisation. The projection needs no
    bias beside it; the normalisation's own, projected, is one for each piece. The mask piece is read, but is no answer.

    Args:
        encoder: reads the text; its table has a row for each piece and, last, one for the mask piece.
        width: size of the encoder's states.
        size: number of pieces without the mask piece.
        tie: whether the projection is the encoder's own table (Press & Wolf 2017).
        bias: whether the projection has one all the same, as BERT's.
        epsilon: the normalisation's guard against division by zero.

    Raises:
        UserError: the projection shall be tied, but the encoder has no table of that size, or several.
    """

    def __init__(
        self, encoder: Encoder, width: int, size: int, tie: bool = True, bias: bool = False, epsilon: float = 1e-5
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.size = size
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, epsilon))
        self.projection = nn.Linear(width, size + 1 if tie else size, bias=bias)
        if bias:
            nn.init.zeros_(self.projection.bias)
        if tie:
            self.projection.weight = _table(encoder, size + 1, width).weight
        else:
            nn.init.normal_(self.projection.weight, std=width**-0.5)

    @property
    def output(self) -> Float[Tensor, "vocabulary width"]:
        """The projection's weight, without the mask piece."""
        return self.projection.weight[: self.size]

    @property
    def output_bias(self) -> Float[Tensor, " vocabulary"] | None:
        """The projection's bias, without the mask piece; None where there is none."""
        bias: Tensor | None = self.projection.bias
        return None if bias is None else bias[: self.size]

    def scores(self, states: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        """Of transformed states: unnormalised log probabilities of the pieces, without the mask piece."""
        return functional.linear(states, self.output, self.output_bias)

    def forward(
        self, source: SourceTokens, valid: PaddingMask, chosen: Int[Tensor, " chosen"]
    ) -> Float[Tensor, "chosen width"]:
        """The transformed states at the chosen places of the flattened batch, before the projection.

        Only they are transformed and projected: the others are no part of any loss.
        """
        states = self.encoder(source, valid).states
        return self.transform(states.flatten(0, 1).index_select(0, chosen))

    def log_probabilities(
        self, source: SourceTokens, valid: PaddingMask, chosen: Int[Tensor, " chosen"]
    ) -> Float[Tensor, "chosen vocabulary"]:
        """Log probability of each piece at the chosen places of the flattened batch."""
        scores = self.scores(self(source, valid, chosen))
        return scores.to(torch.promote_types(scores.dtype, torch.float32)).log_softmax(-1)


def _table(encoder: Encoder, rows: int, width: int) -> nn.Embedding:
    tables = [
        module
        for module in encoder.modules()
        if isinstance(module, nn.Embedding) and module.weight.shape == (rows, width)
    ]
    if len(tables) != 1:
        raise UserError(
            f"the projection shall be the encoder's table, but the encoder has {len(tables)} tables of {rows} pieces "
            f"and width {width}",
            remedy="set masking.tie: false",
        )
    return tables[0]


def reading_direction(encoder: Encoder) -> str:
    """What a state of the encoder knows of the text: `both sides`, or only what stands `before` or `after` it.

    Asked of the encoder itself: whether the second of three states changes with the first piece, and with the last.
    Neither its weights nor its mode are changed.
    """
    training, device = encoder.training, next(encoder.parameters()).device
    encoder.eval()

    def second_state(first: int, last: int) -> Tensor:
        """Each row alone: the same numbers come out the same only where the shapes are the same."""
        row = torch.tensor([[first, 4, last]], device=device)
        with torch.no_grad():
            return encoder(row, torch.ones_like(row, dtype=torch.bool)).states[0, 1]

    plain = second_state(4, 4)
    before, after = (not torch.equal(plain, second_state(*ends)) for ends in ((5, 4), (4, 5)))
    encoder.train(training)
    return {(True, True): "both sides", (True, False): "before", (False, True): "after"}.get(
        (before, after), "neither side"
    )
