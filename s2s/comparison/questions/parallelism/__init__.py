"""The question `parallelism`."""
