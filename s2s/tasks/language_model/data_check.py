"""What commonly spoils documents to learn from, found before training."""

from dataclasses import replace

from s2s.tasks.data_check import inspect_texts
from s2s.tasks.language_model.data import DocumentSource
from s2s.tasks.language_model.recipe import LanguageRecipe

# in bytes: what a page or two have; a longer one is told when all of a corpus is one document
_PAGES = 1_000_000


def inspected(recipe: LanguageRecipe) -> str:
    """What a recipe's documents hold, and what is suspicious, as text."""
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
