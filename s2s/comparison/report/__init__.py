"""From result files to figures, tables and one self-contained page; no torch, no models."""
