"""Exact gradients of a loss with respect to inputs and states, by distance.

They are computed in float64 on the CPU: gradients of 10⁻³⁰ are ordinary here, and no fused kernel is used.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
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
from s2s.evaluation.inference import Estimate, mean
from s2s.models.base import EncoderOutput, Seq2Seq

Route = Literal["whole", "attention", "summary"]

# below, an exponential does not describe the curve
GOOD_FIT = 0.8


@dataclass(frozen=True)
class Text:
    """Long texts to read and to write."""

    source: Int[Tensor, "batch source"]  # pieces
    valid: Bool[Tensor, "batch source"]  # where they are real
    tokens: Int[Tensor, "batch fed"]  # what the decoder is fed: `BOS` and then real pieces
    answer: Int[Tensor, " batch"]  # the piece that follows

    def __len__(self) -> int:
        return len(self.answer)

    def rows(self, chosen: slice) -> "Text":
        """Select texts."""
        return Text(self.source[chosen], self.valid[chosen], self.tokens[chosen], self.answer[chosen])


@dataclass(frozen=True)
class Norms:
    """Norms of a loss's gradient; the loss is −log p of the right piece after the last token."""

    # with respect to the vector of the token that stands 0, 1, 2 … steps before the last one
    inputs: Float[np.ndarray, "batch distance"]
    # with respect to all that the decoder remembers after the token 1, 2, 3 … steps before the last one; None where
    # it remembers no numbers
    states: Float[np.ndarray, "batch distance"] | None
    # of a random direction of the encoder's summary, with respect to the vector of the source's last piece, the one
    # before it, and so on; not a number beyond a source's beginning
    source: Float[np.ndarray, "batch source"]


def long_texts(data: TokenizedDataset, count: int, length: int) -> Text:
    """Texts of the corpus's own sentences, joined end to end until there are enough pieces.

    Args:
        data: pairs of pieces.
        count: how many texts.
        length: pieces fed after `BOS`; no source has more, its end counted.
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
    pieces, valid = collate_sources(sources)
    tokens = torch.tensor(targets)
    return Text(pieces, valid, tokens[:, :-1], tokens[:, -1])


@contextmanager
def vectors_of(module: nn.Module, tokens: Int[Tensor, "batch steps"], side: str) -> Iterator[list[Tensor]]:
    """Context manager that captures the embedding vectors of tokens.

    Yields:
        A list that is filled with the outputs of every `nn.Embedding` of the module for these tokens.

    Raises:
        NotForThisModel: nothing was captured.
    """
    caught: list[Tensor] = []

    def _catch(_: nn.Module, asked: tuple[Any, ...], vectors: Tensor) -> None:
        if isinstance(asked[0], Tensor) and asked[0].shape == tokens.shape and torch.equal(asked[0], tokens):
            caught.append(vectors)

    hooks = [part.register_forward_hook(_catch) for part in module.modules() if isinstance(part, nn.Embedding)]
    try:
        yield caught
    finally:
        for hook in hooks:
            hook.remove()
    if not caught:
        raise NotForThisModel(f"its {side} looks tokens up in no nn.Embedding: there is no vector to differentiate by")


def norms(model: Seq2Seq, text: Text, together: int, seed: int) -> Norms:
    """Norms of the gradients of one loss for each text, so many texts together; caches of long ones need memory.

    The model is in evaluation mode and float64; the seed is that of the summary's directions.

    Raises:
        NotForThisModel: its tokens have no vectors to be caught.
    """
    parts = [text.rows(slice(i, i + together)) for i in range(0, len(text), together)]
    written = [_written(model, part) for part in parts]
    states = [state for _, state in written if state is not None]
    return Norms(
        np.concatenate([inputs for inputs, _ in written]),
        np.concatenate(states) if states else None,
        _read(model, text, seed),
    )


def gradients(model: Seq2Seq, text: Text) -> tuple[Float[Tensor, "batch fed width"], list[list[Tensor]]]:
    """The gradients themselves: with respect to each token's vector, and to each tensor of the state after each token.

    The decoder is fed token by token, so that the states between them can be seen.

    Raises:
        NotForThisModel: its tokens have no vectors to be caught.
    """
    context, state = model.decoder.start(model.encoder(text.source, text.valid), text.tokens.shape[1])
    inputs, states, last = [], [], None
    for token in text.tokens.split(1, dim=1):
        with vectors_of(model.decoder, token, "decoder") as caught:
            last, state = model.decoder(context, state, token)
        inputs.append(caught)
        states.append(numbers(state))
    if last is None:
        raise ValueError("a text without tokens has no gradient")
    loss = functional.cross_entropy(model.projection(last[:, -1]), text.answer, reduction="sum")
    # a batch of losses is summed: no row has any part in another row's
    parts = iter(_gradients(loss, [one for each in (*inputs, *states) for one in each]))
    by_input = [sum((next(parts)[:, 0] for _ in caught[1:]), start=next(parts)[:, 0]) for caught in inputs]
    return torch.stack(by_input, dim=1), [[next(parts) for _ in kept] for kept in states]


def _written(model: Seq2Seq, text: Text) -> tuple[np.ndarray, np.ndarray | None]:
    by_input, by_state = gradients(model, text)
    # BOS is no word, and an attention that has nothing to look at looks there
    inputs = by_input.norm(dim=2)[:, 1:].flip(1).numpy()
    if not by_state[-1]:
        return inputs, None
    # what the decoder remembers after the last token is read by nobody
    states = [torch.cat([part.flatten(1) for part in kept], dim=1).norm(dim=1) for kept in by_state[1:-1]]
    return inputs, torch.stack(states, dim=1).flip(1).numpy()


def _read(model: Seq2Seq, text: Text, seed: int) -> np.ndarray:
    with vectors_of(model.encoder, text.source, "encoder") as caught:
        summary = model.encoder(text.source, text.valid).summary
    direction = torch.randn(summary.shape[1], generator=torch.Generator().manual_seed(seed), dtype=summary.dtype)
    by_vector = _gradients(summary @ (direction / direction.norm()), caught)
    size = torch.stack(by_vector).sum(dim=0).norm(dim=2)
    read = np.full(size.shape, np.nan)
    for i, length in enumerate(text.valid.sum(dim=1).tolist()):
        read[i, :length] = size[i, :length].flip(0).numpy()
    return read


def _gradients(loss: Tensor, wanted: Sequence[Tensor]) -> list[Tensor]:
    given = torch.autograd.grad(loss.sum(), wanted, allow_unused=True)
    return [torch.zeros_like(one) if g is None else g for one, g in zip(wanted, given, strict=True)]


def cut(memory: EncoderOutput, path: Route) -> EncoderOutput:
    """The memory with gradients along one path alone; its numbers stay as they are.

    `attention` is all but the summary, `summary` that alone.
    """
    if path == "attention":
        return replace(memory, summary=memory.summary.detach())
    if path == "summary":
        return replace(with_numbers(memory, [part.detach() for part in numbers(memory)]), summary=memory.summary)
    return memory


def saliency(
    model: Seq2Seq, source: Sequence[int], target: Sequence[int], path: Route
) -> Float[Tensor, "target source width"]:
    """∂(score of the piece that is written at i) / ∂(vector of the source's piece j), along one path.

    The score is taken before the softmax, which would hide all that the model is sure of. Special pieces are added; the
    model is in evaluation mode and float64.
    """
    batch = collate([source], [target], [0])
    with vectors_of(model.encoder, batch.source, "encoder") as caught:
        memory = model.encoder(batch.source, batch.source_valid)
    context, state = model.decoder.start(cut(memory, path), batch.target_in.shape[1])
    scores = model.projection(model.decoder(context, state, batch.target_in)[0])[0]
    chosen = scores.gather(1, batch.target_out[0].unsqueeze(1))[:, 0]
    rows = []
    for score in chosen:
        given = torch.autograd.grad(score, caught, retain_graph=True, allow_unused=True)
        rows.append(sum((g[0] for g in given if g is not None), start=torch.zeros_like(caught[0][0])))
    return torch.stack(rows)


def looks(model: Seq2Seq) -> bool:
    """Return True if the decoder has cross-attention."""
    piece = torch.full((1, 1), BOS)
    with torch.no_grad():
        memory = model.encoder(piece, torch.ones_like(piece, dtype=torch.bool))
        return model.decoder.attention_weights(memory, piece).shape[1] > 0


@dataclass(frozen=True)
class Decay:
    """Decay of a gradient with distance, for one initialization."""

    # of a line through log ‖gradient‖ against distance, one for each text; None where fewer than three distances have
    # a gradient
    slopes: list[float | None]
    fit: float | None  # R², the share of the mean logarithm's variance that the line explains
    left: float | None  # the norm at the largest distance over that at distance 1, the geometric mean over texts
    reach: int  # the largest distance with any gradient at all
    span: int  # the largest distance measured

    @property
    def slope(self) -> float | None:
        """The mean over texts: log of the factor per step."""
        there = [slope for slope in self.slopes if slope is not None]
        return sum(there) / len(there) if there else None


def decay(norms: Float[np.ndarray, "batch distance"], first: int) -> Decay:
    """Fits norms against distance, from distance 1 on: what the last input itself gets is not handed through time."""
    distances = np.arange(first, first + norms.shape[1])
    norms, distances = norms[:, distances >= 1], distances[distances >= 1]
    slopes = [_line(distances, row)[0] for row in norms]
    arrived: np.ndarray = np.any(norms > 0, axis=0)
    reach = int(distances[arrived].max()) if arrived.any() else 0
    whole: np.ndarray = np.all(norms > 0, axis=0)
    logs = np.log(norms[:, whole]).mean(axis=0)
    fit = _line(distances[whole], np.exp(logs))[1] if whole.any() else None
    ends = bool(whole[0] and whole[-1])
    left = float(np.exp(logs[-1] - logs[0])) if ends else 0.0 if len(whole) and not arrived[-1] else None
    return Decay(slopes, fit, left, reach, int(distances[-1]))


def _line(distances: np.ndarray, norms: np.ndarray) -> tuple[float | None, float | None]:
    there = norms > 0
    if there.sum() < 3:
        return None, None
    x, y = distances[there], np.log(norms[there])
    slope, intercept = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    explained = None if spread == 0 else 1 - float(((y - slope * x - intercept) ** 2).sum()) / spread
    return float(slope), explained


def factor(slopes: list[float]) -> Estimate:
    """The factor per step, exp(mean slope), with Student's interval over the slopes."""
    log = mean(slopes)
    ends = [None if end is None else math.exp(min(end, 700.0)) for end in (log.low, log.high)]
    return Estimate(math.exp(log.value), ends[0], ends[1])


# the fit of one kind of gradient to one set of weights: a `Decay` as JSON
Fit = Mapping[str, Any]


def factor_of(fits: Sequence[Fit]) -> Estimate | None:
    """The factor per step, with an interval over sets of weights, or over texts where there is one set."""
    by_text = [[slope for slope in fit["slopes"] if slope is not None] for fit in fits]
    by_text = [slopes for slopes in by_text if slopes]
    if not by_text:
        return None
    return factor(by_text[0] if len(by_text) == 1 else [sum(slopes) / len(slopes) for slopes in by_text])


def half_life(factor: float) -> float | None:
    """Steps until half is left; None where nothing is lost."""
    return math.log(0.5) / math.log(factor) if 0 < factor < 1 else None


def curve(norms: Float[np.ndarray, "batch distance"], first: int) -> dict[str, list[float | None]]:
    """The median over texts and the middle 95 % of them, by distance; values that are not numbers do not count."""
    with warnings.catch_warnings():
        # where no source is so long, there is nothing to take a median of
        warnings.simplefilter("ignore", RuntimeWarning)
        low, median, high = np.nanquantile(norms, [0.025, 0.5, 0.975], axis=0)
    distances: list[float | None] = [float(first + i) for i in range(norms.shape[1])]
    return {"distance": distances} | {
        name: [brief(value) for value in values.tolist()]
        for name, values in (("median", median), ("low", low), ("high", high))
    }


def brief(value: float | None) -> float | None:
    """Six digits: more would differ between processors; None where it is no finite number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
