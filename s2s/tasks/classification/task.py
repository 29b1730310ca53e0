"""Text classification task: a head over an encoder."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Int

from s2s.data.dataset import LabelledBatch
from s2s.data.tokenized import RaggedArray, encode_texts
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.errors import Refuse, UserError
from s2s.models.base import Classifier
from s2s.nn.pooling import FIRST_TOKEN_POOLING
from s2s.tasks.base import (
    SHOWN_EXAMPLES,
    LoadedModel,
    PrintFn,
    TrainContext,
    build_encoder,
    check_positions,
    short_text,
)
from s2s.tasks.classification.data import Labelled, LabelledSource, LabelledTexts, PreparedLabelled, prepare_texts
from s2s.tasks.classification.recipe import ClassificationRecipe
from s2s.tasks.classification_base import ClassificationEvaluation, ClassificationTask, Prediction, with_class_weights
from s2s.tasks.figures import lengths_picture, words_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from s2s.evaluation.signs import Finding
    from s2s.inspection.classifier import Read
    from s2s.inspection.saliency import Reading

# Width of a terminal of 100 columns, less the indentation.
_SHOWN = 96
_BARS = 10
_BAR = 30

TextRun = LoadedModel[ClassificationRecipe, Classifier]
TextContext = TrainContext[ClassificationRecipe, PreparedLabelled, Classifier]


def build_classifier(recipe: ClassificationRecipe, tokens: int) -> Classifier:
    """Build the recipe's classifier, initialized with the recipe's seed, on the CPU."""
    encoder, width = build_encoder(recipe, tokens)
    return Classifier(encoder, width, len(recipe.data.classes or ()), recipe.head.pooling, recipe.head.dropout)


def starts_with_bos(recipe: ClassificationRecipe) -> bool:
    """Return True if texts begin with `BOS`, whose state represents the whole text."""
    return recipe.head.pooling in FIRST_TOKEN_POOLING


def _training_texts(recipe: ClassificationRecipe, data: PreparedLabelled) -> LabelledTexts:
    """Return the training examples of a classifier, with token dropout."""
    return LabelledTexts(
        data.train,
        data.corpus.train.labels,
        recipe.batches,
        starts_with_bos(recipe),
        recipe.training.examples_per_update,
        recipe.training.word_dropout,
        recipe.training.balanced_sampling,
    )


@dataclass(frozen=True)
class SaliencyExample(Prediction):
    """Prediction for a text, with the weight of each word."""

    text: str
    reading: "Reading"

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
        return f"{super().__str__()}\n    {shown}\n    {self.reading.method}: {self.reading}"


@dataclass(frozen=True, repr=False)
class TextEvaluation(ClassificationEvaluation):
    """Scores and predictions of a text classifier on a split.

    Attributes:
        examples: Some correct and some incorrect predictions.
        truncated: Number of texts longer than `batches.max_length`, of which only the beginning was read.
    """

    noun: ClassVar[str] = "texts"

    examples: Sequence[SaliencyExample]
    truncated: int

    def remarks(self) -> str:
        return f", {self.truncated:,} of them truncated to batches.max_length" if self.truncated else ""

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        yield from super().pictures()
        yield "words", words_picture([example.reading for example in self.examples])


class TextClassificationTask(ClassificationTask[ClassificationRecipe, PreparedLabelled]):
    """Text classification task: a class for each text."""

    evaluation = TextEvaluation

    def source(self, recipe: ClassificationRecipe) -> LabelledSource:
        return LabelledSource(recipe.data)

    def prepare(
        self, recipe: ClassificationRecipe, tokenizers: tuple[Tokenizer, ...], print_fn: PrintFn
    ) -> PreparedLabelled:
        return prepare_texts(recipe, tokenizers[0] if tokenizers else None, print_fn)

    def finalize_config(self, recipe: ClassificationRecipe, data: PreparedLabelled) -> ClassificationRecipe:
        """Return the recipe with the names and weights of the classes."""
        known = recipe.data.model_copy(update={"classes": data.corpus.train.names})
        training = with_class_weights(recipe.training, data.corpus.train.counts())
        return recipe.model_copy(update={"data": known, "training": training})

    def build(self, recipe: ClassificationRecipe, tokenizers: Sequence[Tokenizer]) -> Classifier:
        return build_classifier(recipe, tokenizers[0].size)

    def examples(self, recipe: ClassificationRecipe, data: PreparedLabelled, model: Classifier) -> LabelledTexts:
        longest, wanted = model.encoder.max_positions, recipe.batches.max_length
        check_positions(longest, wanted, f"set model.max_positions={wanted}, or batches.max_length={longest}")
        return _training_texts(recipe, data)

    def training_examples_for_inference(self, train_context: TextContext) -> tuple[LabelledTexts, LabelledTexts]:
        data, corpus = train_context.data, train_context.data.corpus
        return (
            _inference_texts(train_context.recipe, data.train, corpus.train.labels),
            _inference_texts(train_context.recipe, data.validation, corpus.validation.labels),
        )

    def examples_for_inference(self, run: TextRun, part: Labelled) -> LabelledTexts:
        return _inference_texts(run.recipe, encode_texts(part.texts, run.tokenizers[0]), part.labels)

    def parse_inputs(self, run: TextRun, lines: Sequence[str], refuse: Refuse | None = None) -> LabelledTexts:
        """Tokenize the lines; every line is a valid text, so none is refused."""
        tokens = RaggedArray.from_rows(run.tokenizers[0].encode_batch(lines) if lines else [])
        return _inference_texts(run.recipe, tokens, np.zeros(len(lines), dtype=np.int64))

    def example(self, recipe: ClassificationRecipe, part: Labelled) -> tuple[str, ...]:
        return (short_text(part.texts[:SHOWN_EXAMPLES]["text"]),)

    def describe_example(self, part: Labelled, row: int) -> str:
        return " ".join(part.texts[row]["text"].split())

    def input_warnings(self, run: TextRun, part: Labelled) -> "list[Finding]":
        from s2s.evaluation.signs import unknown

        tokens = encode_texts(part.texts, run.tokenizers[0])
        return [unknown(np.concatenate(tokens.rows(np.arange(len(part)))), UNK, None)]

    def dataset_statistics(self, train_context: TextContext) -> Iterator[str]:
        """Yield a histogram of text lengths, the truncation and the share of padding."""
        recipe, texts = train_context.recipe, _training_texts(train_context.recipe, train_context.data)
        limit, cut = recipe.batches.max_length, texts.truncated or 0
        yield "training texts by length in tokens"
        yield from _length_bars(texts.whole_lengths, limit)
        share = 100 * cut / len(texts)
        yield f"{cut:,} of them ({share:.1f} %) are truncated to batches.max_length ({limit})"
        padding, size = 100 * texts.padding_share(recipe.seeds.data), train_context.data.tokenizer.size
        yield f"vocabulary: {size:,} tokens · padding: {padding:.1f} % of the positions of a batch"

    def initial_figures(self, train_context: TextContext) -> "dict[str, Figure]":
        """Draw text lengths in tokens, as `batches.max_length` counts them."""
        lengths = _training_texts(train_context.recipe, train_context.data).whole_lengths
        return {"lengths": lengths_picture(lengths, train_context.recipe.batches.max_length)}

    def inspect_example(self, run: TextRun, batch: LabelledBatch, text: str) -> "Read":
        """Prepare a text for `s2s inspect`: its tokens without padding, and its words."""
        from s2s.inspection.classifier import Read
        from s2s.inspection.positions import without_words
        from s2s.inspection.walk import Source
        from s2s.inspection.words import words_of

        length, tokenizer = int(batch.source_valid.sum()), run.tokenizers[0]
        source, valid = batch.source[:, :length], batch.source_valid[:, :length]
        ids = source[0].tolist()
        if length == 1 + starts_with_bos(run.recipe):
            raise UserError("the text is empty", remedy="give one in quotes")
        with torch.no_grad():
            vectors = run.model.encoder.embedding(source)
        baseline = without_words(run.model.encoder.embedding, vectors)
        known = Source(source, valid, tokenizer.tokens(ids), words_of(tokenizer, ids))
        return Read(known, tokenizer.decode(ids), baseline)

    def explain_prediction(
        self, run: TextRun, part: Labelled, batch: LabelledBatch, said: Prediction
    ) -> SaliencyExample:
        """Add the weight of each word to a prediction."""
        from s2s.inspection.saliency import Reading, weighed
        from s2s.inspection.words import merge_to_words

        length = int(batch.source_valid.sum())
        source, valid = batch.source[:, :length], batch.source_valid[:, :length]
        looked, method = weighed(run.model, source, valid, part.names.index(said.predicted))
        words, weights = merge_to_words(run.tokenizers[0], source[0].tolist(), looked[0].cpu().double().tolist())
        share = said.probabilities[said.predicted]
        kind = "attention" if method == "attention" else "gradient x input"
        title = f"row {said.row + 1}: predicted {said.predicted} ({share:.3f}), true class {said.truth}; {kind}"
        text, reading = part.texts[said.row]["text"], Reading(method, words, weights, title)
        return SaliencyExample(said.row, said.truth, said.predicted, said.probabilities, text, reading)


TASK = TextClassificationTask()


def _inference_texts(
    recipe: ClassificationRecipe, tokens: RaggedArray, labels: Int[np.ndarray, " texts"]
) -> LabelledTexts:
    """Encode texts for inference (no token dropout)."""
    return LabelledTexts(tokens, labels, recipe.batches, starts_with_bos(recipe))


def _length_bars(lengths: np.ndarray, max_length: int) -> list[str]:
    """Draw a histogram of text lengths with characters."""
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
