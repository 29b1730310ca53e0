"""The question `decoding`."""
