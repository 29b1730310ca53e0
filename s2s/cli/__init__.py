"""Command line: each command parses its arguments, calls one function and prints."""
