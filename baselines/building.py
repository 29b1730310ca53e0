"""How the rungs of the ladder build their models, without importing torch before they do."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from baselines.settings import Reading, Recurrent

if TYPE_CHECKING:
    from s2s.models.contract import Encoder, Seq2Seq

Build = Callable[[Recurrent, int, int], "Seq2Seq"]
BuildEncoder = Callable[[Reading, int], "tuple[Encoder, int]"]


def builders(cell: str) -> tuple[Build, BuildEncoder]:
    """What a model's module offers beside its settings: `build` and `build_encoder`.

    Args:
        cell: kind of the recurrent layers: `rnn`, `gru`, `lstm`, `mingru` or `minlstm`.
    """

    def build(settings: Recurrent, source_size: int, target_size: int) -> "Seq2Seq":
        """A freshly initialised model; see `baselines.networks.recurrent`."""
        from baselines.networks import recurrent

        return recurrent(cell, settings, source_size, target_size)

    def build_encoder(settings: Reading, source_size: int) -> "tuple[Encoder, int]":
        """The encoder alone and the width of its summary, for classification."""
        from baselines.networks import recurrent_encoder

        return recurrent_encoder(cell, settings, source_size)

    return build, build_encoder
