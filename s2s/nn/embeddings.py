"""Token and position embeddings, and the output projection (tied or not).

Embedding rows are initialized with a length of about one. As an output projection, such a table gives scores of
variance one for states of variance one. As an input, a row would be too small: its numbers have variance 1 / width,
while gates, states and position embeddings have numbers of size one. Therefore inputs are multiplied by √width
(Vaswani et al. 2017, section 3.4), unless a recipe sets `model.scale_embeddings`. Recurrent models do not scale by
default: scaled, they learn sooner, but learn less in the end if many tokens are rare (docs/dev/log.md).
"""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.nn.layers import Vectors


def sinusoids(length: int, width: int) -> Float[Tensor, "length width"]:
    """Compute sinusoidal position embeddings (Vaswani et al. 2017, section 3.5).

        table[p, 2i] = sin(p / 10,000^(2i / width)),    table[p, 2i + 1] = cos(p / 10,000^(2i / width))

    Args:
        length: Number of positions.
        width: Size of a vector, an even number.

    Returns:
        The table, `(length, width)`, fp32, on the CPU.

    Example:
        >>> sinusoids(2, 4).round(decimals=2)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8400, 0.5400, 0.0100, 1.0000]])
    """
    # On the CPU even if a model is built on the meta device, where torch would import a compiler for this computation.
    positions = torch.arange(length, dtype=torch.float32, device="cpu").unsqueeze(1)
    evens = torch.arange(0, width, 2, dtype=torch.float32, device="cpu")
    frequencies = torch.exp(evens * (-math.log(10_000.0) / width))
    angles = positions * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).view(length, width)


def extend_sinusoids(table: Float[Tensor, "length width"], last: int) -> Float[Tensor, "longer width"]:
    """Return a longer table of sinusoids, with room for twice `last` positions.

    Args:
        table: The table to replace; its width, data type and device are kept.
        last: Number of positions that are needed now.
    """
    # Outside of inference mode: a table that grows while decoding would otherwise be an inference tensor, which
    # training may not use. Two threads may extend a table at the same time, because each creates a table of its own.
    with torch.inference_mode(False):
        return sinusoids(2 * last, table.shape[1]).to(table)


class Embedding(nn.Module):
    """Token embeddings, scaled by √width, plus position embeddings.

    Args:
        tokens: Table of token vectors. Modules that share one table have tied embeddings.
        positions: `"sinusoidal"` or `"learned"` embeddings are added to the token vectors; `"none"` adds none.
        max_positions: Number of learned positions; not used for the other kinds.
        scaled: Multiply token vectors by √width; without this they have a length of about one.
        norm: Normalization of the sum, as in BERT (Devlin et al. 2019); None for none.

    Example:
        >>> embedding = Embedding(build_embedding_table(size=100, width=16), "sinusoidal", max_positions=0)
        >>> embedding(torch.tensor([[5, 6, 7]])).shape
        torch.Size([1, 3, 16])
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
        # The table follows from the width, so it is neither saved nor trained.
        self.register_buffer(
            "table", sinusoids(256, self.width) if positions == "sinusoidal" else None, persistent=False
        )

    @property
    def max_positions(self) -> int | None:
        """Number of learned positions; None for no limit."""
        return None if self.positions is None else self.positions.num_embeddings

    def set_input_embeddings(self, vectors: nn.Module) -> None:
        """Replace the token table by another module, for example one for image patches.

        Its vectors are not scaled.
        """
        self.tokens, self.scale = vectors, 1.0

    def forward(self, tokens: Tensor, first: int = 0, places: Int[Tensor, "batch steps"] | None = None) -> Vectors:
        """Embed tokens and add position embeddings.

        Args:
            tokens: Token ids, `(batch, steps)`, or the inputs of the module that replaced the table.
            first: Position of the first token.
            places: Position of each token, `(batch, steps)`; None for consecutive positions from `first` on.

        Returns:
            Vectors, `(batch, steps, width)`.

        Raises:
            UserError: The sequence is longer than the learned positions.
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
    """Build source and target embeddings and the output projection, tied as requested.

    Args:
        tie: `"all"` shares one matrix between source, target and output, `"target"` between target and output
            (Press & Wolf 2017), `"none"` shares nothing.
        width: Size of the vectors.
        source_size: Size of the source vocabulary.
        target_size: Size of the target vocabulary.

    Returns:
        Source table, target table, and the projection onto the target vocabulary.

    Raises:
        UserError: `tie` is `"all"`, but the vocabularies differ in size.

    Example:
        >>> source, target, projection = build_embeddings("target", width=8, source_size=20, target_size=30)
        >>> projection.weight is target.weight, source is target
        (True, False)
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
    """Build an embedding table whose rows have a length of about one.

    Args:
        size: Number of rows.
        width: Size of a row; its numbers have a standard deviation of 1 / √width.
    """
    vectors = nn.Embedding(size, width)
    nn.init.normal_(vectors.weight, std=width**-0.5)
    return vectors
