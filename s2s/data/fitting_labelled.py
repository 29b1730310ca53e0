"""A classification recipe fitted to the user's own labelled texts: they are read and measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from s2s.data.columns import label_columns, read_head
from s2s.data.fitting import (
    choose_pieces,
    held_out,
    look,
    power_of_two,
    quoted,
    recipe_name,
    rounded,
    split_line,
)
from s2s.data.labelled import LabelledCorpus, load_labelled
from s2s.recipe.classification import LabelledSettings

_MEASURED = 20_000
# as `s2s data check` has it
_IMBALANCE = 10

_PAGE = """# Made by `s2s new classify` for {examples:,} texts of {classes} classes. All keys: s2s recipe reference
name: {name}
task: classification
data:
  corpus: files
  text: {text}
  label: {label}
  train: {train}{header}
{splits}
tokenizer:
  kind: {kind} # {why_kind}
  size: {size}
  lowercase: {lowercase}
batches:
  tokens: {tokens}
  max_length: {max_length} # {why_length}
model:
  kind: conv # a verdict hangs on a few words: convolutions beat Transformers here and are faster (docs/log.md)
  width: {width}
  encoder_layers: 2
  dropout: 0.3
head:
  pooling: attention
  dropout: 0.3
training:
  updates: {updates} # {passes:.0f} passes over the texts or so
  learning_rate: 0.002
  schedule: cosine
  warmup: 0.1 # a share of the updates: a shorter training warms up as much sooner
  word_dropout: {word_dropout}
  label_smoothing: 0.05
  ema: 0.995
validation:
  every: {every}
  metric: {metric}
"""


@dataclass(frozen=True)
class Tables:
    """The user's labelled texts: tables; validation and test are held out of `train` where there are none."""

    train: Path
    validation: Path | None = None
    test: Path | None = None


def fitted_classification(name: str, tables: Tables, texts: Sequence[str] = (), label: str | None = None) -> str:
    """A recipe for the user's own labelled texts, its sizes chosen by what they hold.

    Args:
        name: of the run; what a name may not hold becomes `-`.
        tables: the files.
        texts: columns of the text; found by their names or looks when empty.
        label: column of the class; likewise when None.

    Raises:
        UserError: a file or column is missing, a label is not usable, or there is too little to learn from.
    """
    head = read_head(tables.train, [*texts, *([label] if label else [])])
    text, label = label_columns(head, texts, label)
    settings = LabelledSettings(text=text, label=label, train=str(tables.train.absolute()), validation=1, test=None)
    everything = load_labelled(settings)
    different = len({text for part in (everything.train, everything.validation) for text in part.texts[:]["text"]})
    held = held_out(different, None not in (tables.validation, tables.test), tables.train, "texts")
    parts = {
        name: held if given is None else str(given.absolute())
        for name, given in (("validation", tables.validation), ("test", tables.test))
    }
    corpus = load_labelled(settings.model_copy(update=parts))
    said = {True: " # its first line names the columns", False: " # its first line is a text like all others"}
    return _PAGE.format(
        name=recipe_name(name, "classify"),
        text=quoted(text[0] if len(text) == 1 else text),
        label=quoted(label),
        train=quoted(settings.train),
        header=said.get(head.header, "") if head.header is not None else "",
        splits="\n".join(split_line(name, given) for name, given in parts.items()),
        **_chosen(corpus),
    )


def _chosen(corpus: LabelledCorpus) -> dict[str, object]:
    examples, others = len(corpus.train), [part for part in (corpus.validation, corpus.test) if part is not None]
    texts = corpus.train.texts[:]["text"]
    lowercase = any(text != text.lower() for text in texts[:1000])
    words = look(
        _folded(texts, lowercase), (text for part in others for text in _folded(part.texts[:]["text"], lowercase))
    )
    some = texts[:: max(1, -(-examples // _MEASURED))]
    pieces = choose_pieces(some, [words], "nfkc", lowercase)
    lengths = np.array([len(found) for found in pieces.tokenizer.encode_batch(some)]) + 1
    max_length = int(min(512, max(8, -(-np.quantile(lengths, 0.99) // 8) * 8)))
    read = np.minimum(lengths, max_length).mean() * examples
    tokens = max(power_of_two(read / 60, 512, 8192), power_of_two(4 * max_length, 32, 8192))
    updates = rounded((3 if examples > 20_000 else 8) * read / tokens, 300, 20_000)
    counts = corpus.counts()["train"].values()
    uneven = max(counts) > _IMBALANCE * min(counts)
    return {
        "examples": examples,
        "classes": len(corpus.classes),
        "kind": pieces.kind,
        "why_kind": pieces.why,
        "size": pieces.size,
        "lowercase": str(lowercase).lower(),
        "tokens": tokens,
        "max_length": max_length,
        "why_length": f"of the {(lengths > max_length).mean():.1%} of texts that have more, the beginning is read",
        "width": 128 if examples > 2_000 else 64,
        "updates": updates,
        "passes": updates * tokens / max(read, tokens),
        "word_dropout": 0.2 if pieces.kind == "unigram" else 0.0,
        "every": max(1, updates // 8),
        "metric": "macro_f1 # the classes are uneven" if uneven else "accuracy",
    }


def _folded(texts: Sequence[str], lowercase: bool) -> Sequence[str]:
    return [text.lower() for text in texts] if lowercase else texts
