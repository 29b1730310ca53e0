"""s2s: sequence-to-sequence models, from the first RNN to the Transformer, trained and compared honestly."""

__version__ = "0.1.0"
