"""The question `capacity`."""
