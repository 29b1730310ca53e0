"""The question `bottleneck`."""
