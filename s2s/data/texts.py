"""Texts from tables or from the hub, as all tasks that read texts alone take them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

import datasets
import numpy as np

from s2s.data.encoding import Lists, encode_texts
from s2s.data.sources import ALIASES, Corpus, Part, Source, digest_of_arrays, no_table, not_found, usual_file
from s2s.data.text_files import TABLES, table_kind
from s2s.data.tokenizers import Tokenizer, train
from s2s.recipe.schema import PieceSettings, TextSettings

SIDE = "text"
"""The name under which the tokenizer of texts is kept."""
_CHARACTERS = 10_000_000


@dataclass(frozen=True)
class PreparedTexts(Generic[Part]):
    """Everything about texts that training needs: as text, and as pieces."""

    corpus: Corpus[Part]
    tokenizer: Tokenizer
    train: Lists
    validation: Lists

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """The only one."""
        return (self.tokenizer,)

    def learned(self) -> Iterator[np.ndarray]:
        """All that training learns from."""
        yield from self.train.arrays()

    def hashes(self) -> dict[str, str]:
        """What identifies the data and the tokenizer, whatever their files are called."""
        return {"training_data": digest_of_arrays(self.learned()), "tokenizer": self.tokenizer.digest}


def cut(
    train_texts: datasets.Dataset, validation: datasets.Dataset, settings: PieceSettings, tokenizer: Tokenizer | None
) -> tuple[Tokenizer, Lists, Lists]:
    """A tokenizer, trained unless there is one, and training and validation texts, the column `text`, as pieces."""
    tokenizer = tokenizer or train(some_of(train_texts["text"]), settings, SIDE)
    return tokenizer, encode_texts(train_texts, tokenizer), encode_texts(validation, tokenizer)


def split_table(source: Source, name: str, split: str) -> Path | None:
    """The table of a split of texts, as the recipe says of it; None where it comes from the hub.

    Raises:
        UserError: there is no such table.
    """
    if source.settings.corpus != "files" and source.settings.root is None:
        return None
    path = Path(split) if source.settings.corpus == "files" else _usual_table(source.folder("tables"), name, split)
    if table_kind(path) is None:
        raise no_table(name, split, "name a table, or a hub data set with data.corpus")
    return path


def _usual_table(root: Path, name: str, split: str) -> Path:
    for stem in ALIASES.get(split, (split,)):
        if path := usual_file(root, stem):
            return path
    held_out = ", or hold texts out of the training data: data.validation=1000" if name == "validation" else ""
    raise not_found(
        root,
        f"no table for the split {split!r}: looked for {split} with {', '.join(TABLES)} (plain, .gz or .xz)",
        f"name the split by the beginning of its file: data.{name}=BEGINNING{held_out}",
    )


def text_columns(settings: TextSettings, local: str | tuple[str, ...] | None = None) -> tuple[str, ...]:
    """The columns that a text is joined from; those of a table may be others."""
    columns = local or settings.text
    return (columns,) if isinstance(columns, str) else columns


def joined(texts: Sequence[str]) -> str:
    """The text of several columns: a space between them, empty ones left out."""
    return " ".join(text for text in texts if text)


def some_of(texts: Sequence[str]) -> Sequence[str]:
    """As many texts, evenly taken, as hold about ten million characters: pieces learned from more differ little."""
    characters = sum(len(text) for text in texts)
    return texts[:: max(1, round(characters / _CHARACTERS))]
