"""Layers without knowledge of text, recipes or training."""
