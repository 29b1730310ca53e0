"""How well a model goes on in documents: nats, perplexity and bits per byte, also by the place in a document."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from s2s.data.dataset import iterate_batches
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.evaluation.inference import Estimate, drawn_rows, estimate, paired_p
from s2s.models.language_model import LanguageModel
from s2s.tasks.base import Evaluation
from s2s.tasks.comparable import check_comparable
from s2s.tasks.figures import by_place_picture
from s2s.tasks.language_model.data import TextBatch, Windows
from s2s.training.device import DeviceContext
from s2s.training.progress import Advance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# scores held at a time, as in the loss
_CHUNK = 4_000_000


def nats_of(
    model: LanguageModel, states: Float[Tensor, "places width"], following: Int[Tensor, " places"]
) -> Float[Tensor, " places"]:
    """−log p of what follows each place, from the decoder's states; the scores of all are never held at once."""
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
    """−log p of documents, in nats: of each document, and summed by the place in it with how many pieces stood there.

    A document's end is a piece of it.
    """

    documents: Float[np.ndarray, " documents"]
    sums: Float[np.ndarray, " places"]
    counts: Int[np.ndarray, " places"]

    @property
    def loss(self) -> float:
        """Nats per piece."""
        return float(self.sums.sum() / max(1, self.counts.sum()))


def measure(
    model: LanguageModel, windows: Windows, device_context: DeviceContext, advance: Advance = lambda count: None
) -> Nats:
    """Reads all windows, dropout off; the model stays in evaluation mode.

    Of several processes each reads a part, and all are told the whole.
    `advance` is told how many windows were read, batch by batch.
    """
    model.eval()
    lengths, distributed = windows.texts.lengths, device_context.distributed
    documents = np.zeros(len(lengths))
    sums, counts = (np.zeros(int(lengths.max(initial=0)) + 1, dtype=kind) for kind in (np.float64, np.int64))
    with torch.inference_mode(), device_context.mixed_precision():
        for rows, batch in iterate_batches(windows, device_context.device, distributed.rank, distributed.world_size):
            nats, places, row = (part.cpu().numpy() for part in _nats_of_batch(model, batch))
            np.add.at(sums, places, nats.astype(np.float64))
            np.add.at(counts, places, 1)
            np.add.at(documents, windows.windows[rows, 0][row], nats.astype(np.float64))
            advance(len(rows))
    return Nats(
        *(
            np.sum(parts, axis=0)
            for parts in zip(*distributed.all_gather_object((documents, sums, counts)), strict=True)
        )
    )


def _nats_of_batch(model: LanguageModel, batch: TextBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Of each place that counts: its nats, where it is in its document, and its row in the batch."""
    chosen = batch.valid.flatten().nonzero().squeeze(1)
    states = model(batch.read).flatten(0, 1).index_select(0, chosen)
    places = batch.places.flatten().index_select(0, chosen)
    following = batch.following.flatten().index_select(0, chosen)
    return nats_of(model, states, following), places, chosen // batch.read.shape[1]


@dataclass(frozen=True)
class Size:
    """What documents are made of: the bytes of each, its end counted as one, and how many pieces do not spell exactly.

    A document is one byte longer than its text, as it is in a file that holds a document a line; so a compressor of
    that file has the same bytes to tell.
    """

    documents: tuple[int, ...]
    lossy: int

    @property
    def bytes(self) -> int:
        """Of all documents."""
        return sum(self.documents)


def size_of(texts: Sequence[str], tokens: Sequence[np.ndarray], tokenizer: Tokenizer) -> Size:
    """Counts bytes as they were before anything was normalised."""
    lossy = sum(
        # words come back with one space between them, whatever was there
        tokenizer.normalize(text) != text or bool((found == UNK).any()) or tokenizer.decode(found.tolist()) != text
        for text, found in zip(texts, tokens, strict=True)
    )
    return Size(tuple(len(text.encode()) + 1 for text in texts), lossy)


def bits_per_byte(nats: float, size: int) -> float:
    """Of documents of so many bytes that took so many nats."""
    return nats / math.log(2) / max(1, size)


@dataclass(frozen=True)
class Span:
    """The loss of pieces that stand between two places of their documents, the last one included."""

    first: int
    last: int
    loss: float
    pieces: int


def spans(nats: Nats) -> list[Span]:
    """The loss by the place in a document: 0, 1, 2 to 3, 4 to 7, and so on."""
    found, first = [], 0
    while first < len(nats.counts):
        last = min(max(first, 2 * first - 1), len(nats.counts) - 1)
        here = slice(first, last + 1)
        if count := int(nats.counts[here].sum()):
            found.append(Span(first, last, float(nats.sums[here].sum() / count), count))
        first = last + 1
    return found


def interval_of(nats: Sequence[float], sizes: Sequence[int]) -> Estimate:
    """Bits per byte, with the 95 % interval of documents drawn with replacement."""
    found, bytes_ = np.array(nats), np.array(sizes)
    resampled = [bits_per_byte(float(row @ found), int(row @ bytes_)) for row in drawn_rows(len(found))]
    return estimate(bits_per_byte(float(found.sum()), int(bytes_.sum())), np.array(resampled))


@dataclass(frozen=True)
class LanguageComparison:
    """A run's bits per byte, with how often chance alone would set it as far apart from the first; None for the first.

    The p-value is that of paired approximate randomisation over documents, see `paired_p`.
    """

    run: str
    bits_per_byte: Estimate
    p_value: float | None

    def __str__(self) -> str:
        chance = "" if self.p_value is None else f"   p = {self.p_value:.4f} against the first"
        return f"  {self.run:28} {_with_interval(self.bits_per_byte)} bits per byte{chance}"


@dataclass(frozen=True)
class LanguageScores(Evaluation):
    """How well a model goes on in the documents of a split.

    Attributes:
        documents: how many.
        pieces: of them, ends counted.
        bytes: of their texts, with one for each end.
        lossy: documents whose pieces do not spell them exactly; their bits per byte flatter.
        nats: −log p of each document.
        sizes: bytes of each document.
        digest: a hash of the documents.
        context: pieces read at once.
        stride: by how many pieces the context moves on.
        spans: the loss by the place in a document.
        grammar: nats per document that the grammar of the built-in corpus needs, about; None for other texts.
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
        """Nats of all documents."""
        return math.fsum(self.nats)

    def __str__(self) -> str:
        loss, each = self.total / self.pieces, self.total / self.documents
        found = [
            f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {self.documents:,} documents of {self.pieces:,} "
            f"pieces and {self.bytes:,} bytes, read {self.context} at once, {self.stride} further each time",
            f"  {_with_interval(interval_of(self.nats, self.sizes))} bits per byte · {loss:.4f} nats per piece "
            f"(perplexity {math.exp(min(loss, 50)):.2f}) · {each:.2f} nats per document",
            "  by place: " + " · ".join(f"{_named(span)} {span.loss:.2f}" for span in self.spans),
        ]
        if self.lossy:
            found.append(
                f"  {self.lossy:,} documents are not spelt exactly by their pieces: their bits per byte flatter "
                "(tokenizer.normalization: identity with byte_fallback keeps all)"
            )
        if self.grammar is not None:
            found.append(
                f"  the grammar that drew them needs about {self.grammar:.2f} nats per sentence: the model needs "
                f"{each - self.grammar:+.2f} nats beside that"
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
        """By exchanging documents."""
        first, found = evaluations[0], []
        # documents of one file, cut otherwise, have one digest
        check_comparable(evaluations, lambda each: (each.digest, each.documents))
        for other in evaluations:
            counts = [np.column_stack((each.nats, each.sizes)) for each in (first, other)]
            chance = None if other is first else paired_p(counts[0], counts[1], _rate)
            found.append(LanguageComparison(other.run, interval_of(other.nats, other.sizes), chance))
        return found


def _with_interval(found: Estimate) -> str:
    return f"{found.value:.4f} ({found.low:.4f}–{found.high:.4f})"


def _rate(sums: Float[np.ndarray, "systems 2"]) -> Float[np.ndarray, " systems"]:
    return sums[..., 0] / sums[..., 1] / math.log(2)


def _named(span: Span) -> str:
    return str(span.first) if span.first == span.last else f"{span.first}-{span.last}"
