"""Data check of documents: problems found before training."""

from dataclasses import replace

from s2s.tasks.data_check import inspect_texts
from s2s.tasks.language_model.data import DocumentSource
from s2s.tasks.language_model.recipe import LanguageRecipe

# Bytes of a page or two; a longer document is reported if the corpus has few.
_PAGES = 1_000_000


def inspected(recipe: LanguageRecipe) -> str:
    """Return a report on a recipe's documents: statistics and suspicious examples.

    Returns:
        The report as text.
    """
    flatter = "their bits per byte would flatter; identity keeps them"
    corpus = DocumentSource(recipe.data).load()
    found = inspect_texts(corpus, recipe.data.seed, recipe.tokenizer, "documents", flatter)
    train = found.splits["train"].rows
    few = (
        f"train has {train['documents']} documents, and the longest has {train['  of the longest']:,} bytes: "
        "data.document: paragraph would make more of them"
    )
    whole = train["documents"] < 10 and train["  of the longest"] > _PAGES
    return str(replace(found, own=(few,) if whole else ()))
