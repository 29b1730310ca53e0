"""How much of a model's work can be done at once, and what its length costs in time."""
