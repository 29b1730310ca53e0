"""The question `text-length`."""
