"""Modules to export as graphs: one for single-pass models, two for generation.

The context and state of a decoder are model-specific trees of tensors, some with the number of fed tokens. A graph
takes and returns the tensors in order. The number is taken from the length of `written`, the tokens fed before, so
that no graph contains it as a constant.
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
"""A model that generates token by token."""


def leaves(bundle: object) -> list[Tensor]:
    """Return the tensors of a tree, in the order of its fields.

    Example:
        >>> import torch
        >>> [tensor.tolist() for tensor in leaves((torch.tensor([1]), 5, (torch.tensor([2]),)))]
        [[1], [2]]
    """
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
    """Return True if a tree contains the number of fed tokens."""
    return any(type(value) is int for value in _walk(bundle))


def filled(bundle: Any, tensors: Iterator[Tensor], fed: int) -> Any:
    """Copy a tree with other tensors, in order; `fed` tokens replace its integers."""
    if isinstance(bundle, BatchedState):
        fields = dataclasses.fields(bundle)
        return dataclasses.replace(bundle, **{f.name: filled(getattr(bundle, f.name), tensors, fed) for f in fields})
    if isinstance(bundle, tuple):
        return tuple(filled(part, tensors, fed) for part in bundle)
    if isinstance(bundle, Tensor):
        return next(tensors)
    return fed if type(bundle) is int else bundle


class Answer(nn.Module):
    """Graph of a single-pass model: class scores, or token scores at each position."""

    def __init__(self, model: Classifier | MaskedLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, valid: Tensor) -> Tensor:
        """Return logits."""
        if isinstance(self.model, Classifier):
            return self.model(source, valid)
        return self.model.scores(self.model.transform(self.model.encoder(source, valid).states))


class Start(nn.Module):
    """Graph that encodes a source and starts the decoder.

    Tensors that are always empty before the first step are left out.
    """

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, valid: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of the decoder's context and of its initial state."""
        # One-to-one decoders write as many tokens as they read; others ignore the length.
        context, state = self.model.decoder.start(self.model.encoder(source, valid), source.shape[1])
        return (*leaves(context), *leaves(state))


class Step(nn.Module):
    """Graph of one decoding step: scores of the next token, and the new state.

    Args:
        model: The model.
        context: Context for any input, which gives the structure. None if the model has no source.
        state: State after at least one step, which gives the structure.
    """

    def __init__(self, model: Writer, context: BatchedState | None, state: BatchedState) -> None:
        super().__init__()
        self.model = model
        self.context = context
        self.state = state

    def forward(self, newest: Tensor, written: Tensor, bundle: list[Tensor]) -> tuple[Tensor, ...]:
        """Feed the token `newest`, `(batch, 1)`, after `written`, `(batch, fed)`.

        Returns:
            Scores of all tokens, and the tensors of the new state.
        """
        tensors, fed = iter(bundle), written.shape[1]
        context = filled(self.context, tensors, fed)
        state = filled(self.state, tensors, fed)
        given = (state, newest) if context is None else (context, state, newest)
        states, state = self.model.decoder(*given)
        return (self.model.projection(states[:, -1]), *leaves(state))


@dataclass(frozen=True)
class Example:
    """Example input for tracing; axes that differ between two examples become dynamic."""

    source: Tensor | None  # token ids or images; None if the model has no source
    valid: Tensor | None  # padding mask
    written: Tensor  # tokens fed to the decoder, `(batch, fed)`, followed by the next one


def start(model: Writer, example: Example) -> tuple[BatchedState | None, BatchedState]:
    """Return the decoder's context (None for a language model) and its state before the first step."""
    if isinstance(model, LanguageModel):
        return None, model.decoder.start(len(example.written), separate_documents=False)
    length = 0 if example.valid is None else example.valid.shape[1]
    return model.decoder.start(model.encoder(example.source, example.valid), length)


def after(model: Writer, example: Example) -> tuple[BatchedState | None, BatchedState]:
    """Return the decoder's context and state after all but the last token were fed."""
    context, state = start(model, example)
    written = example.written[:, :-1]
    given = (state, written) if isinstance(model, LanguageModel) else (context, state, written)
    return context, model.decoder(*given)[1]
