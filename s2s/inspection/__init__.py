"""What goes on in a trained model: attention, queries, keys, values, positions, saliency; and the page of it."""
