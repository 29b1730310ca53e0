"""Masked-language modelling."""
