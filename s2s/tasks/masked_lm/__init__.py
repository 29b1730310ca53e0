"""Masked language models: predict masked tokens of a text."""
