"""Language models: what comes next in a text."""
