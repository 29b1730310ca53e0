"""Beam search and text generation."""
