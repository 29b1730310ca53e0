"""How far back can a model reach? Accuracy against distance on seven tasks with exact answers."""
