"""What an output token costs: greedy generation against the lengths of source and target."""
