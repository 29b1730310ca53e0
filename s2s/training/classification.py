"""How classifiers are trained: the cross-entropy of their classes."""

from torch import Tensor
from torch.nn import functional

from s2s.data.examples import LabelledBatch
from s2s.models.contract import Classifier
from s2s.training.trainer import Loss


def classification_loss(smoothing: float) -> Loss[Classifier, LabelledBatch]:
    """The cross-entropy of a batch's classes, summed over its examples.

    Args:
        smoothing: share of the probability spread over the classes, in [0, 1); the plain loss has none.
    """

    def loss(model: Classifier, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        """The smoothed sum and the plain one, in nats."""
        scores = model(batch.source, batch.source_valid).float()
        plain = functional.cross_entropy(scores, batch.labels, reduction="sum")
        if not smoothing:
            return plain, plain
        return functional.cross_entropy(scores, batch.labels, reduction="sum", label_smoothing=smoothing), plain

    return loss
