"""The question `associative-recall`."""
