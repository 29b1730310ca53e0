"""What is left of a gradient per step of distance: before training, after it, and on its way."""
