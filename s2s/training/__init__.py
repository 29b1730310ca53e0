"""Loss, optimisation, the trainer, checkpoints and logs."""
