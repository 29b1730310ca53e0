"""Translation: generate a target text for each source text."""
