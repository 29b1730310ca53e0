"""Captioning: generate a sentence for each image."""
