"""Masked language model (Devlin et al. 2019): an encoder that predicts masked tokens."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from s2s.errors import UserError
from s2s.models.base import Encoder
from s2s.nn.layers import PaddingMask, SourceTokens


class MaskedLM(nn.Module):
    """Masked language model: encoder, output transform and output projection.

    The output transform is that of BERT: a linear layer, GELU and layer normalization. The projection needs no bias,
    because the bias of the normalization, once projected, is one number for each token. The mask token is an input only
    and is never predicted.

    Args:
        encoder: Reads the text; its table has one row for each token and a last row for the mask token.
        width: Size of the encoder's states.
        size: Number of tokens without the mask token.
        tie: Tie the projection to the encoder's table (Press & Wolf 2017).
        bias: Add a bias to the projection, as BERT does.
        epsilon: Guard of the normalization against division by zero.

    Raises:
        UserError: `tie` is True, but the encoder has no table of that size, or several.

    Example:
        Predict the token at position 1 of a text, in which it is masked (id 100):

        >>> from s2s.models.transformer import EncoderSettings, build_encoder
        >>> encoder, width = build_encoder(EncoderSettings(width=16, heads=2, feedforward=32), source_size=101)
        >>> model = MaskedLM(encoder, width, size=100)
        >>> source = torch.tensor([[5, 100, 7]])
        >>> model.log_probabilities(source, source > 0, chosen=torch.tensor([1])).shape
        torch.Size([1, 100])
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
        """Weight of the projection, without the mask token."""
        return self.projection.weight[: self.size]

    @property
    def output_bias(self) -> Float[Tensor, " vocabulary"] | None:
        """Bias of the projection, without the mask token; None if there is none."""
        bias: Tensor | None = self.projection.bias
        return None if bias is None else bias[: self.size]

    def scores(self, states: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        """Return the scores of transformed states.

        Returns:
            Unnormalized log probabilities of the tokens, without the mask token.
        """
        return functional.linear(states, self.output, self.output_bias)

    def forward(
        self, source: SourceTokens, valid: PaddingMask, chosen: Int[Tensor, " chosen"]
    ) -> Float[Tensor, "chosen width"]:
        """Compute the transformed states at chosen positions, before the projection.

        Only these are transformed and projected, because no other position has a part in the loss.

        Args:
            source: Token ids, `(batch, source)`.
            valid: Padding mask, `(batch, source)`.
            chosen: Indices into the flattened batch, row · source + position, `(chosen,)`.

        Returns:
            States, `(chosen, width)`.
        """
        states = self.encoder(source, valid).states
        return self.transform(states.flatten(0, 1).index_select(0, chosen))

    def log_probabilities(
        self, source: SourceTokens, valid: PaddingMask, chosen: Int[Tensor, " chosen"]
    ) -> Float[Tensor, "chosen vocabulary"]:
        """Return the log probabilities of all tokens at chosen positions.

        Args:
            source: Token ids, `(batch, source)`.
            valid: Padding mask, `(batch, source)`.
            chosen: Indices into the flattened batch, `(chosen,)`.

        Returns:
            Log probabilities in nats, `(chosen, vocabulary)`, at least in fp32.
        """
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
    """Find out whether an encoder's states depend on earlier or later tokens.

    The encoder is run on three tokens: does the second state change with the first token, and with the last one?
    Weights and training mode are not changed.

    Returns:
        `both sides`, `before`, `after` or `neither side`.

    Example:
        >>> from s2s.models.transformer import EncoderSettings, build_encoder
        >>> reading_direction(build_encoder(EncoderSettings(width=16, heads=2, feedforward=32), source_size=10)[0])
        'both sides'
    """
    training, device = encoder.training, next(encoder.parameters()).device
    encoder.eval()

    def second_state(first: int, last: int) -> Tensor:
        """Encode one row alone: only equal shapes are guaranteed to give equal numbers."""
        row = torch.tensor([[first, 4, last]], device=device)
        with torch.no_grad():
            return encoder(row, torch.ones_like(row, dtype=torch.bool)).states[0, 1]

    plain = second_state(4, 4)
    before, after = (not torch.equal(plain, second_state(*ends)) for ends in ((5, 4), (4, 5)))
    encoder.train(training)
    return {(True, True): "both sides", (True, False): "before", (False, True): "after"}.get(
        (before, after), "neither side"
    )
