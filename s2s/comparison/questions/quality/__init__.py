"""The question `quality`."""
