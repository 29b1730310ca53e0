"""Language-model task: a decoder that predicts the next token of a text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from s2s.data.phrasebook.likelihood import grammar_nats
from s2s.data.tokenized import PreparedTexts, RaggedArray, encode_texts, tokenize_corpus
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.models.language_model import LanguageModel
from s2s.recipe.installed import build_language_model
from s2s.tasks.base import EvaluationOptions, LoadedModel, PrintFn, Task, TrainContext, check_positions, log_figures
from s2s.tasks.figures import lengths_picture
from s2s.tasks.language_model.data import DocumentSource, PackedTexts, TextBatch, Windows, built_in_size, windows_of
from s2s.tasks.language_model.generation import Sampling, Writing, texts_after
from s2s.tasks.language_model.recipe import LanguageRecipe
from s2s.tasks.language_model.scoring import LanguageScores, Size, bits_per_byte, measure, nats_of, size_of, spans
from s2s.tasks.source_use import feed_stepwise
from s2s.training.device import derive_seed
from s2s.training.logger import RunLog
from s2s.training.loss import cross_entropy
from s2s.training.progress import ProgressBar
from s2s.training.trainer import Loss
from s2s.training.validation import Validation

if TYPE_CHECKING:
    import datasets

    from s2s.evaluation.signs import Diagnostics
    from s2s.inspection.inspection import Inspection, InspectionRequest

LanguageRun = LoadedModel[LanguageRecipe, LanguageModel]
LanguageData = PreparedTexts["datasets.Dataset"]
LanguageContext = TrainContext[LanguageRecipe, LanguageData, LanguageModel]

# Length of prompts and texts that are generated at a validation, in tokens.
_PROMPT, _WRITTEN = 8, 48


class LanguageModelTask(Task[LanguageRecipe, LanguageData, LanguageModel]):
    """Language-model task: predict the next token of a document."""

    perplexity: ClassVar[bool] = True

    def source(self, recipe: LanguageRecipe) -> DocumentSource:
        return DocumentSource(recipe.data)

    def prepare(self, recipe: LanguageRecipe, tokenizers: tuple[Tokenizer, ...], print_fn: PrintFn) -> LanguageData:
        corpus = self.source(recipe).load()
        if corpus.note:
            print_fn(corpus.note)
        return tokenize_corpus(corpus, recipe.tokenizer, tokenizers)

    def build(self, recipe: LanguageRecipe, tokenizers: Sequence[Tokenizer]) -> LanguageModel:
        torch.default_generator.manual_seed(derive_seed(recipe.seeds.initialization))
        return build_language_model(recipe.model, tokenizers[0].size)

    def examples(self, recipe: LanguageRecipe, data: LanguageData, model: LanguageModel) -> PackedTexts:
        _check_positions(model.decoder.max_positions, recipe)
        examples = PackedTexts(data.train, recipe.batches, recipe.training.tokens_per_update)
        if not len(examples):
            raise UserError("the training texts are empty", where="data.train", remedy="look at data.text")
        return examples

    def loss(self, recipe: LanguageRecipe) -> Loss[LanguageModel, TextBatch]:
        apart = not recipe.batches.across_documents

        def loss(model: LanguageModel, batch: TextBatch) -> tuple[Tensor, Tensor]:
            return cross_entropy(model(batch.read, apart), model.projection.weight, batch.following, batch.valid)

        return loss

    def log_dataset_summary(self, train_context: LanguageContext, print_fn: PrintFn) -> None:
        documents, lengths = len(train_context.data.corpus.train), train_context.data.train.lengths
        across = (
            "attention across documents" if train_context.recipe.batches.across_documents else "each document separate"
        )
        print_fn(
            f"{documents:,} documents of {int(lengths.sum()) + len(lengths):,} tokens with their ends, in "
            f"{len(train_context.trainer.examples):,} rows of {train_context.recipe.batches.length}, {across} · "
            f"vocabulary: {train_context.data.tokenizer.size:,} tokens"
        )

    def on_train_start(self, train_context: LanguageContext, folder: Path, log: RunLog) -> None:
        log_figures(
            train_context, folder, log, "data", {"lengths": lengths_picture(train_context.data.train.lengths + 1)}
        )

    def validate(self, train_context: LanguageContext, log: RunLog) -> Validation:
        data, recipe = train_context.data, train_context.recipe
        found = measure(train_context.model, windows_of(recipe, data.validation), train_context.trainer.device_context)
        size = _size(data.corpus.validation, data.validation, data.tokenizer)
        scores = {"loss": found.loss, "bits_per_byte": bits_per_byte(float(found.documents.sum()), size.bytes)}
        log.log_validation(train_context.trainer.update, scores)
        if train_context.trainer.device_context.distributed.is_main_process and (
            samples := self._samples(train_context)
        ):
            log.add_texts("written", samples, train_context.trainer.update)
        value = scores[recipe.validation.metric]
        return Validation(train_context.trainer.update, value, found.loss, lower_is_better=True)

    def _samples(self, train_context: LanguageContext) -> list[str]:
        """Generate texts: one from the beginning, others from prompts of validation texts."""
        count, tokens = train_context.recipe.validation.samples, train_context.data.validation
        some = tokens.rows(np.arange(min(max(0, count - 1), len(tokens.lengths))))
        prompts = [[], *([int(piece) for piece in text[:_PROMPT]] for text in some)][:count]
        longest = train_context.model.decoder.max_positions
        most = _WRITTEN if longest is None else min(_WRITTEN, longest - _PROMPT)
        asked = Writing(Sampling(), max(0, most))
        model, device_context = train_context.model, train_context.trainer.device_context
        return [
            texts_after(model, train_context.data.tokenizer, prompt, asked, device_context, number)[0]
            for number, prompt in enumerate(prompts)
        ]

    def examples_for_inference(self, run: LanguageRun, part: "datasets.Dataset") -> Windows:
        return windows_of(run.recipe, encode_texts(part, run.tokenizers[0]))

    def evaluate(
        self, run: LanguageRun, part: "datasets.Dataset", scoring: EvaluationOptions, progress_bar: ProgressBar
    ) -> LanguageScores:
        recipe, tokenizer = run.recipe, run.tokenizers[0]
        _check_positions(run.model.decoder.max_positions, recipe)
        tokens = encode_texts(part, tokenizer)
        windows = windows_of(recipe, tokens)
        with progress_bar("measuring", len(windows)) as advance:
            found = measure(run.model, windows, run.device_context, advance)
        size, grammar = _size(part, tokens, tokenizer), None
        if recipe.data.corpus == "built-in":
            # Estimate of the entropy of the grammar, in nats per sentence.
            nats = grammar_nats(scoring.split, built_in_size(recipe.data, scoring.split), recipe.data.seed)
            grammar = float(np.mean(nats))
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
            grammar=grammar,
        )

    def log_probs(self, model: LanguageModel, batch: TextBatch) -> Float[Tensor, "places one"]:
        """Return the log-probability (positions, 1) of the token that follows each position.

        The log-probabilities of the whole vocabulary at all positions would not fit into memory.
        """
        return -nats_of(model, model(batch.read)[batch.valid], batch.following[batch.valid])[:, None]

    def incremental_log_probs(self, model: LanguageModel, batch: TextBatch) -> Float[Tensor, "places one"]:
        states = feed_stepwise(model.decoder, model.decoder.start(len(batch.read), separate_documents=True), batch.read)
        return -nats_of(model, states[batch.valid], batch.following[batch.valid])[:, None]

    def diagnose(
        self, run: LanguageRun, part: "datasets.Dataset", rows: Int[np.ndarray, " documents"], progress_bar: ProgressBar
    ) -> "Diagnostics":
        from s2s.tasks.language_model.diagnosis import symptoms

        return symptoms(run, part, rows, progress_bar)

    def inspect(self, run: LanguageRun, focus: "InspectionRequest") -> "Inspection":
        from s2s.tasks.language_model.diagnosis import inspect_inputs

        return inspect_inputs(run, focus)


def _check_positions(longest: int | None, recipe: LanguageRecipe) -> None:
    for key, tokens in (("batches.length", recipe.batches.length), ("scoring.context", recipe.context)):
        check_positions(longest, tokens, f"set model.max_positions={tokens} or higher", key)


def _size(part: "datasets.Dataset", tokens: RaggedArray, tokenizer: Tokenizer) -> Size:
    return size_of(part["text"], tokens.rows(np.arange(len(part))), tokenizer)


TASK = LanguageModelTask()
