"""The question `copying`."""
