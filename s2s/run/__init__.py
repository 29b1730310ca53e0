"""From a recipe to a trained, scored, usable run: the one room that knows all the others."""
