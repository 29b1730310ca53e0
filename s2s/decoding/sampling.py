"""Sampling of targets from a model, instead of a search for the most probable one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from s2s.data.dataset import to_device
from s2s.data.tokenizers import BOS, EOS, PAD, UNK
from s2s.decoding.beam_search import Beam, Hypothesis
from s2s.decoding.constraints import copy_penalties, forced_tokens
from s2s.models.base import Seq2Seq
from s2s.nn.layers import Inputs, PaddingMask
from s2s.nn.precision import autocast_matmul

_NEVER_WRITTEN = (PAD, BOS, UNK)


@dataclass(frozen=True)
class Sampling:
    """Sampling settings: temperature, top-k, top-p (nucleus) and min-p sampling.

    Attributes:
        temperature: Divisor of the logits; 0 is greedy.
        top_k: Sample from this number of most probable tokens; None for all.
        top_p: Sample from the most probable tokens whose probabilities first reach this sum (Holtzman et al. 2020).
        min_p: Sample from tokens with at least this share of the largest probability (Nguyen et al. 2024).

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 0.0, 0.0, 0.0, 2.0, 1.0, 1.0]])
        >>> Sampling(top_k=2).probabilities(logits).round(decimals=2).tolist()
        [[0.0, 0.0, 0.0, 0.0, 0.73, 0.27, 0.0]]
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def probabilities(self, scores: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, "rows vocabulary"]:
        """Compute the probability of drawing each token, in fp64 on the CPU, from logits or log probabilities.

        The order is temperature, `top_k`, `top_p`, `min_p`, renormalization. Special tokens that no text contains are
        never drawn; ties are broken by token id.
        """
        # A copy also if they are fp64 already, because the caller's scores must not change.
        scores = scores.cpu().to(torch.float64, copy=True)
        scores[:, list(_NEVER_WRITTEN)] = float("-inf")
        if self.temperature == 0:
            best = torch.zeros_like(scores)
            return best.scatter_(1, scores.argmax(dim=1, keepdim=True), 1.0)
        # A stable sort breaks ties by token id, not by chance.
        ordered, order = scores.sort(dim=1, descending=True, stable=True)
        # The maximum is subtracted first, so that a tiny temperature causes no overflow.
        ordered = (ordered - ordered[:, :1]) / self.temperature
        if self.top_k is not None:
            ordered[:, self.top_k :] = float("-inf")
        shares = ordered.softmax(dim=1)
        if self.top_p < 1:
            before = shares.cumsum(dim=1) - shares
            shares = shares.masked_fill(before >= self.top_p, 0.0)
        shares = shares.masked_fill(shares < self.min_p * shares[:, :1], 0.0)
        if self.top_p < 1 or self.min_p > 0:
            shares = shares / shares.sum(dim=1, keepdim=True)
        return torch.zeros_like(shares).scatter_(1, order, shares)


def sample(shares: Float[np.ndarray, "rows vocabulary"], generators: Sequence[np.random.Generator]) -> list[int]:
    """Draw a token for each row of probabilities, by inverse transform sampling.

    Example:
        >>> import numpy as np
        >>> sample(np.array([[0.0, 0.0, 1.0]]), [np.random.default_rng(1)])
        [2]
    """
    sums = np.cumsum(shares, axis=1)
    found = []
    for row, generator in zip(sums, generators, strict=True):
        # If rounding places the number beyond the last sum, the last token with a probability is drawn.
        number = int(np.searchsorted(row, generator.random() * row[-1], side="right"))
        found.append(number if number < len(row) else int(np.flatnonzero(np.diff(row, prepend=0.0))[-1]))
    return found


@dataclass(frozen=True)
class Draws:
    """Random choices of a batch of targets.

    Attributes:
        sampling: Probabilities of the draws.
        generators: Random generator of each target, so that it does not depend on the batch.
    """

    sampling: Sampling
    generators: Sequence[np.random.Generator]


@torch.inference_mode()
def sample_targets(
    model: Seq2Seq,
    source: Inputs,
    valid: PaddingMask,
    limits: Int[np.ndarray, " batch"],
    beam: Beam,
    draws: Draws,
    tokens: int | None = None,
    before_step: Callable[[], None] | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[Hypothesis]:
    """Draw one target for each source of a batch.

    Args:
        model: Model in evaluation mode.
        source: Inputs of the encoder.
        valid: Padding mask, `(batch, source)`.
        limits: Most tokens of each target, EOS not counted, `(batch,)`.
        beam: Length penalty, precision and constraints; its size has no effect.
        draws: Random choices, with one generator for each source.
        tokens: See `beam_search.search`.
        before_step: See `beam_search.search`.
        prefixes: See `beam_search.search`.

    Returns:
        The targets, with their log probabilities under the model.
    """
    found: list[Hypothesis | None] = [None] * len(source)
    begins = prefixes or [()] * len(source)
    limits = np.maximum(limits, [len(prefix) for prefix in begins])
    rows = np.arange(len(source))
    written, log_probability = np.empty((len(source), 0), dtype=np.int64), np.zeros(len(source))
    newest = torch.full((len(source), 1), BOS, device=source.device)
    copies = copy_penalties(source, valid, beam.copy_penalty).cpu() if beam.copy_penalty else None
    with autocast_matmul(beam.precision, source.device):
        context, state = model.decoder.start(model.encoder(source, valid), int(limits.max()) + 1)
        for length in range(int(limits.max()) + 1):
            if before_step is not None:
                before_step()
            # 1. Log probability of each next token, (rows, vocabulary).
            states, state = model.decoder(context, state, newest)
            scores = model.log_probabilities(states[:, 0]).float().cpu()
            # 2. Forbid what is never written; at the length limit only EOS is left.
            plain = scores.numpy().astype(np.float64)
            scores[:, list(_NEVER_WRITTEN)] = float("-inf")
            if tokens is not None:
                scores[:, tokens:] = float("-inf")
            must_end = limits[rows] == length
            if copies is not None:
                scores[:, : copies.shape[1]] -= copies[rows]
            forced = forced_tokens([begins[row] for row in rows.tolist()], length)
            beam.constraints.apply(scores, written, must_end, forced)
            cut = must_end & (scores.argmax(dim=1).numpy() != EOS)
            # A text of which the constraints leave nothing to write ends, too.
            must_end |= (scores == float("-inf")).all(dim=1).numpy()
            scores[must_end] = float("-inf")
            scores[must_end, EOS] = 0.0
            # 3. Draw a token for each row; finish rows with EOS.
            generators = [draws.generators[row] for row in rows.tolist()]
            drawn = np.array(sample(draws.sampling.probabilities(scores).numpy(), generators))
            log_probability += plain[np.arange(len(rows)), drawn]
            ends = drawn == EOS
            for row in np.flatnonzero(ends):
                log = float(log_probability[row])
                target = tuple(written[row].tolist())
                found[rows[row]] = Hypothesis(target, log / beam.penalty(length + 1), log, bool(cut[row]))
            # 4. Keep the other rows.
            if ends.all():
                break
            kept = torch.from_numpy(np.flatnonzero(~ends))
            written = np.column_stack((written, drawn))[~ends]
            rows, log_probability = rows[~ends], log_probability[~ends]
            newest = to_device(torch.from_numpy(drawn[~ends]), source.device).unsqueeze(1)
            if ends.any():
                kept = to_device(kept, source.device)
                context, state = context.select(kept), state.select(kept)
    return [each for each in found if each is not None]
