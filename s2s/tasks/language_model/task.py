"""Language models: from texts to a decoder that goes on with them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.data.encoding import Lists, PreparedTexts, cut, encode_texts
from s2s.data.phrasebook.likelihood import grammar_nats
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.evaluation.signs import Symptoms
from s2s.interpretability.inspection import Focus, Inspection
from s2s.models.language_model import LanguageModel
from s2s.recipe.installed import build_language_model
from s2s.tasks.contract import Course, Loaded, Say, Scoring, Task, check_positions, draw
from s2s.tasks.language_model.data import DocumentSource, PackedTexts, TextBatch, Windows, built_in_size, windows_of
from s2s.tasks.language_model.generation import Sampling, Writing, texts_after
from s2s.tasks.language_model.insides import insides
from s2s.tasks.language_model.recipe import LanguageRecipe
from s2s.tasks.language_model.scoring import LanguageScores, Size, bits_per_byte, measure, nats_of, size_of, spans
from s2s.tasks.language_model.symptoms import symptoms
from s2s.tasks.pictures import lengths_picture
from s2s.tasks.writing import by_steps
from s2s.training.devices import seed_for
from s2s.training.logger import RunLog
from s2s.training.loss import cross_entropy
from s2s.training.progress import Meter
from s2s.training.trainer import Loss
from s2s.training.validation import Validation

if TYPE_CHECKING:
    import datasets

LanguageRun = Loaded[LanguageRecipe, LanguageModel]
LanguageData = PreparedTexts["datasets.Dataset"]
LanguageCourse = Course[LanguageRecipe, LanguageData, LanguageModel]

# of the texts that are written at a validation
_PROMPT, _WRITTEN = 8, 48


class LanguageModelling(Task[LanguageRecipe, LanguageData, LanguageModel]):
    """Texts in, what comes next out."""

    perplexity: ClassVar[bool] = True

    def source(self, recipe: LanguageRecipe) -> DocumentSource:
        return DocumentSource(recipe.data)

    def prepare(self, recipe: LanguageRecipe, tokenizers: tuple[Tokenizer, ...], say: Say) -> LanguageData:
        corpus = self.source(recipe).load()
        known = tokenizers[0] if tokenizers else None
        return PreparedTexts(corpus, *cut(corpus.train, corpus.validation, recipe.tokenizer, known))

    def build(self, recipe: LanguageRecipe, tokenizers: Sequence[Tokenizer]) -> LanguageModel:
        torch.default_generator.manual_seed(seed_for(recipe.seeds.initialization))
        return build_language_model(recipe.model, tokenizers[0].size)

    def build_smallest(self, recipe: LanguageRecipe) -> nn.Module:
        return build_language_model(recipe.model, 5)

    def examples(self, recipe: LanguageRecipe, data: LanguageData, model: LanguageModel) -> PackedTexts:
        _check_positions(model.decoder.longest, recipe)
        examples = PackedTexts(data.train, recipe.batches, recipe.training.tokens_per_update)
        if not len(examples):
            raise UserError("the training texts are empty", where="data.train", remedy="look at data.text")
        return examples

    def loss(self, recipe: LanguageRecipe) -> Loss[LanguageModel, TextBatch]:
        apart = not recipe.batches.across_documents

        def loss(model: LanguageModel, batch: TextBatch) -> tuple[Tensor, Tensor]:
            """The cross-entropy of what follows, in nats: to learn from and to report, the same."""
            return cross_entropy(model(batch.read, apart), model.projection.weight, batch.following, batch.valid)

        return loss

    def counts(self, course: LanguageCourse) -> dict[str, int]:
        return {"test": 0, **super().counts(course), "rows": len(course.trainer.examples)}

    def introduce(self, course: LanguageCourse, say: Say) -> None:
        counts, lengths = self.counts(course), course.data.train.lengths
        across = "read across documents" if course.recipe.batches.across_documents else "each document by itself"
        say(
            f"{counts['train']:,} documents of {int(lengths.sum()) + len(lengths):,} pieces, ends counted, in "
            f"{counts['rows']:,} rows of {course.recipe.batches.length}, {across} · "
            f"{course.data.tokenizer.size:,} pieces known"
        )

    def begin(self, course: LanguageCourse, folder: Path, log: RunLog) -> None:
        draw(course, folder, log, "data", {"lengths": lengths_picture(course.data.train.lengths + 1)})

    def validate(self, course: LanguageCourse, log: RunLog) -> Validation:
        data, recipe = course.data, course.recipe
        found = measure(course.model, windows_of(recipe, data.validation), course.trainer.computer)
        size = _size(data.corpus.validation, data.validation, data.tokenizer)
        scores = {"loss": found.loss, "bits_per_byte": bits_per_byte(float(found.documents.sum()), size.bytes)}
        log.validation(course.trainer.update, scores)
        if course.trainer.computer.ranks.leads and (samples := self._samples(course)):
            log.texts("written", samples, course.trainer.update)
        return Validation(course.trainer.update, -scores[recipe.validation.metric], found.loss)

    def _samples(self, course: LanguageCourse) -> list[str]:
        """Texts written from nothing, and from the beginnings of validation texts."""
        count, pieces = course.recipe.validation.samples, course.data.validation
        some = pieces.rows(np.arange(min(max(0, count - 1), len(pieces.lengths))))
        prompts = [[], *([int(piece) for piece in text[:_PROMPT]] for text in some)][:count]
        longest = course.model.decoder.longest
        most = _WRITTEN if longest is None else min(_WRITTEN, longest - _PROMPT)
        asked = Writing(Sampling(), max(0, most))
        model, computer = course.model, course.trainer.computer
        return [
            texts_after(model, course.data.tokenizer, prompt, asked, computer, number)[0]
            for number, prompt in enumerate(prompts)
        ]

    def read(self, run: LanguageRun, part: "datasets.Dataset") -> Windows:
        return windows_of(run.recipe, encode_texts(part, run.tokenizers[0]))

    def evaluate(self, run: LanguageRun, part: "datasets.Dataset", scoring: Scoring, meter: Meter) -> LanguageScores:
        recipe, tokenizer = run.recipe, run.tokenizers[0]
        _check_positions(run.model.decoder.longest, recipe)
        pieces = encode_texts(part, tokenizer)
        windows = windows_of(recipe, pieces)
        with meter("measuring", len(windows)) as advance:
            found = measure(run.model, windows, run.computer, advance)
        size = _size(part, pieces, tokenizer)
        return LanguageScores(
            str(run.path),
            run.checkpoint.name,
            scoring.split,
            documents=len(part),
            pieces=int(found.counts.sum()),
            bytes=size.bytes,
            lossy=size.lossy,
            nats=found.documents.tolist(),
            sizes=list(size.documents),
            digest=self.source(recipe).digest(part),
            context=recipe.context,
            stride=recipe.stride,
            spans=spans(found),
            grammar=_grammar(recipe, scoring.split),
        )

    def log_probabilities(self, model: LanguageModel, batch: TextBatch) -> Float[Tensor, "places one"]:
        """Of the piece that follows each place: those of all pieces would not fit into memory at many places."""
        return -nats_of(model, model(batch.read)[batch.valid], batch.following[batch.valid])[:, None]

    def stepped(self, model: LanguageModel, batch: TextBatch) -> Float[Tensor, "places one"]:
        states = by_steps(model.decoder, model.decoder.start(len(batch.read), apart=True), batch.read)
        return -nats_of(model, states[batch.valid], batch.following[batch.valid])[:, None]

    def symptoms(
        self, run: LanguageRun, part: "datasets.Dataset", rows: Int[np.ndarray, " documents"], meter: Meter
    ) -> Symptoms:
        return symptoms(run, part, rows, meter)

    def inspect(self, run: LanguageRun, focus: Focus) -> Inspection:
        return insides(run, focus)


def _check_positions(longest: int | None, recipe: LanguageRecipe) -> None:
    for key, pieces in (("batches.length", recipe.batches.length), ("scoring.context", recipe.context)):
        check_positions(longest, pieces, f"set model.max_positions={pieces} or higher", key)


def _size(part: "datasets.Dataset", pieces: Lists, tokenizer: Tokenizer) -> Size:
    return size_of(part["text"], pieces.rows(np.arange(len(part))), tokenizer)


def _grammar(recipe: LanguageRecipe, split: str) -> float | None:
    """Nats per sentence that the built-in grammar needs for a split, about; None of other texts."""
    if recipe.data.corpus != "built-in":
        return None
    return float(np.mean(grammar_nats(split, built_in_size(recipe.data, split), recipe.data.seed)))


TASK = LanguageModelling()
