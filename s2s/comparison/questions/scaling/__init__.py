"""The question `scaling`."""
