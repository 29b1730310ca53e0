"""Reproductions of published findings: each module has one, with the published numbers and their tolerance bands."""
