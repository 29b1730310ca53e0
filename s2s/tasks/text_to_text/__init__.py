"""Text to text: one model, several corpora, each with its prefix."""
