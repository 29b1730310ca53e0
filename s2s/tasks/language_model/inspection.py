"""What commonly spoils texts to learn from, found before training."""

from collections.abc import Iterator
from dataclasses import dataclass

import datasets
import numpy as np

from s2s.data import inspection as look
from s2s.data.encoding import learned
from s2s.data.piece_inspection import Cutting, cutting
from s2s.data.sources import Corpus
from s2s.data.tokenizers import normalized
from s2s.tasks.language_model.data import DocumentSource
from s2s.tasks.language_model.recipe import LanguageRecipe

# in bytes: what a page or two have; a longer one is told when all of a corpus is one document
_PAGES = 1_000_000


@dataclass(frozen=True)
class DocumentFindings:
    """What one split holds. Rows count from 1, in the order of the split.

    Attributes:
        documents: how many.
        bytes: of all texts; and of the shortest, the middle and the longest one.
        empty: rows without a text.
        repeated: rows whose text stands in an earlier row, too.
        altered: rows whose text the recipe's normalization changes.
        suspicious: rows with one of the `SUSPICIOUS` characters, by its name.
    """

    documents: int
    bytes: tuple[int, int, int, int]
    empty: list[int]
    repeated: list[int]
    altered: list[int]
    suspicious: dict[str, list[int]]


@dataclass(frozen=True)
class DocumentInspection:
    """What a corpus of documents holds, and what is suspicious.

    By split, how many texts occur in train, too; rows of train drawn at random, to read with one's own eyes; and how
    texts are cut.
    """

    splits: dict[str, DocumentFindings]
    overlap: dict[str, int]
    spots: list[tuple[int, str]]
    cut: Cutting

    def __str__(self) -> str:
        spots = [f"  {row:>9,}  {look.visible(text)}" for row, text in self.spots]
        drawn = [f"train: {len(spots)} documents drawn at random", *spots]
        return look.findings([self._summary(), drawn], self.advice())

    def advice(self) -> Iterator[str]:
        """What should be mended, in plain words."""
        for name, found in self.splits.items():
            yield from _split_advice(name, found)
        for name, count in self.overlap.items():
            if count:
                yield f"{count:,} documents of {name} also occur in train: scores will flatter"
        yield from self.cut.advice()

    def _summary(self) -> list[str]:
        splits = list(self.splits.values())
        rows: dict[str, list[int | None]] = {"documents": [found.documents for found in splits]}
        for place, words in enumerate(("bytes", "  of the shortest", "  of the middle one", "  of the longest")):
            rows[words] = [found.bytes[place] for found in splits]
        rows["empty documents"] = [len(found.empty) for found in splits]
        rows["repeated documents"] = [len(found.repeated) for found in splits]
        rows["changed by normalization"] = [len(found.altered) for found in splits]
        rows["documents also in train"] = [self.overlap.get(name) for name in self.splits]
        return look.table(self.splits, {**rows, **self.cut.rows()})


def _split_advice(name: str, found: DocumentFindings) -> Iterator[str]:
    if found.empty:
        yield f"{len(found.empty):,} documents of {name} are empty ({look.some_rows(found.empty)})"
    if name == "train" and len(found.repeated) > look.MANY * found.documents:
        yield f"{len(found.repeated):,} documents of train are repeated: a model may learn them by heart"
    if name == "train" and found.documents < 10 and found.bytes[3] > _PAGES:
        yield (
            f"train has {found.documents} documents, and the longest has {found.bytes[3]:,} bytes: "
            "data.document: paragraph would make more of them"
        )
    if found.altered:
        yield (
            f"{len(found.altered):,} documents of {name} are changed by tokenizer.normalization "
            f"({look.some_rows(found.altered)}): their bits per byte would flatter; identity keeps them"
        )
    for kind, rows in found.suspicious.items():
        some = f"{len(rows):,} documents of {name} with a {kind} ({look.some_rows(rows)})"
        yield f"{some}: wanted, or a conversion gone wrong?"


def inspected(recipe: LanguageRecipe) -> str:
    """What a recipe's documents hold, and what is suspicious, as text."""
    return str(inspect_documents(DocumentSource(recipe.data).load(), recipe))


def inspect_documents(corpus: Corpus[datasets.Dataset], recipe: LanguageRecipe) -> DocumentInspection:
    """Looks through documents; some to be read are drawn by the recipe's seed."""
    rows = look.drawn(len(corpus.train), recipe.data.seed)
    spots = [(row + 1, corpus.train[row]["text"]) for row in rows]
    splits = {name: _findings(part, recipe) for name, part in corpus.parts().items()}
    texts = {name: part["text"][:] for name, part in corpus.parts().items()}
    cut = cutting(texts, lambda: learned(texts["train"], recipe.tokenizer), None)
    return DocumentInspection(splits, look.overlap(corpus, lambda part: part["text"]), spots, cut)


def _findings(part: datasets.Dataset, recipe: LanguageRecipe) -> DocumentFindings:
    texts, empty, altered = part["text"], [], []
    suspicious: dict[str, list[int]] = {}
    sizes = np.zeros(len(part), dtype=np.int64)
    for row, text in enumerate(texts, start=1):
        sizes[row - 1] = len(text.encode())
        if not text.strip():
            empty.append(row)
        if normalized(text, recipe.tokenizer.normalization, recipe.tokenizer.lowercase) != text:
            altered.append(row)
        look.note_suspicious(suspicious, row, text)
    again = (look.repeated(look.hashes(texts)) + 1).tolist()
    spread = (int(sizes.sum()), int(sizes.min()), int(np.median(sizes)), int(sizes.max()))
    return DocumentFindings(len(part), spread, empty, again, altered, suspicious)
