"""Scores of classifiers on their corpora, examples with the words that decided, and comparisons between runs."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from s2s.data.encoding import Lists, encode_texts
from s2s.data.labelled import Labelled, load_labelled, load_labelled_split
from s2s.data.labelled_batches import LabelledTexts
from s2s.decoding.classes import class_probabilities
from s2s.errors import UserError
from s2s.evaluation.classification import ClassificationScores, chosen_examples, classification_scores
from s2s.evaluation.mcnemar import ClassifierComparison, compare_classifiers
from s2s.evaluation.pictures import confusion_picture, reliability_picture, words_picture
from s2s.evaluation.saliency import Reading, attention_on_words, gradient_times_input, joined_to_words
from s2s.run.classification_loading import LoadedClassifier, begins, load_classifier
from s2s.training.checkpoint import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "figures"
_SHOWN = 300
_EXAMPLES = 3


@dataclass(frozen=True)
class Explained:
    """A classified text, and which of its words decided.

    Attributes:
        row: in the split, from 0.
        text: untouched.
        truth: name of its class.
        predicted: name of the class it was taken for.
        probabilities: of each class.
        reading: what each of its words weighed.
    """

    row: int
    text: str
    truth: str
    predicted: str
    probabilities: dict[str, float]
    reading: Reading

    def __str__(self) -> str:
        likely = sorted(self.probabilities.items(), key=lambda item: -item[1])[:4]
        found = " · ".join(f"{name} {share:.3f}" for name, share in likely)
        mark = "right" if self.truth == self.predicted else f"WRONG, it is {self.truth}"
        text = " ".join(self.text.split())
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
        return f"  row {self.row + 1}: {found} ({mark})\n    {shown}\n    {self.reading.method}: {self.reading}"


@dataclass(frozen=True)
class ClassifierEvaluation:
    """What a classifier scored on a split.

    Attributes:
        run: the run's folder.
        checkpoint: the checkpoint's name.
        split: `test` or `validation`.
        classes: their names.
        scores: all that is measured.
        truncated: texts of which only the beginning was read.
        examples: some texts that were classified right and some that were not, chosen by seed.
        texts: hash of the texts, in their order.
        truth: number of each text's class.
        predicted: number of the class it was taken for.
        probabilities: of each class, for each text.
    """

    run: str
    checkpoint: str
    split: str
    classes: list[str]
    scores: ClassificationScores
    truncated: int
    examples: list[Explained]
    texts: str
    truth: list[int]
    predicted: list[int]
    probabilities: list[list[float]]

    def __str__(self) -> str:
        head = f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {len(self.truth):,} texts"
        if self.truncated:
            head += f", of {self.truncated:,} of which only the beginning was read"
        return "\n".join([head, str(self.scores), *map(str, self.examples)])

    def main_scores(self) -> dict[str, float]:
        """The numbers that stand for the whole, by name."""
        return self.scores.main()

    def to_json(self) -> str:
        """Everything but the texts."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        """Confusion matrix, reliability, and the words of the examples, by name."""
        yield "confusion", confusion_picture(np.array(self.scores.confusion), self.classes)
        yield "reliability", reliability_picture(self.scores.calibration)
        yield "words", words_picture([example.reading for example in self.examples])


def evaluate_classifier(
    path: Path,
    split: str = "test",
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    keep: bool = True,
) -> ClassifierEvaluation:
    """Classifies a split and scores the answers.

    Args:
        path: the run's folder.
        split: `test` or `validation`.
        checkpoint: see `loading.find_checkpoint`.
        overrides: `section.key=value` for `data`, `batches` and `device`.
        keep: whether this is the run's result, kept in its folder as `evaluation-<split>.json` and in `figures/`.

    Raises:
        UserError: it is not a run of classification, or its recipe has no such split.
    """
    run = load_classifier(path, checkpoint, overrides)
    labelled = _split(run, split)
    pieces = encode_texts(labelled.texts, run.tokenizer)
    texts = LabelledTexts(pieces, labelled.labels, run.recipe.batches, begins(run.recipe))
    probabilities = class_probabilities(run.model, texts)
    predicted = probabilities.argmax(axis=1)
    evaluation = ClassifierEvaluation(
        run=str(path),
        checkpoint=run.checkpoint.name,
        split=split,
        classes=list(run.classes),
        scores=classification_scores(labelled.labels, probabilities, list(run.classes)),
        truncated=texts.truncated,
        examples=_examples(run, labelled, pieces, probabilities),
        texts=_hash(labelled),
        truth=labelled.labels.tolist(),
        predicted=predicted.tolist(),
        probabilities=probabilities.round(6).tolist(),
    )
    if keep:
        write_atomically(path / f"evaluation-{split}.json", evaluation.to_json())
        save_pictures(path, {f"{name}-{split}": picture for name, picture in evaluation.pictures()})
    return evaluation


def compare_evaluations(evaluations: Sequence[ClassifierEvaluation]) -> list[ClassifierComparison]:
    """Tests each run against the first with McNemar's test.

    Raises:
        UserError: the runs did not classify the same texts.
    """
    first = evaluations[0]
    for other in evaluations[1:]:
        if (other.texts, other.truth) != (first.texts, first.truth):
            raise UserError(
                f"{first.run} and {other.run} have different {first.split} sets",
                remedy="compare runs on the same data, e.g. by data.corpus, data.root and data.test overrides",
            )
    return compare_classifiers(np.array(first.truth), {e.run: np.array(e.predicted) for e in evaluations})


def save_pictures(run: Path, pictures: "Mapping[str, Figure]") -> None:
    """Writes pictures into a run's `figures/`, by their names."""
    folder = run / FIGURES
    folder.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        picture.savefig(folder / f"{name}.png", dpi=150)


def _split(run: LoadedClassifier, split: str) -> Labelled:
    settings = run.recipe.data
    found = load_labelled_split(settings, split, run.classes)
    if found is None and getattr(settings, split) is not None:
        # texts that were held out of the training data
        found = getattr(load_labelled(settings), split)
    if found is None:
        raise UserError(f"the run's recipe has no {split} set", remedy=f"name one: data.{split}=NAME")
    return found


def _hash(labelled: Labelled) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for text in labelled.texts["text"]:
        digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def _examples(
    run: LoadedClassifier, labelled: Labelled, pieces: Lists, probabilities: Float[np.ndarray, "texts classes"]
) -> list[Explained]:
    right, wrong = chosen_examples(labelled.labels, probabilities.argmax(axis=1), _EXAMPLES)
    return [
        Explained(
            row=row,
            text=labelled.texts[row]["text"],
            truth=run.classes[int(labelled.labels[row])],
            predicted=run.classes[int(probabilities[row].argmax())],
            probabilities=dict(zip(run.classes, probabilities[row].round(6).tolist(), strict=True)),
            reading=_reading(run, labelled, pieces, row, probabilities[row]),
        )
        for row in (*right, *wrong)
    ]


def _reading(
    run: LoadedClassifier, labelled: Labelled, pieces: Lists, row: int, probabilities: Float[np.ndarray, " classes"]
) -> Reading:
    import torch

    texts = LabelledTexts(pieces, labelled.labels, run.recipe.batches, begins(run.recipe))
    batch = texts.collate(np.array([row]), 0).to(run.computer.device)
    source = batch.source[:, : int(batch.source_valid.sum())]
    valid = batch.source_valid[:, : source.shape[1]]
    chosen = int(probabilities.argmax())
    looked = attention_on_words(run.model, source, valid)
    method = "gradient" if looked is None else "attention"
    if looked is None:
        looked = gradient_times_input(run.model, source, valid, torch.tensor([chosen], device=source.device))
    words, weights = joined_to_words(run.tokenizer, source[0].tolist(), looked[0].double().tolist())
    truth = run.classes[int(labelled.labels[row])]
    title = f"row {row + 1}: {run.classes[chosen]} {probabilities[chosen]:.3f}, it is {truth} ({method})"
    return Reading(method, words, weights, title)
