"""Ensemble of models: each next token is predicted from the mean of the models' probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from s2s.models.base import BatchedState, Decoder, Encoder, EncoderOutput, Seq2Seq
from s2s.nn.layers import Inputs, PaddingMask, States, Tokens, Vectors

Mean = Literal["probabilities", "log"]
"""Mean of the probabilities, or of their logarithms (a geometric mean, not normalized)."""


@dataclass(frozen=True)
class _Joint(BatchedState):
    """Contexts or states of the members, in order."""

    members: tuple[BatchedState, ...]

    def repeat_for_beams(self, rows: int, times: int, device: torch.device) -> "_Joint":
        return _Joint(tuple(member.repeat_for_beams(rows, times, device) for member in self.members))


@dataclass(frozen=True)
class _JointOutput(EncoderOutput):
    """Outputs of the members' encoders; `states` and `summary` are those of the first one."""

    members: tuple[EncoderOutput, ...]


class _JointEncoder(Encoder):
    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.members, self._encoders = nn.ModuleList(encoders), tuple(encoders)
        limits = [encoder.max_positions for encoder in encoders if encoder.max_positions is not None]
        self.max_positions = min(limits, default=None)

    def forward(self, source: Inputs, valid: PaddingMask) -> EncoderOutput:
        found = tuple(encoder(source, valid) for encoder in self._encoders)
        return _JointOutput(found[0].states, valid, found[0].summary, found)

    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        raise NotImplementedError("the members of an ensemble have embeddings of their own")


class _JointDecoder(Decoder[_Joint, _Joint]):
    def __init__(self, decoders: Sequence[Decoder]) -> None:
        super().__init__()
        self.members, self._decoders = nn.ModuleList(decoders), tuple(decoders)
        limits = [decoder.max_positions for decoder in decoders if decoder.max_positions is not None]
        self.max_positions = min(limits, default=None)
        self.is_one_to_one = any(decoder.is_one_to_one for decoder in decoders)

    def start(self, memory: EncoderOutput, limit: int) -> tuple[_Joint, _Joint]:
        outputs = cast(_JointOutput, memory).members
        pairs = [decoder.start(own, limit) for decoder, own in zip(self._decoders, outputs, strict=True)]
        return _Joint(tuple(context for context, _ in pairs)), _Joint(tuple(state for _, state in pairs))

    def forward(self, context: _Joint, state: _Joint, tokens: Tokens) -> tuple[Vectors, _Joint]:
        each = zip(self._decoders, context.members, state.members, strict=True)
        found = [decoder(own, before, tokens) for decoder, own, before in each]
        return torch.cat([states for states, _ in found], dim=2), _Joint(tuple(after for _, after in found))


class Ensemble(Seq2Seq):
    """Several models as one, for beam search and for scores with teacher forcing.

    The models may be of different kinds and sizes; they share the vocabularies of source and target. A decoder state of
    the ensemble is the concatenation of the members' states.

    Args:
        members: Models, at least one.
        mean: Mean that joins the predictions.

    Example:
        >>> from s2s.models.transformer import Settings, build
        >>> models = [build(Settings(width=16, heads=2, feedforward=32), 20, 20).eval() for _ in range(2)]
        >>> source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[2, 8, 9]])
        >>> joint = Ensemble(models).logits(source, source > 0, target).exp()
        >>> each = [model.logits(source, source > 0, target).softmax(dim=2) for model in models]
        >>> torch.testing.assert_close(joint, (each[0] + each[1]) / 2)
    """

    def __init__(self, members: Sequence[Seq2Seq], mean: Mean = "probabilities") -> None:
        nn.Module.__init__(self)  # an ensemble has no projection of its own
        self.encoder = _JointEncoder([member.encoder for member in members])
        self.decoder = _JointDecoder([member.decoder for member in members])
        self.projections = nn.ModuleList([member.projection for member in members])
        self.widths = [member.projection.in_features for member in members]
        self.mean = mean

    def log_probabilities(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        """Return the logarithm of the members' mean probability of each token.

        Args:
            states: Decoder states of the ensemble.
        """
        each = torch.stack(
            [
                projection(own).float().log_softmax(dim=-1)
                for projection, own in zip(self.projections, states.split(self.widths, dim=-1), strict=True)
            ]
        )
        if self.mean == "log":
            return each.mean(dim=0)
        # Relative to the largest one: equal members give exactly their own log probabilities.
        largest = each.amax(dim=0)
        return largest + (each - largest).exp().mean(dim=0).log()

    def logits(self, source: Inputs, valid: PaddingMask, target: Tokens) -> Float[Tensor, "batch steps vocabulary"]:
        """Return `log_probabilities` of the token that follows each target token, `(batch, steps, vocabulary)`."""
        return self.log_probabilities(self(source, valid, target))
