"""Exact gradients of a loss with respect to inputs, states and source tokens, in float64 on the CPU.

Gradients of 10⁻³⁰ are usual here, so no fused kernel is used.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from s2s.comparison.instruments import numbers
from s2s.comparison.questions.gradients.jacobian import with_numbers
from s2s.comparison.spec import NotForThisModel
from s2s.data.batches import collate, collate_sources
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import BOS
from s2s.models.base import EncoderOutput, Seq2Seq

Path = Literal["whole", "attention", "summary"]


@dataclass(frozen=True)
class Texts:
    """Long texts to encode and to decode."""

    source: Int[Tensor, "batch source"]
    valid: Bool[Tensor, "batch source"]
    tokens: Int[Tensor, "batch fed"]  # decoder input: `BOS` and then real tokens
    answer: Int[Tensor, " batch"]  # the token that follows

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(self, rows: slice) -> "Texts":
        return Texts(self.source[rows], self.valid[rows], self.tokens[rows], self.answer[rows])


@dataclass(frozen=True)
class GradientNorms:
    """Norms of a loss's gradient; the loss is −log p of the right token after the last input."""

    # with respect to the embedding of the input 0, 1, 2 … steps before the last one
    inputs: Float[np.ndarray, "batch distance"]
    # with respect to the decoder's state 1, 2, 3 … steps before the last one; None for a state without floats
    states: Float[np.ndarray, "batch distance"] | None
    # of a random direction of the encoder's summary, with respect to the embedding of the source's last token, the one
    # before it, and so on; NaN before a source's beginning
    source: Float[np.ndarray, "batch source"]


def long_texts(data: TokenizedDataset, count: int, length: int) -> Texts:
    """Join the corpus's sentences end to end to long texts.

    Args:
        data: Sentence pairs.
        count: Number of texts.
        length: Input tokens after `BOS`; no source has more, including its end.
    """
    sources, targets = [], []
    pair = 0
    for _ in range(count):
        source: list[int] = []
        target: list[int] = []
        while len(target) <= length:
            read, written = data.pair(pair % len(data))
            source, target, pair = source + read, target + written, pair + 1
        sources.append(source[: length - 1])
        targets.append([BOS, *target[: length + 1]])
    source_tokens, valid = collate_sources(sources)
    tokens = torch.tensor(targets)
    return Texts(source_tokens, valid, tokens[:, :-1], tokens[:, -1])


@contextmanager
def captured_embeddings(module: nn.Module, tokens: Int[Tensor, "batch steps"], side: str) -> Iterator[list[Tensor]]:
    """Context manager that captures the embeddings of tokens.

    Yields:
        A list that is filled with the outputs of every `nn.Embedding` of the module for these tokens.

    Raises:
        NotForThisModel: Nothing was captured.
    """
    captured: list[Tensor] = []

    def _capture(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if isinstance(inputs[0], Tensor) and inputs[0].shape == tokens.shape and torch.equal(inputs[0], tokens):
            captured.append(output)

    hooks = [part.register_forward_hook(_capture) for part in module.modules() if isinstance(part, nn.Embedding)]
    try:
        yield captured
    finally:
        for hook in hooks:
            hook.remove()
    if not captured:
        raise NotForThisModel(f"its {side} has no nn.Embedding of its tokens, so there is no input gradient")


def gradient_norms(model: Seq2Seq, texts: Texts, batch_size: int, seed: int) -> GradientNorms:
    """Compute the norms of the gradients of one loss per text.

    Args:
        model: In evaluation mode and float64.
        texts: The texts.
        batch_size: Texts at once; key/value caches of long ones need memory.
        seed: Seed of the directions of the summary.

    Raises:
        NotForThisModel: Its embeddings cannot be captured.
    """
    inputs, states = [], []
    for i in range(0, len(texts), batch_size):
        by_input, by_state = decoder_gradients(model, texts[i : i + batch_size])
        # without BOS, which attention uses as a sink
        inputs.append(by_input.norm(dim=2)[:, 1:].flip(1).numpy())
        if by_state[-1]:
            # without the state after the last token, which the loss does not depend on
            joined = [torch.cat([part.flatten(1) for part in parts], dim=1).norm(dim=1) for parts in by_state[1:-1]]
            states.append(torch.stack(joined, dim=1).flip(1).numpy())
    by_source = _summary_norms(model, texts, seed)
    return GradientNorms(np.concatenate(inputs), np.concatenate(states) if states else None, by_source)


def decoder_gradients(model: Seq2Seq, texts: Texts) -> tuple[Float[Tensor, "batch fed width"], list[list[Tensor]]]:
    """Compute the gradients of the loss, feeding the decoder token by token.

    Returns:
        Gradients with respect to each token's embedding, and to each tensor of the state after each token.

    Raises:
        NotForThisModel: Its embeddings cannot be captured.
    """
    context, state = model.decoder.start(model.encoder(texts.source, texts.valid), texts.tokens.shape[1])
    inputs, states, last = [], [], None
    for token in texts.tokens.split(1, dim=1):
        with captured_embeddings(model.decoder, token, "decoder") as captured:
            last, state = model.decoder(context, state, token)
        inputs.append(captured)
        states.append(numbers(state))
    if last is None:
        raise ValueError("a text without tokens has no gradient")
    loss = functional.cross_entropy(model.projection(last[:, -1]), texts.answer, reduction="sum")
    # rows are independent, so the gradient of the sum is that of each row's own loss
    parts = iter(_gradients(loss, [tensor for each in (*inputs, *states) for tensor in each]))
    by_input = [sum((next(parts)[:, 0] for _ in each[1:]), start=next(parts)[:, 0]) for each in inputs]
    return torch.stack(by_input, dim=1), [[next(parts) for _ in each] for each in states]


def _summary_norms(model: Seq2Seq, texts: Texts, seed: int) -> np.ndarray:
    with captured_embeddings(model.encoder, texts.source, "encoder") as captured:
        summary = model.encoder(texts.source, texts.valid).summary
    direction = torch.randn(summary.shape[1], generator=torch.Generator().manual_seed(seed), dtype=summary.dtype)
    gradients = _gradients((summary @ (direction / direction.norm())).sum(), captured)
    size = torch.stack(gradients).sum(dim=0).norm(dim=2)
    found = np.full(size.shape, np.nan)
    for i, length in enumerate(texts.valid.sum(dim=1).tolist()):
        found[i, :length] = size[i, :length].flip(0).numpy()
    return found


def _gradients(loss: Tensor, wanted: Sequence[Tensor]) -> list[Tensor]:
    given = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [torch.zeros_like(one) if g is None else g for one, g in zip(wanted, given, strict=True)]


def cut_path(memory: EncoderOutput, path: Path) -> EncoderOutput:
    """Detach all but one path from the encoder's output: its summary, or all the rest (`attention`)."""
    if path == "attention":
        return replace(memory, summary=memory.summary.detach())
    if path == "summary":
        return replace(with_numbers(memory, [part.detach() for part in numbers(memory)]), summary=memory.summary)
    return memory


def saliency(
    model: Seq2Seq, source: Sequence[int], target: Sequence[int], path: Path
) -> Float[Tensor, "target source width"]:
    """Compute ∂(score of target token i) / ∂(embedding of source token j), along one path.

    The score is the logit, because a softmax saturates at confident predictions. Special tokens are added; the model is
    in evaluation mode and float64.
    """
    batch = collate([source], [target], [0])
    with captured_embeddings(model.encoder, batch.source, "encoder") as captured:
        memory = model.encoder(batch.source, batch.source_valid)
    context, state = model.decoder.start(cut_path(memory, path), batch.target_in.shape[1])
    scores = model.projection(model.decoder(context, state, batch.target_in)[0])[0]
    rows = []
    for score in scores.gather(1, batch.target_out[0].unsqueeze(1))[:, 0]:
        given = torch.autograd.grad(score, captured, retain_graph=True, allow_unused=True)
        rows.append(sum((g[0] for g in given if g is not None), start=torch.zeros_like(captured[0][0])))
    return torch.stack(rows)
