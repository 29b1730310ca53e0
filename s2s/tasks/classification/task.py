"""Classification of texts: a head over an encoder, from labelled texts to scores and answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow
import torch
from jaxtyping import Float, Int

from s2s.data.encoding import Lists, encode_texts
from s2s.data.examples import Examples, LabelledBatch
from s2s.data.sources import Corpus
from s2s.data.texts import SIDE
from s2s.data.tokenizers import Tokenizer
from s2s.evaluation.classification import chosen_examples
from s2s.models.contract import Classifier
from s2s.recipe.installed import module_of
from s2s.tasks.classification.batches import LabelledTexts
from s2s.tasks.classification.data import Labelled, LabelledSource, PreparedLabelled, prepare_texts
from s2s.tasks.classification.recipe import ClassificationRecipe
from s2s.tasks.contract import Course, Loaded, Say, Scoring, check_positions, draw
from s2s.tasks.labelled import (
    Answers,
    Classified,
    LabelledEvaluation,
    Labelling,
    class_lines,
    class_probabilities,
    classification_loss,
    looked_at,
    scored,
)
from s2s.tasks.pictures import class_counts_picture, lengths_picture, words_picture
from s2s.tasks.saliency import Reading, joined_to_words, weighed
from s2s.training.devices import Computer, seed_for
from s2s.training.logger import RunLog
from s2s.training.progress import Meter
from s2s.training.trainer import Trainer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# a row of a terminal of 100 columns, less what stands before it
_SHOWN = 96
_BARS = 10
_BAR = 30

TextRun = Loaded[ClassificationRecipe, Classifier]
TextCourse = Course[ClassificationRecipe, PreparedLabelled, Classifier]


def build_classifier(recipe: ClassificationRecipe, pieces: int) -> Classifier:
    """A classifier of texts of so many different pieces, with the initial weights that the recipe's seed gives."""
    torch.manual_seed(seed_for(recipe.seeds.initialization))
    encoder, width = module_of(recipe.model.kind).build_encoder(recipe.model, pieces)
    return Classifier(encoder, width, len(recipe.data.classes or ()), recipe.head.pooling, recipe.head.dropout)


def begins(recipe: ClassificationRecipe) -> bool:
    """Whether texts begin with a piece of their own, whose state stands for the whole."""
    return recipe.head.pooling == "first"


def training_texts(recipe: ClassificationRecipe, data: PreparedLabelled) -> LabelledTexts:
    """What a classifier learns from."""
    return LabelledTexts(
        data.train,
        data.corpus.train.labels,
        recipe.batches,
        begins(recipe),
        recipe.training.examples_per_update,
        recipe.training.word_dropout,
    )


def trainer_of(
    recipe: ClassificationRecipe, data: PreparedLabelled, model: Classifier, computer: Computer
) -> Trainer[Classifier, LabelledBatch]:
    """A trainer of a classifier, on the computer's device, that has done nothing yet."""
    loss = classification_loss(recipe.training.label_smoothing)
    return Trainer(model, training_texts(recipe, data), loss, recipe.training, recipe.seeds, computer)


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


class Classification(Labelling[ClassificationRecipe, PreparedLabelled]):
    """Texts in, their classes out."""

    def source(self, recipe: ClassificationRecipe) -> LabelledSource:
        """Tables, or the hub."""
        return LabelledSource(recipe.data)

    def tokenizer_names(self, recipe: ClassificationRecipe) -> tuple[str, ...]:
        """Of the only one."""
        return (SIDE,)

    def prepare(self, recipe: ClassificationRecipe, tokenizers: tuple[Tokenizer, ...], say: Say) -> PreparedLabelled:
        """Labelled texts, and their pieces."""
        return prepare_texts(recipe, tokenizers[0] if tokenizers else None, say)

    def resolved(self, recipe: ClassificationRecipe, data: PreparedLabelled) -> ClassificationRecipe:
        """The recipe with the classes' names."""
        known = recipe.data.model_copy(update={"classes": data.corpus.train.names})
        return recipe.model_copy(update={"data": known})

    def build(self, recipe: ClassificationRecipe, tokenizers: Sequence[Tokenizer]) -> Classifier:
        """An encoder and a head."""
        return build_classifier(recipe, tokenizers[0].size)

    def examples(self, recipe: ClassificationRecipe, data: PreparedLabelled, model: Classifier) -> LabelledTexts:
        """Labelled texts, as far as they are read."""
        longest, wanted = model.encoder.longest, recipe.batches.max_length
        check_positions(longest, wanted, f"set model.max_positions={wanted}, or batches.max_length={longest}")
        return training_texts(recipe, data)

    def validated(self, course: TextCourse) -> Iterator[tuple[Examples[LabelledBatch], Int[np.ndarray, " examples"]]]:
        """All validation texts, and some training texts, none thinned out."""
        recipe, corpus = course.recipe, course.data.corpus
        for part, pieces in ((corpus.validation, course.data.validation), (corpus.train, course.data.train)):
            texts = LabelledTexts(pieces, part.labels, recipe.batches, begins(recipe))
            texts = texts.only(looked_at(len(texts), recipe.data.seed)) if part is corpus.train else texts
            yield texts, texts.labels

    def counts(self, course: TextCourse) -> dict[str, int]:
        """Texts by split, and those of which only the beginning is read."""
        by_split = {name: len(part) for name, part in course.data.corpus.parts().items()}
        return by_split | {"truncated": training_texts(course.recipe, course.data).truncated}

    def introduce(self, course: TextCourse, say: Say) -> None:
        """Tells how many texts each class has, how long they are, and what batches hold."""
        recipe, corpus, texts = course.recipe, course.data.corpus, training_texts(course.recipe, course.data)
        limit, cut = recipe.batches.max_length, texts.truncated
        for line in class_lines(counts_of(corpus)):
            say(line)
        say("training texts by length in pieces")
        for line in length_bars(texts.whole_lengths, limit):
            say(line)
        share = 100 * cut / len(texts)
        say(f"{cut:,} of them ({share:.1f} %) are longer than batches.max_length ({limit}): their ends are not read")
        padding = texts.padding_share(recipe.seeds.data)
        say(f"{course.data.tokenizer.size:,} pieces · {100 * padding:.1f} % of a batch's positions are padding")

    def begin(self, course: TextCourse, folder: Path, log: RunLog) -> None:
        """Draws how long the training texts are and how many each class has."""
        lengths = training_texts(course.recipe, course.data).whole_lengths
        pictures = {
            # as batches.max_length counts them, with the special pieces
            "lengths": lengths_picture(lengths, course.recipe.batches.max_length),
            "classes": class_counts_picture(course.data.corpus.train.counts()),
        }
        draw(course, folder, log, "data", pictures)

    def probabilities(self, run: TextRun, lines: Sequence[str]) -> Float[np.ndarray, "texts classes"]:
        """The probability of each class, for each text; what stands beside a text changes nothing."""
        rows = run.tokenizers[0].encode_batch(lines) if lines else []
        pieces = Lists(pyarrow.chunked_array([rows], type=pyarrow.list_(pyarrow.int32())))
        nothing = np.zeros(len(lines), dtype=np.int64)
        return class_probabilities(run.model, LabelledTexts(pieces, nothing, run.recipe.batches, begins(run.recipe)))

    def evaluate(self, run: TextRun, part: Labelled, scoring: Scoring, meter: Meter) -> TextEvaluation:
        """Classifies texts and scores the answers."""
        pieces = encode_texts(part.texts, run.tokenizers[0])
        texts = LabelledTexts(pieces, part.labels, run.recipe.batches, begins(run.recipe))
        with meter("classifying", len(texts)) as advance:
            answers = Answers(part.names, part.labels, class_probabilities(run.model, texts, advance))
        right, wrong = chosen_examples(part.labels, answers.predicted)
        return TextEvaluation(
            **scored(run, scoring.split, answers, self.source(run.recipe).digest(part)),
            examples=[_explained(run, part, texts, answers, row) for row in (*right, *wrong)],
            truncated=texts.truncated,
        )


TASK = Classification()


def counts_of(corpus: Corpus[Labelled]) -> dict[str, dict[str, int]]:
    """Texts of each class, by split."""
    return {name: part.counts() for name, part in corpus.parts().items()}


def length_bars(lengths: np.ndarray, max_length: int) -> list[str]:
    """Texts by their lengths in pieces, as lines with bars; the one in which texts are cut off is marked."""
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


def _explained(run: TextRun, part: Labelled, texts: LabelledTexts, answers: Answers, row: int) -> Explained:
    """An answer with what each word of the text weighed for it."""
    said = answers.of(row)
    batch = texts.collate(np.array([row]), 0).to(run.computer.device)
    length = int(batch.source_valid.sum())
    source, valid = batch.source[:, :length], batch.source_valid[:, :length]
    with torch.no_grad():
        chosen = run.model(source, valid).argmax(dim=1)
    looked, method = weighed(run.model, source, valid, chosen)
    words, weights = joined_to_words(run.tokenizers[0], source[0].tolist(), looked[0].cpu().double().tolist())
    title = f"row {row + 1}: {said.predicted} {answers.probabilities[row].max():.3f}, it is {said.truth} ({method})"
    reading = Reading(method, words, weights, title)
    return Explained(row, said.truth, said.predicted, said.probabilities, part.texts[row]["text"], reading)
