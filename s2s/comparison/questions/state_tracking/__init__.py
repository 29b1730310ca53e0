"""The question `state-tracking`."""
