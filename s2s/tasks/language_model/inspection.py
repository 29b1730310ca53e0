"""What commonly spoils documents to learn from, found before training."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from s2s.data.inspection import some_rows
from s2s.tasks.language_model.data import DocumentSource
from s2s.tasks.language_model.recipe import LanguageRecipe
from s2s.tasks.text_inspection import TextFindings, inspect_texts

# in bytes: what a page or two have; a longer one is told when all of a corpus is one document
_PAGES = 1_000_000


def inspected(recipe: LanguageRecipe) -> str:
    """What a recipe's documents hold, and what is suspicious, as text."""
    found = inspect_texts(DocumentSource(recipe.data).load(), recipe, "documents")
    return str(replace(found, own=tuple(_advice(found.splits))))


def _advice(splits: Mapping[str, TextFindings]) -> Iterator[str]:
    train = splits["train"]
    if train.texts < 10 and train.bytes[3] > _PAGES:
        yield (
            f"train has {train.texts} documents, and the longest has {train.bytes[3]:,} bytes: "
            "data.document: paragraph would make more of them"
        )
    for name, found in splits.items():
        if found.altered:
            yield (
                f"{len(found.altered):,} documents of {name} are changed by tokenizer.normalization "
                f"({some_rows(found.altered)}): their bits per byte would flatter; identity keeps them"
            )
