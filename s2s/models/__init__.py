"""Models that a recipe can select with `model.kind`."""
