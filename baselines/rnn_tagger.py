"""The time-synced recurrent network: one output for each input, as soon as it is read; for tagging."""

from typing import TYPE_CHECKING, Literal

from baselines.settings import Reading

if TYPE_CHECKING:
    from s2s.models.contract import Encoder, Seq2Seq


class Settings(Reading):
    """The tagger's section of a recipe."""

    kind: Literal["rnn-tagger"] = "rnn-tagger"
    """One output for each input; source and target must have as many words, so use the tokenizer `word`."""
    cell: Literal["rnn", "gru", "lstm", "mingru", "minlstm"] = "lstm"
    """Kind of the recurrent layers."""


def build(settings: Settings, source_size: int, target_size: int) -> "Seq2Seq":
    """A freshly initialised model."""
    from baselines import tagging

    return tagging.build(settings, source_size, target_size)


def build_encoder(settings: Settings, source_size: int) -> "tuple[Encoder, int]":
    """The encoder alone and the width of its summary, for classification."""
    from baselines.networks import recurrent_encoder

    return recurrent_encoder(settings.cell, settings, source_size)
