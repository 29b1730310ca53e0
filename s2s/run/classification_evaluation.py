"""Scores of classifiers of texts on their corpora, and examples with the words that decided."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float

from s2s.data.encoding import encode_texts
from s2s.data.labelled import Labelled, load_labelled, load_labelled_split
from s2s.data.labelled_batches import LabelledTexts
from s2s.decoding.classes import class_probabilities
from s2s.evaluation.classification import chosen_examples, classification_scores
from s2s.evaluation.pictures import words_picture
from s2s.evaluation.saliency import Reading, attention_on_words, gradient_times_input, joined_to_words
from s2s.recipe.classification import ClassificationRecipe
from s2s.run.classification_loading import LoadedClassifier, begins, classes_of, load_classifier
from s2s.run.held_out import digest_of_texts, split_to_score
from s2s.run.labelled_evaluation import Classified, LabelledEvaluation
from s2s.training.progress import Meter, silent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# a row of a terminal of 100 columns, less what stands before it
_SHOWN = 96
_EXAMPLES = 3


@dataclass(frozen=True)
class Explained(Classified):
    """A classified text, and which of its words decided.

    Attributes:
        text: untouched.
        reading: what each of its words weighed.
    """

    text: str
    reading: Reading

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
        return f"{super().__str__()}\n    {shown}\n    {self.reading.method}: {self.reading}"


@dataclass(frozen=True)
class TextEvaluation(LabelledEvaluation):
    """What a classifier of texts scored on a split.

    Attributes:
        examples: some texts that were classified right and some that were not, chosen by seed.
        truncated: texts of which only the beginning was read.
    """

    noun: ClassVar[str] = "texts"

    examples: Sequence[Explained]
    truncated: int

    def remarks(self) -> str:
        """How many texts were too long."""
        return f", of {self.truncated:,} of which only the beginning was read" if self.truncated else ""

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        """Also the words of the examples."""
        yield from super().pictures()
        yield "words", words_picture([example.reading for example in self.examples])


def evaluate_classifier(
    path: Path,
    split: str = "test",
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    keep: bool = True,
    meter: Meter = silent,
) -> TextEvaluation:
    """Classifies a split and scores the answers.

    Args:
        path: the run's folder.
        split: `test` or `validation`.
        checkpoint: see `loading.find_checkpoint`.
        overrides: `section.key=value` for `data`, `batches` and `device`.
        keep: whether this is the run's result, kept in its folder as `evaluation-<split>.json` and in `figures/`.
        meter: shows how far it is.

    Raises:
        UserError: it is not a run of classification, or its recipe has no such split.
    """
    run = load_classifier(path, checkpoint, overrides)
    labelled = labelled_split(path, run.recipe, split)
    pieces = encode_texts(labelled.texts, run.tokenizer)
    texts = LabelledTexts(pieces, labelled.labels, run.recipe.batches, begins(run.recipe))
    with meter("classifying", len(texts)) as advance:
        probabilities = class_probabilities(run.model, texts, advance)
    predicted = probabilities.argmax(axis=1)
    evaluation = TextEvaluation(
        run=str(path),
        checkpoint=run.checkpoint.name,
        split=split,
        classes=list(run.classes),
        scores=classification_scores(labelled.labels, probabilities, list(run.classes)),
        digest=digest_of_labelled(labelled),
        truth=labelled.labels.tolist(),
        predicted=predicted.tolist(),
        probabilities=probabilities.round(6).tolist(),
        examples=_examples(run, labelled, texts, probabilities),
        truncated=texts.truncated,
    )
    if keep:
        evaluation.keep()
    return evaluation


def labelled_split(path: Path, recipe: ClassificationRecipe, split: str) -> Labelled:
    """The texts and classes of a split, in their order.

    Args:
        path: the run's folder.
        recipe: the run's; its classes are known.
        split: `test` or `validation`.

    Raises:
        UserError: see `split_to_score`.
    """
    settings = recipe.data
    return split_to_score(
        path,
        settings,
        split,
        lambda: load_labelled_split(settings, split, classes_of(recipe)),
        lambda: load_labelled(settings),
        digest_of_labelled,
    )


def digest_of_labelled(labelled: Labelled) -> str:
    """What identifies texts, whatever their classes are called."""
    return digest_of_texts(labelled.texts, "text")


def _examples(
    run: LoadedClassifier, labelled: Labelled, texts: LabelledTexts, probabilities: Float[np.ndarray, "texts classes"]
) -> list[Explained]:
    right, wrong = chosen_examples(labelled.labels, probabilities.argmax(axis=1), _EXAMPLES)
    found = []
    for row in (*right, *wrong):
        truth, predicted = (run.classes[int(of)] for of in (labelled.labels[row], probabilities[row].argmax()))
        title = f"row {row + 1}: {predicted} {probabilities[row].max():.3f}, it is {truth}"
        shares = dict(zip(run.classes, probabilities[row].round(6).tolist(), strict=True))
        reading = _reading(run, texts, row, title)
        found.append(Explained(row, truth, predicted, shares, labelled.texts[row]["text"], reading))
    return found


def _reading(run: LoadedClassifier, texts: LabelledTexts, row: int, title: str) -> Reading:
    """What each word of a text weighed for the class that it was taken for."""
    batch = texts.collate(np.array([row]), 0).to(run.computer.device)
    length = int(batch.source_valid.sum())
    source, valid = batch.source[:, :length], batch.source_valid[:, :length]
    looked, method = attention_on_words(run.model, source, valid), "attention"
    if looked is None:
        with torch.no_grad():
            chosen = run.model(source, valid).argmax(dim=1)
        looked, method = gradient_times_input(run.model, source, valid, chosen), "gradient"
    words, weights = joined_to_words(run.tokenizer, source[0].tolist(), looked[0].cpu().double().tolist())
    return Reading(method, words, weights, f"{title} ({method})")
