"""What the user writes: one checked page of YAML."""
