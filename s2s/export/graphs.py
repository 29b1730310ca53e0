"""A model as graphs without Python in them: one for what answers at once, and two for what writes step by step.

What a decoder's context and state are, each model knows for itself: bundles of tensors, and here and there the number
of pieces fed so far. A graph takes and gives the tensors in their order; the number is the length of `written`, the
pieces that were fed before, so that no graph holds it as a constant.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from s2s.models.base import BatchedState, Classifier, Seq2Seq
from s2s.models.language_model import LanguageModel
from s2s.models.masked_lm import MaskedLM

Writer = Seq2Seq | LanguageModel
"""What writes piece by piece."""


def leaves(bundle: object) -> list[Tensor]:
    """The tensors of a bundle, in the order of its fields."""
    return [value for value in _walk(bundle) if isinstance(value, Tensor)]


def _walk(bundle: object) -> Iterator[object]:
    if isinstance(bundle, BatchedState):
        for field in dataclasses.fields(bundle):
            yield from _walk(getattr(bundle, field.name))
    elif isinstance(bundle, tuple):
        for part in bundle:
            yield from _walk(part)
    else:
        yield bundle


def counts(bundle: object) -> bool:
    """Whether a bundle knows how many pieces were fed."""
    return any(type(value) is int for value in _walk(bundle))


def filled(bundle: Any, tensors: Iterator[Tensor], fed: int) -> Any:
    """A bundle of the same kind with other tensors, after so many pieces."""
    if isinstance(bundle, BatchedState):
        fields = dataclasses.fields(bundle)
        return dataclasses.replace(bundle, **{f.name: filled(getattr(bundle, f.name), tensors, fed) for f in fields})
    if isinstance(bundle, tuple):
        return tuple(filled(part, tensors, fed) for part in bundle)
    if isinstance(bundle, Tensor):
        return next(tensors)
    return fed if type(bundle) is int else bundle


class Answer(nn.Module):
    """What a model says of a whole input: scores of the classes, or of the pieces at each place."""

    def __init__(self, model: Classifier | MaskedLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, valid: Tensor) -> Tensor:
        """Unnormalised log probabilities."""
        if isinstance(self.model, Classifier):
            return self.model(source, valid)
        return self.model.scores(self.model.transform(self.model.encoder(source, valid).states))


class Start(nn.Module):
    """What a decoder reads at every step, and its state before the first; what is always empty then is left out."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, valid: Tensor) -> tuple[Tensor, ...]:
        """The tensors of the context, then those of the state."""
        # one_to_one writes as much as it reads; others take no notice
        context, state = self.model.decoder.start(self.model.encoder(source, valid), source.shape[1])
        return (*leaves(context), *leaves(state))


class Step(nn.Module):
    """One piece more: scores of the piece that follows, and the new state.

    Args:
        model: writes.
        context: of any input; only its kind counts. None where the model has no source.
        state: after at least one step; likewise.
    """

    def __init__(self, model: Writer, context: BatchedState | None, state: BatchedState) -> None:
        super().__init__()
        self.model = model
        self.context = context
        self.state = state

    def forward(self, newest: Tensor, written: Tensor, bundle: list[Tensor]) -> tuple[Tensor, ...]:
        """Scores of all pieces, and the tensors of the new state.

        Args:
            newest: the piece to be fed, `(batch, 1)`.
            written: those that were fed before, `(batch, fed)`.
            bundle: the tensors of the context, then those of the state.
        """
        tensors, fed = iter(bundle), written.shape[1]
        context = filled(self.context, tensors, fed)
        state = filled(self.state, tensors, fed)
        given = (state, newest) if context is None else (context, state, newest)
        states, state = self.model.decoder(*given)
        return (self.model.projection(states[:, -1]), *leaves(state))


@dataclass(frozen=True)
class Example:
    """An input of a model, by its sizes; two that differ in all sizes tell which axes of a graph may have any length.

    Attributes:
        source: pieces or images; None where a model has no source.
        valid: which of them are real.
        written: pieces that were fed, `(batch, fed)`, and last one to be fed.
    """

    source: Tensor | None
    valid: Tensor | None
    written: Tensor


def after(model: Writer, example: Example) -> tuple[BatchedState | None, BatchedState]:
    """A decoder's context and state when all but the last piece were fed; the context of a language model is None."""
    if isinstance(model, LanguageModel):
        state = model.decoder.start(len(example.written), separate_documents=False)
        return None, model.decoder(state, example.written[:, :-1])[1]
    context, state = model.decoder.start(model.encoder(example.source, example.valid), _length(example))
    return context, model.decoder(context, state, example.written[:, :-1])[1]


def _length(example: Example) -> int:
    return 0 if example.valid is None else example.valid.shape[1]


def begun(model: Writer, example: Example) -> list[Tensor]:
    """The tensors of a state before the first step; none of them where there is nothing to keep yet."""
    if isinstance(model, LanguageModel):
        return leaves(model.decoder.start(len(example.written), separate_documents=False))
    return leaves(model.decoder.start(model.encoder(example.source, example.valid), _length(example))[1])
