"""What tasks share whose models write text, whatever they read."""

from torch import Tensor

from s2s.data.batches import Batch
from s2s.models.contract import Seq2Seq
from s2s.training.loss import cross_entropy
from s2s.training.trainer import Loss


def writing_loss(smoothing: float) -> Loss[Seq2Seq, Batch]:
    """The cross-entropy of a batch's real tokens, summed; smoothing is in [0, 1), and the plain loss has none."""

    def loss(model: Seq2Seq, batch: Batch) -> tuple[Tensor, Tensor]:
        """The smoothed sum and the plain one, in nats."""
        states = model(batch.source, batch.source_valid, batch.target_in)
        return cross_entropy(states, model.projection.weight, batch.target_out, batch.target_valid, smoothing)

    return loss
