"""The question `long-range`."""
