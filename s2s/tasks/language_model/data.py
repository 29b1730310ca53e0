"""Documents: reading, packing into rows for training, and windows for scoring.

A document of n tokens has n + 1 positions: the model reads `BOS` and the tokens, and predicts the tokens and `EOS`. In
training, documents are concatenated and cut into rows of equal length, at any position. In scoring, each document is
read alone, with a sliding window.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from s2s.data.batches import split_by_budget
from s2s.data.caching import cache_rows
from s2s.data.dataset import BaseBatch, Examples, Plan, batches_per_step
from s2s.data.phrasebook import phrases
from s2s.data.tables import TEXT, TextSource
from s2s.data.text_files import COMPRESSIONS, LARGEST_WHOLE, check_there, lines, table_kind
from s2s.data.tokenized import TokenizedTexts
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.errors import UserError
from s2s.tasks.language_model.recipe import DocumentSettings, LanguageRecipe, PackingSettings

if TYPE_CHECKING:
    import datasets

BUILT_IN_SIZES = {"train": 40_000, "validation": 500, "test": 1_000}
# Seed for the order of documents, so that no part of the corpus has a position that identifies it.
_ORDER = 1


class DocumentSource(TextSource):
    """Source of documents: tables, hub data sets, plain text, or the built-in corpus."""

    item_name: ClassVar[str] = "documents"
    settings: DocumentSettings

    def load_split(self, name: str, train: "datasets.Dataset | None" = None) -> "datasets.Dataset | None":
        """Return a split; the built-in corpus is generated in the requested size.

        For the built-in corpus, a number is the size of the split; nothing is held out.
        """
        from datasets import Dataset

        size = getattr(self.settings, name)
        if self.settings.corpus != "built-in" or size is None:
            return super().load_split(name, train)
        found = phrases(name, built_in_size(self.settings, name), self.settings.seed)
        return Dataset.from_dict({"text": [phrase.source for phrase in found]})

    def read(self, name: str, split: str | tuple[str, str], train: "datasets.Dataset | None") -> "datasets.Dataset":
        """Read a split from plain text, a table, or a data set on the hub."""
        path = Path(str(split))
        if self.settings.corpus != "files" or (table_kind(path) not in (None, ".txt") and not path.is_dir()):
            return super().read(name, split, train)
        files, unit = tuple(_text_files(path, name)), self.settings.document
        return cache_rows(partial(_documents, files, unit), files, f"documents by {unit}", TEXT)


def built_in_size(settings: DocumentSettings, name: str) -> int:
    """Return the number of sentences of a split of the built-in corpus."""
    size = getattr(settings, name)
    return size if isinstance(size, int) else BUILT_IN_SIZES[name]


def _text_files(path: Path, name: str) -> list[Path]:
    if not path.is_dir():
        check_there(path, key=f"data.{name}")
        return [path]
    endings = tuple(f".txt{packed}" for packed in COMPRESSIONS)
    found = sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(endings))
    if not found:
        raise UserError(
            f"no file in it ends with {', '.join(endings)}", f"data.{name}: {path}", "name a folder of plain texts"
        )
    return found


def _documents(files: Sequence[Path], unit: str) -> Iterator[dict[str, str]]:
    """Yield the documents of files, without surrounding line ends and empty documents."""
    for file in files:
        gathered: list[str] = []
        size = 0
        for line in lines(file):
            if unit == "line" or (unit == "paragraph" and not line.strip()):
                yield from _document(gathered)
                gathered, size = [line] if unit == "line" else [], 0
            else:
                gathered.append(line)
                size += len(line) + 1
                if size > LARGEST_WHOLE:
                    raise UserError(
                        f"a document has more than {LARGEST_WHOLE >> 20} MiB",
                        where=f"data.document: {unit}: {file}",
                        remedy="set data.document to line or paragraph, or split the file",
                    )
        yield from _document(gathered)


def _document(gathered: list[str]) -> Iterator[dict[str, str]]:
    text = "\n".join(gathered).strip("\n")
    if text.strip():
        yield {"text": text}


@dataclass(frozen=True)
class TextBatch(BaseBatch):
    """Spans of documents, padded with `PAD`; the loss is the mean over `valid`.

    Attributes:
        read: Input tokens (batch, steps): `BOS` and the tokens of each document.
        following: Target tokens (batch, steps): the tokens of each document and `EOS`.
        valid: Mask (batch, steps), True at positions that count.
        places: Position in its document (batch, steps) of each token of `following`, from 0.
    """

    read: Int[Tensor, "batch steps"]
    following: Int[Tensor, "batch steps"]
    valid: Bool[Tensor, "batch steps"]
    places: Int[Tensor, "batch steps"]


Stretch = tuple[int, int, int]
"""Row of a document, first position and end position (exclusive)."""


def _collated(
    texts: TokenizedTexts, rows: Sequence[Sequence[Stretch]], indices: np.ndarray, skipped: Sequence[int] = ()
) -> TextBatch:
    """Return a batch of concatenated spans; the first `skipped` positions are masked."""
    width = max((sum(last - first for _, first, last in row) for row in rows), default=0)
    read, following = (np.full((len(rows), width), PAD, dtype=np.int64) for _ in range(2))
    valid, places = np.zeros((len(rows), width), dtype=bool), np.zeros((len(rows), width), dtype=np.int64)
    for number, row in enumerate(rows):
        at = 0
        tokens = texts.rows(np.array([document for document, _, _ in row]))
        for (_, first, last), text in zip(row, tokens, strict=True):
            here = slice(at, at := at + last - first)
            # Position 0 reads `BOS` and predicts token 0; the last position reads the last token and predicts `EOS`.
            read[number, here] = np.concatenate(([BOS] if first == 0 else [], text[max(0, first - 1) : last - 1]))
            following[number, here] = np.concatenate((text[first:last], [EOS] if last > len(text) else []))
            places[number, here] = np.arange(first, last)
        valid[number, (skipped[number] if len(skipped) else 0) : at] = True
    count, real = int(valid.sum()), int(sum(last - first for row in rows for _, first, last in row))
    tensors = (torch.from_numpy(array) for array in (read, following, valid, places))
    return TextBatch(torch.from_numpy(indices.astype(np.int64)), count, count, real / max(1, valid.size), *tensors)


class PackedTexts(Examples[TextBatch]):
    """Training examples of a language model: documents packed into rows.

    Documents are concatenated in a fixed random order and cut into rows of `batches.length` tokens. The offset of the
    first cut is drawn for each epoch, so that documents are cut at other positions; each position of each document
    occurs once in an epoch. A row is identified by its start in the concatenation, which is negative if the first row
    is shorter than the others.

    Args:
        settings: Length of a row and size of a batch, in tokens.
        wanted: Approximate number of tokens for an optimizer step; None uses one batch.
    """

    item_name: ClassVar[str] = "rows of text that begin at"

    def __init__(self, texts: TokenizedTexts, settings: PackingSettings, wanted: int | None = None) -> None:
        self.texts = texts
        self.length, self.rows = settings.length, settings.tokens // settings.length
        self.wanted = wanted
        # An empty document would only teach that documents can be empty.
        there = np.flatnonzero(np.asarray(texts.lengths))
        self.order = there[np.random.default_rng(_ORDER).permutation(len(there))]
        self.ends = np.cumsum(texts.lengths[self.order].astype(np.int64) + 1)

    @property
    def places(self) -> int:
        """Number of positions of all documents, `EOS` included."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def __len__(self) -> int:
        return -(-self.places // self.length)

    def manifest_counts(self) -> dict[str, int]:
        return {"rows": len(self)}

    def make_batches(self, seed: int, epoch: int) -> Plan:
        """Make the batches of an epoch, as starts of rows."""
        generator = np.random.default_rng([seed % 2**64, epoch])
        first = int(generator.integers(1, self.length + 1)) - self.length
        starts = generator.permutation(np.arange(first, self.places, self.length))
        return [starts[i : i + self.rows] for i in range(0, len(starts), self.rows)]

    def accumulation_steps(self, batches: Plan) -> int:
        if self.wanted is None:
            return super().accumulation_steps(batches)
        usual = self.places / max(1, len(batches))
        remedy = f"divide batches.tokens by {usual / self.wanted:.1f}"
        return batches_per_step(self.wanted, usual, "pieces", "tokens_per_update", remedy)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> TextBatch:
        return _collated(self.texts, [list(self._stretches(start)) for start in rows.tolist()], rows)

    def _stretches(self, start: int) -> Iterator[Stretch]:
        """Yield the spans of documents in the row that starts at a position."""
        at, last = max(0, start), min(start + self.length, self.places)
        number = int(np.searchsorted(self.ends, at, side="right"))
        while at < last:
            begin = int(self.ends[number - 1]) if number else 0
            end = int(self.ends[number])
            yield int(self.order[number]), at - begin, min(end, last) - begin
            at, number = end, number + 1


class Windows(Examples[TextBatch]):
    """Windows of documents for scoring; each document is read alone.

    The first window scores all its positions, each further one its last `stride` positions. So each position of each
    document is scored once, with as much context as the windows allow.

    Args:
        context: Length of a window, in tokens.
        stride: Distance of windows, in tokens.
        tokens: Size of a batch, in tokens.
    """

    item_name: ClassVar[str] = "windows of text"

    def __init__(self, texts: TokenizedTexts, context: int, stride: int, tokens: int) -> None:
        self.texts, self.tokens = texts, max(tokens, context)
        found = [w for row, n in enumerate(texts.lengths.tolist()) for w in _windows(row, n + 1, context, stride)]
        self.windows = np.array(found, dtype=np.int64).reshape(-1, 4)

    def __len__(self) -> int:
        return len(self.windows)

    def make_batches(self, seed: int, epoch: int) -> Plan:
        """Make batches of windows of similar length; the same for every seed and epoch."""
        widths = self.windows[:, 2] - self.windows[:, 1]
        order = np.argsort(-widths, kind="stable")
        return split_by_budget(order, widths[order], self.tokens)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> TextBatch:
        chosen = self.windows[rows].tolist()
        stretches = [[(document, first, last)] for document, first, last, _ in chosen]
        return _collated(self.texts, stretches, rows, [skipped for *_, skipped in chosen])


def windows_of(recipe: LanguageRecipe, texts: TokenizedTexts) -> Windows:
    """Return the windows for scoring documents by a recipe.

    Args:
        recipe: Resolved recipe, with context and stride.

    Returns:
        Windows to make batches from.
    """
    return Windows(texts, recipe.context, recipe.stride, recipe.batches.tokens)


def _windows(document: int, places: int, context: int, stride: int) -> Iterable[tuple[int, int, int, int]]:
    """Yield document, start, end (exclusive) and unscored positions of each window."""
    first, scored = 0, 0
    while scored < places:
        last = min(first + context, places)
        yield document, first, last, scored - first
        first, scored = first + stride, last
