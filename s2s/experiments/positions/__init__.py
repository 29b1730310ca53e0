"""What does a model know of the order of words? Shuffled sources, and trainings without signals of position."""
