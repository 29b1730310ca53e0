"""Recipes: reading, validating and documenting the YAML configuration of a run."""
