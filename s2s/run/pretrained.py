"""`init_from`: the encoder of another run as the beginning of a new one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.training.optimization import group_of

_ENCODER = "encoder."


@dataclass(frozen=True)
class Loaded:
    """Which tensors of a new model came from another run.

    Attributes:
        source: the run and its checkpoint, for the printed list.
        loaded: names of the tensors that were taken over whole.
        partly: those of which only the first rows were, and how many rows: `8,000 of 8,001 rows`.
        left_out: tensors of that run which the new model has no place for.
        new: tensors of the new model that begin as its seed says.
    """

    source: str
    loaded: list[str]
    partly: dict[str, str]
    left_out: list[str]
    new: list[str]

    def __str__(self) -> str:
        partly = [f"{name} ({rows})" for name, rows in self.partly.items()]
        parts = (
            ("loaded", [*_grouped(self.loaded), *partly]),
            ("left out", _grouped(self.left_out)),
            ("newly made", _grouped(self.new)),
        )
        return "\n".join([f"from {self.source}", *(f"  {w:10}  {', '.join(n) or 'nothing'}" for w, n in parts)])

    def names(self) -> list[str]:
        """All tensors that came from the run, whole or in part."""
        return [*self.loaded, *self.partly]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def _grouped(names: Iterable[str]) -> list[str]:
    counts: dict[str, list[str]] = {}
    for name in names:
        counts.setdefault(group_of(name), []).append(name)
    return [same[0] if len(same) == 1 else f"{group} ({len(same)} tensors)" for group, same in counts.items()]


def take_encoder(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> Loaded:
    """Gives a model's encoder the tensors of the same name and shape.

    Of a table of vectors with more or fewer rows, those that both have are taken: a masked-language model has a row for
    the mask piece, and learned positions may end sooner or later.

    Args:
        model: has an encoder of that name, like a `Seq2Seq`, `Classifier` or `MaskedLM`.
        tensors: of another model, by name.
        source: what they are, for messages.

    Raises:
        UserError: a tensor has another shape, or no name is the same.
    """
    wanted = dict(model.named_parameters())
    tables = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    loaded, partly, wrong = [], {}, []
    with torch.no_grad():
        for name, tensor in tensors.items():
            if not name.startswith(_ENCODER) or name not in wanted:
                continue
            mine = wanted[name]
            if mine.shape == tensor.shape:
                mine.copy_(tensor)
                loaded.append(name)
            elif name in tables and mine.shape[1:] == tensor.shape[1:]:
                rows = min(len(mine), len(tensor))
                mine[:rows] = tensor[:rows].to(mine)
                partly[name] = f"{rows:,} of {len(tensor):,} rows" + (
                    f", {len(mine) - rows:,} newly made" if len(mine) > rows else ""
                )
            else:
                wrong.append(f"{name} is {_shape(tensor)} there and {_shape(mine)} here")
    if wrong:
        raise UserError(
            f"{len(wrong)} tensors of {source} have another shape; {wrong[0]}",
            where="init_from",
            remedy="give `model` the same width and the same sizes as that run's recipe.yaml",
        )
    if not (loaded or partly):
        raise UserError(
            f"no tensor of {source} has a place in this model's encoder",
            where="init_from",
            remedy="set model.kind to that of the run, or name another run",
        )
    taken = {*loaded, *partly}
    return Loaded(source, loaded, partly, [n for n in tensors if n not in taken], [n for n in wanted if n not in taken])


def freeze(model: nn.Module, names: Sequence[str], which: str) -> list[str]:
    """Keeps tensors from learning.

    Args:
        model: they are in it.
        names: the tensors that were loaded whole.
        which: `nothing`, `embeddings` (tables of vectors alone) or `all`.

    Returns:
        The names of those that will not learn.
    """
    tables = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    frozen = [n for n in names if which == "all" or (which == "embeddings" and n in tables)]
    parameters = dict(model.named_parameters())
    for name in frozen:
        parameters[name].requires_grad_(False)
    return frozen


def _shape(tensor: Tensor) -> str:
    return " × ".join(f"{size:,}" for size in tensor.shape)
