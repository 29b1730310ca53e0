"""What goes on in a trained model: attention, queries, keys and values, positions, saliency; and the page that shows it."""
