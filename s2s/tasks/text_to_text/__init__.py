"""Text to text: one model for several corpora, each with a prefix."""
