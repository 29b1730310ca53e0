"""Baseline models that plug into s2s through the entry-point group `s2s.models`."""
