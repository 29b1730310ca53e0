"""Time-synchronous recurrent tagger: one output for each input.

With `bidirectional: false` an output does not depend on later inputs, so it is available as soon as its input is read.
"""

from typing import TYPE_CHECKING, Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields

if TYPE_CHECKING:
    from s2s.models.base import Encoder, Seq2Seq


class Settings(EncoderFields):
    """Settings of the recurrent tagger."""

    kind: Literal["rnn-tagger"] = "rnn-tagger"
    """Time-synchronous recurrent tagger, one output for each input.

    Source and target must have as many words, so use the tokenizer `word`.
    """
    cell: Literal["rnn", "gru", "lstm", "mingru", "minlstm"] = "lstm"
    """Kind of the recurrent layers."""


def build(settings: Settings, source_size: int, target_size: int) -> "Seq2Seq":
    """Build an initialized tagger.

    Args:
        settings: Settings of the model.
        source_size: Size of the source vocabulary.
        target_size: Number of tags.
    """
    from torch import nn

    from baselines.decoder import TimeSyncedDecoder
    from s2s.models.base import Seq2Seq

    encoder, width = build_encoder(settings, source_size)
    projection = nn.Linear(width, target_size, bias=False)
    nn.init.normal_(projection.weight, std=width**-0.5)
    return Seq2Seq(encoder, TimeSyncedDecoder(settings.dropout), projection)


def build_encoder(settings: Settings, source_size: int) -> "tuple[Encoder, int]":
    """Build an initialized recurrent encoder, for classification.

    Returns:
        The encoder, and the width of its states and summary.
    """
    return recurrent.build_encoder(settings.cell, settings, source_size)
