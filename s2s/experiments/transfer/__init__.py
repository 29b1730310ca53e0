"""What does a model gain from having learned something else? First the other direction of translation, then this."""
