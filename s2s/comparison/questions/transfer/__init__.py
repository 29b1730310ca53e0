"""The question `transfer`."""
