"""Scores of a language model: cross-entropy, perplexity and bits per byte.

The loss is also reported by the position in a document.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from s2s.data.dataset import iterate_batches
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.errors import counted
from s2s.evaluation.inference import Estimate, drawn_rows, estimate, paired_p
from s2s.evaluation.significance import after_holm, corrected_p_values
from s2s.models.language_model import LanguageModel
from s2s.tasks.base import Evaluation, check_comparable
from s2s.tasks.figures import by_place_picture
from s2s.tasks.language_model.data import Windows
from s2s.training.device import DeviceContext
from s2s.training.progress import Advance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from s2s.evaluation.significance import GroupComparison

# Number of logits in memory at a time, as in the loss.
_CHUNK = 4_000_000


def nats_of(
    model: LanguageModel, states: Float[Tensor, "places width"], following: Int[Tensor, " places"]
) -> Float[Tensor, " places"]:
    """Compute the negative log-probability of the token that follows each position.

    The logits are computed in chunks, so that they are never all in memory.
    """
    rows = max(1, _CHUNK // model.projection.out_features)
    found = []
    for first in range(0, len(states), rows):
        scores = model.projection(states[first : first + rows])
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        right = scores.gather(1, following[first : first + rows, None])[:, 0]
        found.append(scores.logsumexp(dim=1) - right)
    return torch.cat(found) if found else states.new_zeros(0)


@dataclass(frozen=True)
class Nats:
    """Negative log-probabilities of documents, in nats; `EOS` counts as a token.

    Attributes:
        documents: Sum over each document.
        sums: Sum over all documents at each position.
        counts: Number of tokens at each position.
    """

    documents: Float[np.ndarray, " documents"]
    sums: Float[np.ndarray, " places"]
    counts: Int[np.ndarray, " places"]

    @property
    def loss(self) -> float:
        """Mean loss in nats per token."""
        return float(self.sums.sum() / max(1, self.counts.sum()))


def measure(
    model: LanguageModel, windows: Windows, device_context: DeviceContext, advance: Advance = lambda count: None
) -> Nats:
    """Measure the loss on all windows, without dropout.

    The model stays in evaluation mode. With several ranks, each rank measures a part, and all ranks return the full
    result.
    """
    model.eval()
    lengths, distributed = windows.texts.lengths, device_context.distributed
    documents = np.zeros(len(lengths))
    sums, counts = (np.zeros(int(lengths.max(initial=0)) + 1, dtype=kind) for kind in (np.float64, np.int64))
    with torch.inference_mode(), device_context.mixed_precision():
        for rows, batch in iterate_batches(windows, device_context.device, distributed.rank, distributed.world_size):
            # Positions that count, with their loss, place in the document and row in the batch.
            chosen = batch.valid.flatten().nonzero().squeeze(1)
            states = model(batch.read).flatten(0, 1).index_select(0, chosen)
            following = batch.following.flatten().index_select(0, chosen)
            found = nats_of(model, states, following), batch.places.flatten().index_select(0, chosen)
            nats, places, row = (part.cpu().numpy() for part in (*found, chosen // batch.read.shape[1]))
            np.add.at(sums, places, nats.astype(np.float64))
            np.add.at(counts, places, 1)
            np.add.at(documents, windows.windows[rows, 0][row], nats.astype(np.float64))
            advance(len(rows))
    gathered = zip(*distributed.all_gather_object((documents, sums, counts)), strict=True)
    return Nats(*(np.sum(parts, axis=0) for parts in gathered))


@dataclass(frozen=True)
class Size:
    """Size of documents in bytes.

    The end of a document counts as one byte, as the line end in a file with one document a line; a compressor of that
    file therefore encodes the same number of bytes.

    Attributes:
        documents: Number of bytes of each document.
        lossy: Number of documents that their tokens do not represent exactly.
    """

    documents: tuple[int, ...]
    lossy: int

    @property
    def bytes(self) -> int:
        """Number of bytes of all documents."""
        return sum(self.documents)


def size_of(texts: Sequence[str], tokens: Sequence[np.ndarray], tokenizer: Tokenizer) -> Size:
    """Count the bytes of documents, before normalization, and the lossy documents."""
    lossy = sum(
        # The word tokenizer joins words by single spaces, whatever the text has.
        tokenizer.normalize(text) != text or bool((found == UNK).any()) or tokenizer.decode(found.tolist()) != text
        for text, found in zip(texts, tokens, strict=True)
    )
    return Size(tuple(len(text.encode()) + 1 for text in texts), lossy)


def bits_per_byte(nats: float, size: int) -> float:
    """Convert the negative log-probability of `size` bytes in nats to bits per byte.

    Example:
        >>> round(bits_per_byte(10 * math.log(2), 5), 3)
        2.0
    """
    return nats / math.log(2) / max(1, size)


@dataclass(frozen=True)
class Span:
    """Mean loss in nats per token in a range of positions of documents, from 0, `last` inclusive."""

    first: int
    last: int
    loss: float
    pieces: int


def spans(nats: Nats) -> list[Span]:
    """Return the loss by position in a document: 0, 1, 2 to 3, 4 to 7, and so on.

    Returns:
        Ranges with at least one token.

    Example:
        >>> import numpy as np
        >>> nats = Nats(np.array([6.0]), np.array([3.0, 2.0, 1.0]), np.array([1, 1, 1]))
        >>> [(span.first, span.last, span.loss) for span in spans(nats)]
        [(0, 0, 3.0), (1, 1, 2.0), (2, 2, 1.0)]
    """
    found, first = [], 0
    while first < len(nats.counts):
        last = min(max(first, 2 * first - 1), len(nats.counts) - 1)
        here = slice(first, last + 1)
        if count := int(nats.counts[here].sum()):
            found.append(Span(first, last, float(nats.sums[here].sum() / count), count))
        first = last + 1
    return found


def interval_of(nats: Sequence[float], sizes: Sequence[int]) -> Estimate:
    """Compute bits per byte with a 95 % bootstrap confidence interval over documents, if there are several."""
    found, bytes_ = np.array(nats), np.array(sizes)
    if len(found) < 2:
        return Estimate(bits_per_byte(float(found.sum()), int(bytes_.sum())), None, None)
    resampled = [bits_per_byte(float(row @ found), int(row @ bytes_)) for row in drawn_rows(len(found))]
    return estimate(bits_per_byte(float(found.sum()), int(bytes_.sum())), np.array(resampled))


@dataclass(frozen=True)
class LanguageComparison:
    """Bits per byte of a run, with its test against the first."""

    run: str
    bits_per_byte: Estimate
    p_value: float | None  # p-value of `paired_p` over documents; None for the first run
    corrected: float | None = None  # p-value with Holm's correction for several runs; None for one or the first

    def __str__(self) -> str:
        chance = "" if self.p_value is None else f"   p = {self.p_value:.4f} against the first"
        chance += after_holm(self.corrected)
        return f"  {self.run:28} {_with_interval(self.bits_per_byte)} bits per byte{chance}"


@dataclass(frozen=True, repr=False)
class LanguageScores(Evaluation):
    """Scores of a language model on the documents of a split.

    Attributes:
        pieces: Number of tokens, `EOS` included.
        bytes: Number of bytes, with one for each document's end.
        lossy: Number of documents that their tokens do not represent exactly; their bits per byte are too low.
        nats: Negative log-probability of each document.
        sizes: Number of bytes of each document.
        context: Context length in tokens.
        stride: Stride of the context window, in tokens.
        spans: Loss by position in a document.
        grammar: Approximate cross-entropy of the built-in corpus' grammar, in nats per document; None for other texts.
    """

    documents: int
    pieces: int
    bytes: int
    lossy: int
    nats: list[float]
    sizes: list[int]
    digest: str
    context: int
    stride: int
    spans: list[Span]
    grammar: float | None = None

    @property
    def total(self) -> float:
        """Negative log-probability of all documents, in nats."""
        return math.fsum(self.nats)

    def __str__(self) -> str:
        loss, each = self.total / self.pieces, self.total / self.documents
        found = [
            f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {counted(self.documents, 'document')} of "
            f"{self.pieces:,} tokens and {self.bytes:,} bytes, context {self.context}, stride {self.stride}",
            f"  {_with_interval(interval_of(self.nats, self.sizes))} bits per byte · {loss:.4f} nats per token "
            f"(perplexity {math.exp(min(loss, 50)):.2f}) · {each:.2f} nats per document",
            "  by position: "
            + " · ".join(
                f"{span.first if span.first == span.last else f'{span.first}-{span.last}'} {span.loss:.2f}"
                for span in self.spans
            ),
        ]
        if self.lossy:
            found.append(
                f"  the text of the tokens is another one in {counted(self.lossy, 'document')}: too few bits per byte "
                "(tokenizer.normalization: identity with byte_fallback represents all)"
            )
        if self.grammar is not None:
            found.append(
                f"  entropy of the built-in grammar: about {self.grammar:.2f} nats per sentence; the model is "
                f"{each - self.grammar:+.2f} nats above it"
            )
        return "\n".join([*found, *self.notes()])

    def headline_metrics(self) -> dict[str, float]:
        scores = {
            "bits_per_byte": bits_per_byte(self.total, self.bytes),
            "loss": self.total / self.pieces,
            "perplexity": math.exp(min(self.total / self.pieces, 50)),
            "nats_per_document": self.total / self.documents,
        }
        gap = {} if self.grammar is None else {"gap": scores["nats_per_document"] - self.grammar}
        return scores | gap

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        yield "by-place", by_place_picture([(span.first, span.last, span.loss) for span in self.spans])

    @classmethod
    def compare(cls, evaluations: Sequence[Self]) -> list[LanguageComparison]:
        """Compare runs with the first by paired approximate randomization over documents."""
        first, found = evaluations[0], []
        # Documents of one file that are split differently have the same digest.
        check_comparable(evaluations, lambda each: (each.digest, each.documents))
        for other in evaluations:
            one, two = (np.column_stack((each.nats, each.sizes)) for each in (first, other))
            p = None
            if other is not first:
                p = paired_p(one, two, lambda sums: sums[..., 0] / sums[..., 1] / math.log(2))
            found.append(LanguageComparison(other.run, interval_of(other.nats, other.sizes), p))
        corrected = corrected_p_values([each.p_value for each in found])
        return [replace(each, corrected=p) for each, p in zip(found, corrected, strict=True)]

    @classmethod
    def compare_groups(cls, groups: Mapping[str, Sequence[Self]]) -> "list[GroupComparison]":
        """Compare groups of seeds by a hierarchical bootstrap over seeds and documents."""
        from s2s.evaluation.significance import compare_groups

        check_comparable([e for runs in groups.values() for e in runs], lambda each: (each.digest, each.documents))
        counts = {name: [np.column_stack((e.nats, e.sizes)) for e in runs] for name, runs in groups.items()}
        return compare_groups(counts, "bits_per_byte", lambda sums: sums[:, 0] / sums[:, 1] / math.log(2))


def _with_interval(found: Estimate) -> str:
    ends = "no interval" if found.low is None else f"{found.low:.4f}–{found.high:.4f}"
    return f"{found.value:.4f} ({ends})"
