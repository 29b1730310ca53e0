"""From a classification recipe's data section to pieces: load, cut, encode, and what there is to tell of it."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from s2s.data.encoding import Lists, encode_texts
from s2s.data.labelled import LabelledCorpus, load_labelled
from s2s.data.texts import some_of
from s2s.data.tokenizers import Tokenizer
from s2s.data.tokenizers import train as train_tokenizer
from s2s.recipe.classification import ClassificationRecipe

SIDE = "text"
_BARS = 10
_BAR = 30


@dataclass(frozen=True)
class PreparedTexts:
    """Everything about the data that training needs.

    Attributes:
        corpus: texts, labels and classes.
        tokenizer: cuts the texts.
        train: the training texts as pieces.
        validation: the validation texts as pieces.
    """

    corpus: LabelledCorpus
    tokenizer: Tokenizer
    train: Lists
    validation: Lists

    def hashes(self) -> dict[str, str]:
        """What identifies the data and the tokenizer, whatever their files are called."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (*self.train.arrays(), self.corpus.train.labels):
            digest.update(np.ascontiguousarray(array).data)
        return {"training_data": digest.hexdigest(), "tokenizer": self.tokenizer.digest}


def prepare_texts(
    recipe: ClassificationRecipe, tokenizer: Tokenizer | None, say: Callable[[str], None]
) -> PreparedTexts:
    """Loads and encodes the texts.

    Args:
        recipe: the resolved recipe.
        tokenizer: that of a run that continues, or that the encoder was trained with; None to train a new one.
        say: prints a line.

    Raises:
        UserError: see `load_labelled`; or `tokenizer.size` does not fit the texts.
    """
    corpus = load_labelled(recipe.data)
    if tokenizer is None:
        say(f"learning pieces from the training texts ({recipe.tokenizer.kind})")
        tokenizer = train_tokenizer(some_of(corpus.train.texts["text"]), recipe.tokenizer, SIDE)
    train, validation = (encode_texts(part.texts, tokenizer) for part in (corpus.train, corpus.validation))
    return PreparedTexts(corpus, tokenizer, train, validation)


def length_bars(lengths: np.ndarray, max_length: int) -> list[str]:
    """Texts by their pieces, as lines with bars.

    Args:
        lengths: pieces of each text.
        max_length: how many are read.
    """
    most = int(np.percentile(lengths, 99)) + 1 if len(lengths) else 1
    step = max(1, -(-most // _BARS))
    counts = np.bincount(np.minimum(lengths // step, _BARS), minlength=_BARS + 1)
    lines = []
    for place, count in enumerate(counts.tolist()):
        name = f"{place * step}–{(place + 1) * step - 1}" if place < _BARS else f"{place * step} or more"
        cut = "  ← max_length" if place * step <= max_length < (place + 1) * step else ""
        if count:
            lines.append(f"{name:>14}  {'█' * round(_BAR * count / counts.max()):{_BAR}} {count:>9,}{cut}")
    return lines
