"""The one search, and text in, text out."""
