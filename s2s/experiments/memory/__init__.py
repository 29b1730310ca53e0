"""How memory grows with length: in training, in reading and writing without gradients, and from token to token."""
