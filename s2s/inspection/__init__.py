"""Model inspection: attention, queries, keys, values, positions and saliency."""
