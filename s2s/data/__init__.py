"""Data: corpora, tokenizers, datasets, batch samplers and collation."""
