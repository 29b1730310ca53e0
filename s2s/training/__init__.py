"""Training: loss, optimizers, trainer, distributed training, checkpoints and logs."""
