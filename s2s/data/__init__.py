"""Text to batches: corpora, tokenizers, batches."""
