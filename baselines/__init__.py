"""Baseline models, registered with s2s by the entry-point group `s2s.models`."""
