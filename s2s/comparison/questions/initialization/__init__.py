"""The question `initialization`."""
