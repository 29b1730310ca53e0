"""Diagnosis of a trained model: numerical self-tests and signs of a bad run."""
