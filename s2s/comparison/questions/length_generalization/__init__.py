"""The question `length-generalization`."""
