"""The time-synced recurrent network: one output for each input, at its own step; for tagging.

With `bidirectional: false` an output depends on no later input: it could be given as soon as its own is read.
"""

from typing import TYPE_CHECKING, Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields

if TYPE_CHECKING:
    from s2s.models.base import Encoder, Seq2Seq


class Settings(EncoderFields):
    """The tagger's section of a recipe."""

    kind: Literal["rnn-tagger"] = "rnn-tagger"
    """One output for each input; source and target must have as many words, so use the tokenizer `word`."""
    cell: Literal["rnn", "gru", "lstm", "mingru", "minlstm"] = "lstm"
    """Kind of the recurrent layers."""


def build(settings: Settings, source_size: int, target_size: int) -> "Seq2Seq":
    """A freshly initialised model."""
    from torch import nn

    from baselines.decoder import TimeSyncedDecoder
    from s2s.models.base import Seq2Seq

    encoder, width = build_encoder(settings, source_size)
    projection = nn.Linear(width, target_size, bias=False)
    nn.init.normal_(projection.weight, std=width**-0.5)
    return Seq2Seq(encoder, TimeSyncedDecoder(settings.dropout), projection)


def build_encoder(settings: Settings, source_size: int) -> "tuple[Encoder, int]":
    """The encoder alone and the width of its summary, for classification."""
    return recurrent.build_encoder(settings.cell, settings, source_size)
