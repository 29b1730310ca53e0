"""Recurrent encoders and decoders put together: what the rungs of the ladder are made of."""

from baselines.decoder import AttentiveDecoder, SqueezedDecoder
from baselines.embeddings import table, tables
from baselines.encoder import RecurrentEncoder
from baselines.settings import Attentive, Reading, Recurrent
from s2s.models.contract import Encoder, Seq2Seq


def recurrent(cell: str, settings: Recurrent, source_size: int, target_size: int) -> Seq2Seq:
    """A freshly initialised encoder and decoder, with attention where the settings have it.

    Args:
        cell: kind of the recurrent layers, see `baselines.cells.CELLS`.
        settings: the recipe's `model` section.
        source_size: number of source pieces.
        target_size: number of target pieces.

    Raises:
        UserError: all embeddings shall be tied, but the vocabularies differ in size.
    """
    source, target, projection = tables(settings.tie, settings.width, source_size, target_size)
    encoder = RecurrentEncoder(cell, settings, source)
    if isinstance(settings, Attentive):
        encoder.longest = settings.max_positions if settings.attention == "location" else None
        return Seq2Seq(encoder, AttentiveDecoder(cell, settings, target), projection)
    return Seq2Seq(encoder, SqueezedDecoder(cell, settings, target), projection)


def recurrent_encoder(cell: str, settings: Reading, source_size: int) -> tuple[Encoder, int]:
    """The encoder alone and the width of its summary, for classification."""
    return RecurrentEncoder(cell, settings, table(source_size, settings.width)), settings.width
