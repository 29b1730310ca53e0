"""Translation: a target for each source."""
