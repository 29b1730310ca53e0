"""Captioning task: an encoder of images and a decoder of captions."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from s2s.data.batches import ParallelBatch
from s2s.data.sources import Corpus
from s2s.data.tokenized import RaggedArray, learned
from s2s.data.tokenizers import Tokenizer
from s2s.decoding.generate import Generator, Translation, describe_collapse
from s2s.errors import UserError, counted_items
from s2s.evaluation.metrics import score
from s2s.evaluation.tokenization import check_tokenizer, choose_tokenization, describe_tokenizer
from s2s.models.base import Seq2Seq
from s2s.tasks.base import (
    EvaluationOptions,
    LoadedModel,
    PrintFn,
    Task,
    TrainContext,
    check_positions,
    log_figures,
)
from s2s.tasks.captioning.data import (
    Captioned,
    CaptionedImages,
    CaptionSource,
    PreparedCaptions,
    all_captions_in_order,
    longest_of,
    positions_of,
)
from s2s.tasks.captioning.evaluation import METRICS, CaptionEvaluation, evaluate_images
from s2s.tasks.captioning.figures import captions_picture, looks_picture
from s2s.tasks.captioning.generation import build_model, looks, write
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.image_files import statistics_for
from s2s.tasks.protocols import RescoredHypotheses
from s2s.tasks.seq2seq import PLAIN_LOSS, sequence_loss, too_long_for_decoding
from s2s.tasks.text_generation import TextGeneration
from s2s.training import figures
from s2s.training.logger import RunLog, Sample
from s2s.training.progress import ProgressBar
from s2s.training.trainer import Loss, mean_loss
from s2s.training.validation import LOWER_IS_BETTER, Validation

if TYPE_CHECKING:
    from s2s.evaluation.signs import Diagnostics
    from s2s.inspection.inspection import Inspection, InspectionRequest

_SAMPLES = 5
_DRAWN, _LOOKED_AT = 18, 2

CaptionContext = TrainContext[CaptionRecipe, PreparedCaptions, Seq2Seq]
CaptionRun = LoadedModel[CaptionRecipe, Seq2Seq]


class CaptioningTask(TextGeneration, Task[CaptionRecipe, PreparedCaptions, Seq2Seq]):
    """Captioning task: a caption for each image."""

    def source(self, recipe: CaptionRecipe) -> CaptionSource:
        return CaptionSource(recipe.data)

    def check(self, recipe: CaptionRecipe) -> None:
        """Refuse a BLEU tokenizer that is not installed."""
        check_tokenizer(recipe.validation.bleu_tokenizer, "validation.bleu_tokenizer")

    def prepare(self, recipe: CaptionRecipe, tokenizers: tuple[Tokenizer, ...], print_fn: PrintFn) -> PreparedCaptions:
        corpus: Corpus[Captioned] = CaptionSource(recipe.data).load()
        if corpus.note:
            print_fn(corpus.note)
        train, validation = (list(part.texts()) for part in (corpus.train, corpus.validation))
        tokenizer = tokenizers[0] if tokenizers else learned(train, recipe.tokenizer)
        return PreparedCaptions(
            corpus, tokenizer, *(RaggedArray.from_rows(tokenizer.encode_batch(p)) for p in (train, validation))
        )

    def finalize_config(self, recipe: CaptionRecipe, data: PreparedCaptions) -> CaptionRecipe:
        """Return the recipe with mean and standard deviation of the pixels."""
        known = statistics_for(recipe.data, data.corpus.train.pixels)
        return recipe.model_copy(update={"data": recipe.data.model_copy(update=known)})

    def build(self, recipe: CaptionRecipe, tokenizers: Sequence[Tokenizer]) -> Seq2Seq:
        return build_model(recipe, tokenizers[0].size)

    def examples(self, recipe: CaptionRecipe, data: PreparedCaptions, model: Seq2Seq) -> CaptionedImages:
        longest = recipe.batches.max_length
        check_positions(model.decoder.max_positions, longest, f"set model.max_positions={longest} or higher")
        asked, known = longest_of(data.validation), model.decoder.max_positions
        if known is not None and known < asked:
            what = f"the model has {known} positions, but the longest validation caption has {asked} tokens"
            raise UserError(what, "model.max_positions", f"set model.max_positions={asked} or higher")
        return CaptionedImages(data.corpus.train, data.train, positions_of(recipe), recipe.batches.captions, longest)

    def loss(self, recipe: CaptionRecipe) -> Loss[Seq2Seq, ParallelBatch]:
        return sequence_loss(recipe.training)

    def examples_for_inference(self, run: CaptionRun, part: Captioned) -> CaptionedImages:
        tokens = RaggedArray.from_rows(run.tokenizers[0].encode_batch(list(part.texts())))
        return all_captions_in_order(run.recipe, part, tokens, run.model.decoder.max_positions)

    def score_tokens(self, run: CaptionRun, batch: ParallelBatch) -> RescoredHypotheses:
        from s2s.tasks.source_use import rescore_hypotheses

        decoding = run.recipe.decoding.model_copy(update={"precision": "fp32"})
        writer = Generator(run.model, run.tokenizers[0], decoding, decoding.beam)
        limits = np.full(len(batch.source), decoding.max_length)
        found = writer.hypotheses(batch.source, batch.source_valid, limits)
        return rescore_hypotheses(run.model, batch.source, batch.source_valid, found)

    def diagnose(
        self, run: CaptionRun, part: Captioned, rows: Int[np.ndarray, " images"], progress_bar: ProgressBar
    ) -> "Diagnostics":
        from s2s.tasks.captioning.diagnosis import symptoms

        return symptoms(run, part, rows, progress_bar)

    def log_dataset_summary(self, train_context: CaptionContext, print_fn: PrintFn) -> None:
        recipe, tokenizer = train_context.recipe, train_context.data.tokenizer
        data, stem = recipe.data, recipe.stem
        for name, part in train_context.data.corpus.splits().items():
            captions = sum(map(len, part.captions))
            print_fn(f"{name}: {len(part):,} images, {captions:,} captions")
            if name == "train":
                continue
            tokens = np.array([len(row) for row in tokenizer.encode_batch(list(part.texts()))])
            allowed, remedy = recipe.decoding.max_length, f"decoding.max_length={tokens.max(initial=0)}"
            allowed = np.full(len(tokens), allowed)
            if advice := too_long_for_decoding(name, tokens, allowed, train_context.model, remedy):
                print_fn(advice)
        references = train_context.data.corpus.validation.captions
        tokenization = choose_tokenization(references, recipe.validation.bleu_tokenizer)
        if note := describe_tokenizer(tokenization.tokenizer, references):
            print_fn(note)
        colour = "grey" if data.channels == 1 else "colour"
        print_fn(
            f"{data.size} x {data.size} pixels, {colour} · {stem.kind} of {stem.size} x {stem.size}: "
            f"{positions_of(recipe)} vectors per image · vocabulary: {tokenizer.size:,} tokens"
        )
        if left_out := train_context.trainer.examples.num_skipped:
            limit = recipe.batches.max_length
            captions, are = counted_items(left_out, "training captions"), "is" if left_out == 1 else "are"
            print_fn(f"{captions} {are} longer than batches.max_length ({limit}): left out")

    def on_train_start(self, train_context: CaptionContext, folder: Path, log: RunLog) -> None:
        """Draw some training images with their captions."""
        some = train_context.data.corpus.train.first(_DRAWN)
        captions = [first for first, *_ in some.captions]
        picture = captions_picture(some.pixels, captions, "training images, each with one of its captions")
        log_figures(train_context, folder, log, "data", {"training": picture})

    def validate(self, train_context: CaptionContext, log: RunLog) -> Validation:
        recipe, data, update = train_context.recipe, train_context.data, train_context.trainer.update
        examples = all_captions_in_order(recipe, data.corpus.validation, data.validation)
        loss = mean_loss(train_context.model, examples, PLAIN_LOSS, train_context.trainer.device_context)
        part = data.corpus.validation.first(recipe.validation.images)
        decoding = recipe.decoding.with_beam(recipe.validation.beam)
        writer = Generator(train_context.model, data.tokenizer, decoding)
        written = train_context.trainer.device_context.distributed.map_sharded(
            lambda rows: write(recipe, writer, part.pixels[rows]), range(len(part.pixels))
        )
        captions = [each.text for each in written]
        lowercase, tokenizer = data.tokenizer.writes_lowercase, recipe.validation.bleu_tokenizer
        tokenization = choose_tokenization(part.captions, tokenizer)
        found = {"loss": loss, **score(captions, part.captions, lowercase, METRICS, tokenization)}
        first_ones = [first for first, *_ in part.captions]
        rows = zip(part.names, first_ones, captions, strict=True)
        log.log_validation(update, found, [Sample(*row) for row in rows][:_SAMPLES])
        _draw_captions(train_context, log, part.first(_DRAWN), written)
        if advice := describe_collapse(
            [hashlib.sha256(image.tobytes()).hexdigest() for image in part.pixels], captions, first_ones, "captions"
        ):
            log.info(advice)
        metric = recipe.validation.metric
        return Validation(update, found[metric], loss, lower_is_better=metric in LOWER_IS_BETTER)

    def evaluate(
        self, run: CaptionRun, part: Captioned, scoring: EvaluationOptions, progress_bar: ProgressBar
    ) -> CaptionEvaluation:
        return evaluate_images(run, part, scoring, progress_bar)

    def inspect(self, run: CaptionRun, focus: "InspectionRequest") -> "Inspection":
        from s2s.tasks.captioning.diagnosis import inspect_inputs

        return inspect_inputs(run, focus)


TASK = CaptioningTask()


def _draw_captions(train_context: CaptionContext, log: RunLog, part: Captioned, written: Sequence[Translation]) -> None:
    """Draw validation images with generated captions and attention, for TensorBoard."""
    update, recipe = train_context.trainer.update, train_context.recipe
    title = f"{recipe.name}, update {update}"
    captions = [each.text for each in written[: len(part)]]
    log.add_figure("captions/validation", figures.render_png(captions_picture(part.pixels, captions, title)), update)
    some = part.first(_LOOKED_AT)
    tokenizer = train_context.data.tokenizer
    if seen := looks(recipe, train_context.model, tokenizer, some.pixels, written[: len(some)], some.names):
        log.add_figure("attention/validation", figures.render_png(looks_picture(seen, title)), update)
