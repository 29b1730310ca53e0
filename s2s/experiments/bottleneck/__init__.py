"""Does quality fall with the length of the source? Where all of it must pass through one vector, it should."""
