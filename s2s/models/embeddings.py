"""Token vectors and the output projection, tied as a recipe says.

A table's rows have about length one, so that as an output projection it gives scores of variance one to states of
variance one. As an input such a row would be next to nothing: numbers of variance 1 / width, where every gate, state
and position vector is of size one. So what is read is multiplied by √width (Vaswani et al. 2017, section 3.4), in
every model alike, unless a recipe says otherwise.
"""

from typing import Literal

from torch import nn

from s2s.errors import UserError


def tables(
    tie: Literal["all", "target", "none"], width: int, source_size: int, target_size: int
) -> tuple[nn.Embedding, nn.Embedding, nn.Linear]:
    """The table of source vectors, that of target vectors, and the projection onto the target vocabulary.

    Args:
        tie: which of them are one matrix.
        width: size of a vector.
        source_size: number of source pieces.
        target_size: number of target pieces.

    Raises:
        UserError: all shall be one, but the vocabularies differ in size.
    """
    if tie == "all" and source_size != target_size:
        raise UserError(
            f"model.tie is all, but the source has {source_size} pieces and the target {target_size}",
            remedy="set tokenizer.shared: true, or model.tie: target",
        )
    source = table(source_size, width)
    target = source if tie == "all" else table(target_size, width)
    projection = nn.Linear(width, target_size, bias=False)
    if tie == "none":
        nn.init.normal_(projection.weight, std=width**-0.5)
    else:
        projection.weight = target.weight
    return source, target, projection


def table(size: int, width: int) -> nn.Embedding:
    """Vectors of about length one."""
    vectors = nn.Embedding(size, width)
    nn.init.normal_(vectors.weight, std=width**-0.5)
    return vectors
