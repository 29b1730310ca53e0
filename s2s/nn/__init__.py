"""Layers that know nothing of text, recipes or training."""
