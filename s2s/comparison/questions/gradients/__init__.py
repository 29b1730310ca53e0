"""The question `gradients`."""
