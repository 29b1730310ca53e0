"""What does a larger model gain? Validation loss against parameters and against compute."""
