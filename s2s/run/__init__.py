"""Runs: from a recipe to a trained and scored model, and loading it for inference."""
