"""Vectors of tokens and of their places, and the output projection, tied as a recipe says.

A table's rows have about length one, so that as an output projection it gives scores of variance one to states of
variance one. As an input such a row would be next to nothing: numbers of variance 1 / width, where every gate, state
and position vector is of size one. So what is read is multiplied by √width (Vaswani et al. 2017, section 3.4), unless a
recipe says otherwise with `model.scale_embeddings`. Recurrent models read the rows as they are, unless a recipe says
otherwise: scaled, they learn sooner, and less in the end where many pieces are rare (docs/dev/log.md).
"""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.nn.layers import Vectors


def sinusoids(length: int, width: int) -> Float[Tensor, "length width"]:
    """Position vectors of an even width (Vaswani et al. 2017, section 3.5): sines in even places, cosines in odd."""
    # as numbers even where a model is made without any, because torch would import a compiler to compute none
    positions = torch.arange(length, dtype=torch.float32, device="cpu").unsqueeze(1)
    evens = torch.arange(0, width, 2, dtype=torch.float32, device="cpu")
    frequencies = torch.exp(evens * (-math.log(10_000.0) / width))
    angles = positions * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).view(length, width)


def extend_sinusoids(table: Float[Tensor, "length width"], last: int) -> Float[Tensor, "longer width"]:
    """A longer table of sinusoids, with a place for that position and as many more."""
    # grown while decoding, it would be a tensor of inference, which training may not use;
    # two threads may grow one at a time, each for itself
    with torch.inference_mode(False):
        return sinusoids(2 * last, table.shape[1]).to(table)


class Embedding(nn.Module):
    """Token vectors, scaled by the root of the width, plus position vectors.

    Args:
        tokens: the table of token vectors; sharing one between modules ties them.
        positions: kind of position information.
        max_positions: number of learned positions; without meaning for the other kinds.
        scaled: whether vectors are scaled; as they are in the table, they have about length one.
        norm: normalises the sum of both, as BERT does (Devlin et al. 2019); nothing does when None.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: Literal["sinusoidal", "learned", "none"],
        max_positions: int,
        scaled: bool = True,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.tokens: nn.Module = tokens
        self.kind = positions
        self.width = tokens.embedding_dim
        self.scale = math.sqrt(self.width) if scaled else 1.0
        self.norm = norm
        self.positions = nn.Embedding(max_positions, self.width) if positions == "learned" else None
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=self.width**-0.5)
        # derived from the width alone, so it is neither saved nor trained
        self.register_buffer(
            "table", sinusoids(256, self.width) if positions == "sinusoidal" else None, persistent=False
        )

    @property
    def max_positions(self) -> int | None:
        """Positions that were learned; None where there is no limit."""
        return None if self.positions is None else self.positions.num_embeddings

    def set_input_embeddings(self, vectors: nn.Module) -> None:
        """Takes another module's vectors, as they are, for those of a table, e.g. of an image's patches."""
        self.tokens, self.scale = vectors, 1.0

    def forward(self, tokens: Tensor, first: int = 0, places: Int[Tensor, "batch steps"] | None = None) -> Vectors:
        """Vectors of the tokens, the first of which stands at position `first`, or each at the place given for it.

        Raises:
            UserError: learned positions end before the last token.
        """
        x = self._add_positions(self.tokens(tokens) * self.scale, first, places)
        return x if self.norm is None else self.norm(x)

    def _add_positions(self, x: Vectors, first: int, places: Tensor | None) -> Vectors:
        last = first + x.shape[1]
        if self.positions is not None:
            if last > self.positions.num_embeddings:
                raise UserError(
                    f"a sequence of {last} pieces is longer than the {self.positions.num_embeddings} learned positions",
                    remedy="raise model.max_positions, or lower batches.max_length",
                )
            return x + (self.positions.weight[first:last] if places is None else self.positions.weight[places])
        if self.table is not None:
            table = self.table
            if last > len(table):
                self.table = table = extend_sinusoids(table, last)
            return x + (table[first:last] if places is None else table[places])
        return x


def build_embeddings(
    tie: Literal["all", "target", "none"], width: int, source_size: int, target_size: int
) -> tuple[nn.Embedding, nn.Embedding, nn.Linear]:
    """The table of source vectors, that of target vectors, and the projection onto the target vocabulary.

    Raises:
        UserError: all shall be one, but the vocabularies differ in size.
    """
    if tie == "all" and source_size != target_size:
        raise UserError(
            f"model.tie is all, but the source has {source_size} pieces and the target {target_size}",
            remedy="set tokenizer.shared: true, or model.tie: target",
        )
    source = build_embedding_table(source_size, width)
    target = source if tie == "all" else build_embedding_table(target_size, width)
    projection = nn.Linear(width, target_size, bias=False)
    if tie == "none":
        nn.init.normal_(projection.weight, std=width**-0.5)
    else:
        projection.weight = target.weight
    return source, target, projection


def build_embedding_table(size: int, width: int) -> nn.Embedding:
    """Vectors of about length one."""
    vectors = nn.Embedding(size, width)
    nn.init.normal_(vectors.weight, std=width**-0.5)
    return vectors
