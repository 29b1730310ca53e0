"""The question `classification`."""
