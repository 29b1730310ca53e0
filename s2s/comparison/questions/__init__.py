"""The questions of a comparison: each a folder with `measure.py`, `analyse.py`, `METHOD.md` and `LIMITS.md`."""
