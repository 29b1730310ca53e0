"""Pretrained word vectors (word2vec or GloVe text format) as initial embeddings."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.data.text_files import check_there, lines
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.nn.embeddings import Embedding
from s2s.recipe.schema import VectorSettings

_SPACE = "▁"


def load_vectors(
    model: nn.Module,
    tokenizers: Sequence[Tokenizer],
    settings: VectorSettings,
    resumed: bool,
    print_fn: Callable[[str], object],
) -> None:
    """Copy pretrained word vectors into the embeddings of a model, and freeze these if the settings say so.

    Vectors are scaled by one factor, so that their root mean square length is 1, as that of initial embeddings.

    Args:
        model: The model, changed in place.
        tokenizers: Tokenizer of the source, and of the target if it has its own.
        resumed: True if a checkpoint has the weights, so that no file is read.
        print_fn: Receives the coverage, a line for each file.

    Raises:
        UserError: A file is not in this format, has vectors of another size or none of the tokens; or the model has no
            such embeddings.
    """
    for side, name, tokenizer in (
        ("encoder", settings.source, tokenizers[0]),
        ("decoder", settings.target, tokenizers[-1]),
    ):
        if name is None:
            continue
        where = f"vectors.{'source' if side == 'encoder' else 'target'}"
        part = getattr(model, side, None)
        tables = [each.tokens for each in part.modules() if isinstance(each, Embedding)] if part else []
        if not tables or not isinstance(tables[0], nn.Embedding):
            raise UserError(f"the model has no {side} with token embeddings", where, "leave it out")
        weight = tables[0].weight
        if not resumed:
            path = Path(name)
            check_there(path)
            rows, vectors = read_vectors(path, tokenizer, weight.shape[1])
            if not len(rows):
                what = f"{path} has no vector for any of the {tokenizer.size:,} tokens"
                raise UserError(what, where, "use whole words: tokenizer.kind: word; check tokenizer.lowercase")
            length = vectors.norm(dim=1).square().mean().sqrt()
            if not (length.isfinite() and length > 0):
                what = f"the vectors of {path} have the root mean square length {float(length):g}"
                raise UserError(what, where, "name another file: one factor cannot scale it to 1")
            with torch.no_grad():
                weight[rows] = vectors / length
            share = len(rows) / tokenizer.size
            print_fn(f"{where}: {len(rows):,} of {tokenizer.size:,} tokens ({share:.0%}) have a vector in {path}")
        weight.requires_grad_(not settings.freeze)


def read_vectors(
    path: Path, tokenizer: Tokenizer, width: int
) -> tuple[Int[Tensor, " found"], Float[Tensor, "found width"]]:
    """Read the vectors of those tokens that begin a word, by the word without the space before it.

    Args:
        path: Text file (plain, .gz or .xz) of lines `word number …`; a first line `count size` is skipped.
        width: Size of a vector.

    Returns:
        Token ids, and the vector of each.

    Raises:
        UserError: A vector has another size, or is not made of finite numbers.
    """
    shown = enumerate(tokenizer.tokens(range(tokenizer.size)))
    wanted = {text.removeprefix(_SPACE): i for i, text in shown if text.startswith(_SPACE)}
    found: dict[int, list[float]] = {}
    for number, line in enumerate(lines(path), start=1):
        word, *values = line.rstrip().split(" ")
        token = wanted.get(word)
        if token is None or token in found or (number == 1 and len(values) == 1):
            continue
        where, remedy = f"{path}:{number}", "name a file in word2vec or GloVe text format"
        if len(values) != width:
            what = f"the vector of {word!r} has {len(values):,} numbers, but model.width is {width:,}"
            raise UserError(what, where, f"set model.width={len(values)}, or {remedy}")
        try:
            found[token] = list(map(float, values))
        except ValueError:
            raise UserError(f"the vector of {word!r} is not made of numbers", where, remedy) from None
        if not torch.tensor(found[token]).isfinite().all():
            raise UserError(f"the vector of {word!r} has a number that is infinite or NaN", where, "name another file")
    return torch.tensor(list(found), dtype=torch.long), torch.tensor(list(found.values())).reshape(-1, width)
