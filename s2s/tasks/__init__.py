"""The tasks: one folder each, with all that it has of its own."""
