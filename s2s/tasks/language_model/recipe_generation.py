"""Generation of a language-model recipe from the user's texts."""

from pathlib import Path

import numpy as np

from s2s.data.sources import suspicious_text_lines
from s2s.data.text_files import table_kind
from s2s.errors import UserError
from s2s.tasks.language_model.data import DocumentSource
from s2s.tasks.language_model.recipe import DocumentSettings
from s2s.tasks.recipe_generation import (
    Splits,
    absolute_path,
    choose_tokenizer,
    count_words,
    held_out_settings,
    layout_lines,
    power_of_two,
    quoted,
    read_head,
    remarks,
    render_recipe,
    rounded,
    text_column,
    training_length,
)

_MEASURED = 20_000


def generate_language_model_recipe(name: str, splits: Splits[Path], column: str | None = None) -> str:
    """Return a language-model recipe with sizes chosen from the data.

    Args:
        name: Name of the recipe and its run.
        splits: Tables, or files or folders of plain text.
        column: Column of the text in a table; None finds it by name or values.

    Returns:
        The recipe as YAML.

    Raises:
        UserError: A file or column is missing, or there is too little data.
    """
    settings = DocumentSettings(train=absolute_path(splits.train), validation=1, test=None)
    if table_kind(splits.train) not in (None, ".txt") and not splits.train.is_dir():
        head = read_head(splits.train, [column] if column else [])
        single = column is None and len(head.columns) == 1
        text = head.columns[0] if single else text_column(head, column)
        chosen = {"text": text, "quoting": head.quoting}
        settings = settings.model_copy(update=chosen)
        layout, source = (
            layout_lines(head, "document"),
            f"\n  text: {quoted(chosen['text'])}",
        )
    else:
        if column is not None:
            raise UserError(
                "plain text has no columns", where=f"--text {column}", remedy="leave it out, or name a table"
            )
        text, layout, unit = None, "", _unit(settings)
        settings = settings.model_copy(update={"document": unit})
        source = f"\n  document: {unit} # what a document is"
    everything = DocumentSource(settings).load_split("train")
    different = len(set(everything["text"] if everything else ()))
    held = held_out_settings(splits, different, "documents", splits.train, text)
    corpus = DocumentSource(settings.model_copy(update=held)).load()
    others = [text for name, part in corpus.splits().items() if name != "train" for text in part["text"]]
    texts = corpus.train["text"][:]
    source += remarks(suspicious_text_lines(((text,) for text in texts), "documents"))
    choices = _chosen(texts, others) | {"source": source, "header": layout}
    return render_recipe("language_model", name, splits.train, held, choices)


def _unit(settings: DocumentSettings) -> str:
    """Return `line` if paragraphs are few and lines are many, else `paragraph`."""
    sources = {unit: DocumentSource(settings.model_copy(update={"document": unit})) for unit in ("line", "paragraph")}
    counts = {unit: len(source.load_split("train") or ()) for unit, source in sources.items()}
    return "paragraph" if counts["paragraph"] >= 100 or counts["line"] < 100 else "line"


def _chosen(texts: list[str], held_out: list[str]) -> dict[str, object]:
    some = texts[:: max(1, -(-len(texts) // _MEASURED))]
    words = count_words(texts, held_out)
    pieces = choose_tokenizer(some, [words], "identity")
    lengths = np.array([len(text) + 1 for text in pieces.tokenizer.encode_batch(some)])
    everything = lengths.mean() * len(texts)
    length = power_of_two(2 * np.quantile(lengths, 0.9), 32, 256)
    tokens = power_of_two(everything / 60, 4 * length, 8192)
    updates = rounded((3 if everything > 5_000_000 else 8) * everything / tokens, 300, 20_000)
    return {
        "documents": len(texts),
        "kind": pieces.kind,
        "why_kind": pieces.why,
        "size": pieces.size,
        "length": length,
        "why_length": f"{(lengths > length).mean():.1%} of documents have more and are read in parts",
        "tokens": tokens,
        "width": 192 if everything > 1_000_000 else 128,
        "feedforward": 768 if everything > 1_000_000 else 512,
        "dropout": 0.1 if everything > 1_000_000 else 0.2,
        **training_length(updates, tokens, max(everything, tokens)),
    }
