"""What a recipe can name under `model.kind`."""
