"""How translation is trained: pairs and the cross-entropy of their targets."""

from torch import Tensor

from s2s.data.batches import Batch
from s2s.data.encoding import Encoded
from s2s.data.pairs import Pairs, every_pair
from s2s.models.contract import Seq2Seq
from s2s.recipe.schema import BatchSettings, SeedSettings, TrainingSettings
from s2s.training import trainer
from s2s.training.devices import Computer
from s2s.training.loss import cross_entropy
from s2s.training.trainer import Loss, Trainer


def translation_loss(smoothing: float) -> Loss[Seq2Seq, Batch]:
    """The cross-entropy of a batch's targets, summed over its real target tokens.

    Args:
        smoothing: share of the probability spread over the vocabulary, in [0, 1); the plain loss has none.
    """

    def loss(model: Seq2Seq, batch: Batch) -> tuple[Tensor, Tensor]:
        """The smoothed sum and the plain one, in nats."""
        states = model(batch.source, batch.source_valid, batch.target_in)
        return cross_entropy(states, model.projection.weight, batch.target_out, batch.target_valid, smoothing)

    return loss


def translation_trainer(
    model: Seq2Seq,
    data: Encoded,
    training: TrainingSettings,
    batches: BatchSettings,
    seeds: SeedSettings,
    computer: Computer,
) -> Trainer[Seq2Seq, Batch]:
    """A trainer of a model that translates.

    Args:
        model: what is trained, on the computer's device.
        data: the training pairs as pieces.
        training: the optimisation.
        batches: how pairs become batches.
        seeds: of order and dropout.
        computer: device and precision.

    Raises:
        UserError: all pairs are too long, or an update smaller than a batch.
    """
    pairs = Pairs(data, batches, training.tokens_per_update)
    return Trainer(model, pairs, translation_loss(training.label_smoothing), training, seeds, computer)


def mean_loss(model: Seq2Seq, data: Encoded, batches: BatchSettings, computer: Computer) -> float:
    """Cross-entropy without smoothing of all pairs, in nats per target token, dropout off."""
    return trainer.mean_loss(model, every_pair(data, batches), translation_loss(0.0), computer)
