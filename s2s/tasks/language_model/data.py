"""Texts, and how they become rows and windows of pieces.

A document of n pieces has n + 1 places: the model reads `BOS` and its pieces, and should say its pieces and `EOS`. In
training, documents stand one after the other and are cut into rows of equal length, wherever that is in a document; in
scoring, each is read alone, through windows that move on.
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
from s2s.data.compression import COMPRESSIONS, LARGEST_WHOLE
from s2s.data.dataset import BaseBatch, Examples, Plan, batches_per_step
from s2s.data.phrasebook import phrases
from s2s.data.text_files import check_there, lines, table_kind
from s2s.data.tokenized import TokenizedTexts
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.errors import UserError
from s2s.tasks.language_model.recipe import DocumentSettings, LanguageRecipe, PackingSettings
from s2s.tasks.texts import TEXT, TextSource

if TYPE_CHECKING:
    import datasets

BUILT_IN_SIZES = {"train": 40_000, "validation": 500, "test": 1_000}
# of the order in which documents stand: no part of a corpus is told from another by where it stood in its file
_ORDER = 1


class DocumentSource(TextSource):
    """Texts of tables, of the hub, of files of plain text, or the built-in corpus's sentences."""

    item_name: ClassVar[str] = "documents"
    settings: DocumentSettings

    def part(self, name: str, train: "datasets.Dataset | None" = None) -> "datasets.Dataset | None":
        """As elsewhere; the built-in corpus is made to measure, so that a number holds nothing out of it."""
        from datasets import Dataset

        size = getattr(self.settings, name)
        if self.settings.corpus != "built-in" or size is None:
            return super().part(name, train)
        found = phrases(name, built_in_size(self.settings, name), self.settings.seed)
        return Dataset.from_dict({"text": [phrase.source for phrase in found]})

    def read(self, name: str, split: str | tuple[str, str], train: "datasets.Dataset | None") -> "datasets.Dataset":
        """Plain text, a table, or a data set on the hub."""
        path = Path(str(split))
        if self.settings.corpus != "files" or (table_kind(path) not in (None, ".txt") and not path.is_dir()):
            return super().read(name, split, train)
        files, unit = tuple(_text_files(path, name)), self.settings.document
        return cache_rows(partial(_documents, files, unit), files, f"documents by {unit}", TEXT)


def built_in_size(settings: DocumentSettings, name: str) -> int:
    """How many of the built-in corpus's sentences a part has."""
    size = getattr(settings, name)
    return size if isinstance(size, int) else BUILT_IN_SIZES[name]


def _text_files(path: Path, name: str) -> list[Path]:
    if not path.is_dir():
        check_there(path)
        return [path]
    endings = tuple(f".txt{packed}" for packed in COMPRESSIONS)
    found = sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(endings))
    if not found:
        raise UserError(
            f"no file in it ends with {', '.join(endings)}", f"data.{name}: {path}", "name a folder of plain texts"
        )
    return found


def _documents(files: Sequence[Path], unit: str) -> Iterator[dict[str, str]]:
    """The documents of files, without the line ends around them; empty ones are none."""
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
    """Stretches of documents, padded with `PAD`; the loss is divided by the real pieces.

    Attributes:
        read: what the model reads: of each document `BOS`, then its pieces.
        following: what it should say: the document's pieces, then `EOS`.
        valid: True where there is something to say that counts.
        places: where in its document each piece of `following` stands, from 0 on.
    """

    read: Int[Tensor, "batch steps"]
    following: Int[Tensor, "batch steps"]
    valid: Bool[Tensor, "batch steps"]
    places: Int[Tensor, "batch steps"]


Stretch = tuple[int, int, int]
"""Of a document, by its row: from which place on, and to which one, exclusively."""


def _collated(
    texts: TokenizedTexts, rows: Sequence[Sequence[Stretch]], indices: np.ndarray, skipped: Sequence[int] = ()
) -> TextBatch:
    """A batch whose rows are stretches joined end to end; the first `skipped` places of each count for nothing."""
    width = max((sum(last - first for _, first, last in row) for row in rows), default=0)
    read, following = (np.full((len(rows), width), PAD, dtype=np.int64) for _ in range(2))
    valid, places = np.zeros((len(rows), width), dtype=bool), np.zeros((len(rows), width), dtype=np.int64)
    for number, row in enumerate(rows):
        at = 0
        tokens = texts.rows(np.array([document for document, _, _ in row]))
        for (_, first, last), text in zip(row, tokens, strict=True):
            here = slice(at, at := at + last - first)
            # place 0 reads `BOS` and says piece 0; the last place reads the last piece and says `EOS`
            read[number, here] = np.concatenate(([BOS] if first == 0 else [], text[max(0, first - 1) : last - 1]))
            following[number, here] = np.concatenate((text[first:last], [EOS] if last > len(text) else []))
            places[number, here] = np.arange(first, last)
        valid[number, (skipped[number] if len(skipped) else 0) : at] = True
    count, real = int(valid.sum()), int(sum(last - first for row in rows for _, first, last in row))
    tensors = (torch.from_numpy(array) for array in (read, following, valid, places))
    return TextBatch(torch.from_numpy(indices.astype(np.int64)), count, count, real / max(1, valid.size), *tensors)


class PackedTexts(Examples[TextBatch]):
    """Documents one after the other, in an order drawn once, cut into rows of `batches.length` pieces.

    Where the first row ends is drawn for each epoch, so that documents are cut at other places; each place of each
    document is learned from once in an epoch. A row goes by the place in the whole at which it begins, which is
    negative where the first one is shorter than the others. An update learns from `wanted` pieces, about, or from those
    of one batch when None.
    """

    item_name: ClassVar[str] = "rows of text that begin at"

    def __init__(self, texts: TokenizedTexts, settings: PackingSettings, wanted: int | None = None) -> None:
        self.texts = texts
        self.length, self.rows = settings.length, settings.tokens // settings.length
        self.wanted = wanted
        # a document without pieces teaches nothing but that there are such
        there = np.flatnonzero(np.asarray(texts.lengths))
        self.order = there[np.random.default_rng(_ORDER).permutation(len(there))]
        self.ends = np.cumsum(texts.lengths[self.order].astype(np.int64) + 1)

    @property
    def places(self) -> int:
        """Of all documents, ends counted."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def __len__(self) -> int:
        return -(-self.places // self.length)

    def make_batches(self, seed: int, epoch: int) -> Plan:
        """The rows of each batch of an epoch, by where they begin."""
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
        """What the row that begins there holds of which documents."""
        at, last = max(0, start), min(start + self.length, self.places)
        number = int(np.searchsorted(self.ends, at, side="right"))
        while at < last:
            begin = int(self.ends[number - 1]) if number else 0
            end = int(self.ends[number])
            yield int(self.order[number]), at - begin, min(end, last) - begin
            at, number = end, number + 1


class Windows(Examples[TextBatch]):
    """Documents, each read alone: the first window scores all that it reads, each further one its last `stride` places.

    So every place of every document is scored once, with as many pieces before it in sight as the windows allow.
    """

    item_name: ClassVar[str] = "windows of text"

    def __init__(self, texts: TokenizedTexts, context: int, stride: int, tokens: int) -> None:
        self.texts, self.tokens = texts, max(tokens, context)
        found = [w for row, n in enumerate(texts.lengths.tolist()) for w in _windows(row, n + 1, context, stride)]
        self.windows = np.array(found, dtype=np.int64).reshape(-1, 4)

    def __len__(self) -> int:
        return len(self.windows)

    def make_batches(self, seed: int, epoch: int) -> Plan:
        """Windows of similar length together, always the same ones."""
        widths = self.windows[:, 2] - self.windows[:, 1]
        order = np.argsort(-widths, kind="stable")
        return split_by_budget(order, widths[order], self.tokens)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> TextBatch:
        chosen = self.windows[rows].tolist()
        stretches = [[(document, first, last)] for document, first, last, _ in chosen]
        return _collated(self.texts, stretches, rows, [skipped for *_, skipped in chosen])


def windows_of(recipe: LanguageRecipe, texts: TokenizedTexts) -> Windows:
    """Documents as they are scored by a recipe."""
    return Windows(texts, recipe.context, recipe.stride, recipe.batches.tokens)


def _windows(document: int, places: int, context: int, stride: int) -> Iterable[tuple[int, int, int, int]]:
    """Of each window: the document, the first place read, the last one, exclusively, and how many are not scored."""
    first, scored = 0, 0
    while scored < places:
        last = min(first + context, places)
        yield document, first, last, scored - first
        first, scored = first + stride, last
