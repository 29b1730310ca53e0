"""Generation of a classification recipe from the user's labelled texts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from s2s.data.sources import Corpus, suspicious_text_lines
from s2s.errors import counted
from s2s.tasks.classification.data import Labelled, LabelledSource
from s2s.tasks.classification.recipe import LabelledSettings
from s2s.tasks.data_check import missing_classes
from s2s.tasks.recipe_generation import (
    Splits,
    absolute_path,
    choose_tokenizer,
    classes_metric,
    count_words,
    held_out_settings,
    label_columns,
    layout_lines,
    power_of_two,
    quoted,
    read_head,
    remarks,
    render_recipe,
    rounded,
    training_length,
)

_MEASURED = 20_000


def generate_classification_recipe(
    name: str, splits: Splits[Path], texts: Sequence[str] = (), label: str | None = None
) -> str:
    """Return a classification recipe with sizes chosen from the data.

    Args:
        name: Name of the recipe and its run.
        texts: Columns of the text; empty finds them by name or values.
        label: Column of the label; None finds it by name or values.

    Returns:
        The recipe as YAML.

    Raises:
        UserError: A file or column is missing, a label is not usable, or there is too little data.
    """
    head = read_head(splits.train, [*texts, *([label] if label else [])])
    text, label = label_columns(head, texts, label)
    train = absolute_path(splits.train)
    settings = LabelledSettings(text=text, label=label, quoting=head.quoting, train=train, validation=1, test=None)
    everything = LabelledSource(settings).load_split("train")
    different = len(set(everything.texts[:]["text"])) if everything else 0
    held = held_out_settings(splits, different, "texts", splits.train, " + ".join(text))
    source = LabelledSource(settings.model_copy(update=held))
    corpus = source.load()
    choices = _chosen(corpus)
    lines = [
        *source.missing_labels(corpus),
        *suspicious_text_lines(((text,) for text in corpus.train.texts["text"]), "training texts"),
        *_missing_classes(corpus),
        *(_rare_classes(everything, label) if everything else ()),
    ]
    choices["text"] = quoted(text[0] if len(text) == 1 else text)
    choices["label"] = quoted(label) + remarks(lines)
    choices["header"] = layout_lines(head, "text")
    return render_recipe("classification", name, splits.train, held, choices)


def _missing_classes(corpus: Corpus[Labelled]) -> list[str]:
    counts = {name: part.counts() for name, part in corpus.splits().items()}
    return [line for name, each in counts.items() for line in missing_classes(name, "texts", each)]


def _rare_classes(everything: Labelled, label: str) -> list[str]:
    """Return a line if a class has fewer than two texts on average."""
    classes, texts = len(everything.names), len(everything)
    if texts >= 2 * classes:
        return []
    return [
        f"{classes:,} classes for {counted(texts, 'text')}, fewer than 2 texts for a class: is {label!r:.40} the "
        "column of the classes? name another one: --label COLUMN"
    ]


def _chosen(corpus: Corpus[Labelled]) -> dict[str, object]:
    examples, others = len(corpus.train), [part for part in (corpus.validation, corpus.test) if part is not None]
    texts = corpus.train.texts[:]["text"]
    lowercase = any(text != text.lower() for text in texts[:1000])
    words = count_words(
        _folded(texts, lowercase), (text for part in others for text in _folded(part.texts[:]["text"], lowercase))
    )
    some = texts[:: max(1, -(-examples // _MEASURED))]
    pieces = choose_tokenizer(some, [words], "nfkc", lowercase)
    lengths = np.array([len(text) for text in pieces.tokenizer.encode_batch(some)]) + 1
    max_length = int(min(512, max(8, -(-np.quantile(lengths, 0.99) // 8) * 8)))
    read = np.minimum(lengths, max_length).mean() * examples
    tokens = max(power_of_two(read / 60, 512, 8192), power_of_two(4 * max_length, 32, 8192))
    updates = rounded((3 if examples > 20_000 else 8) * read / tokens, 300, 20_000)
    return {
        "examples": examples,
        "classes": len(corpus.train.names),
        "kind": pieces.kind,
        "why_kind": pieces.why,
        "size": pieces.size,
        "lowercase": str(lowercase).lower(),
        "tokens": tokens,
        "max_length": max_length,
        "why_length": f"of the {(lengths > max_length).mean():.1%} of texts that have more, the beginning is read",
        "width": 128 if examples > 2_000 else 64,
        **training_length(updates, tokens, max(read, tokens)),
        "word_dropout": 0.2 if pieces.kind == "unigram" else 0.0,
        "metric": classes_metric(corpus.train.counts().values()),
    }


def _folded(texts: Sequence[str], lowercase: bool) -> Sequence[str]:
    return [text.lower() for text in texts] if lowercase else texts
