"""Findings of the literature, measured again: each with what was published and the band in which it counts as found."""
