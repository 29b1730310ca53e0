"""The question `memory`."""
