"""Where texts come from: what recipes say of labelled and of plain texts alike."""

from typing import Annotated

from pydantic import Field

from s2s.recipe.limits import Examples, Seed, Word
from s2s.recipe.schema import Section

Columns = Word | Annotated[tuple[Word, ...], Field(min_length=1)]
SplitOrSize = Examples | Word


class LocalText(Section):
    """Where tables read from `data.root` differ from the hub's data set."""

    text: Columns | None = None
    """As `data.text`, which counts when this is null."""


class TextSettings(Section):
    """Where texts come from."""

    corpus: Word = "files"
    """`files`, or the name of a Hugging Face data set such as `stanfordnlp/imdb`."""
    config: Word | None = None
    """Configuration of the hub data set."""
    revision: Word | None = None
    """Git revision of the hub data set."""
    root: Word | None = None
    """A local folder: with a hub data set, read tables of the usual names there instead (`train.tsv.gz`,
    `test.jsonl` …); with `files`, what relative paths start from (the recipe's folder when absent)."""
    text: Columns = "text"
    """Column of the text, or a list of columns that are joined by a space; of a tsv or csv without a header, positions
    from 0, in quotes."""
    train: Word = "train"
    """A split name, or a table (tsv, csv, jsonl, parquet; plain, .gz or .xz)."""
    validation: SplitOrSize = "validation"
    """As `train`; a number holds that many texts out of the training data."""
    test: SplitOrSize | None = "test"
    """As `validation`; nothing is tested when null."""
    seed: Seed = 1
    """Seed of the texts held out."""


class PlainTextSettings(TextSettings):
    """The texts."""

    local: LocalText = LocalText()
    """What is different with `root`."""
