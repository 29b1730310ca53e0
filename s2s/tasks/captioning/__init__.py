"""Captioning: a sentence for each image."""
