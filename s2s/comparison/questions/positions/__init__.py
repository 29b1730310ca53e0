"""The question `positions`."""
