"""Trained models as a server: requests in, batches through one model thread, answers out."""
