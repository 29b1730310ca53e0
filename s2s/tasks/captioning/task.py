"""Captioning: from images with captions to a model that writes captions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from s2s.data.batches import Batch
from s2s.data.encoding import Lists, learned
from s2s.data.sources import Corpus
from s2s.data.tokenizers import Tokenizer
from s2s.decoding.translator import Translation, Writer, collapse
from s2s.errors import UserError
from s2s.evaluation.metrics import LOWER_IS_BETTER, score
from s2s.evaluation.signs import Symptoms
from s2s.evaluation.tokenization import check_tokenizer, choose_tokenization, describe_tokenizer
from s2s.interpretability.inspection import Focus, Inspection
from s2s.models.contract import Seq2Seq
from s2s.tasks.captioning.data import (
    Captioned,
    CaptionedImages,
    CaptionSource,
    PreparedCaptions,
    every_one,
    examples_of,
    longest_of,
    positions_of,
)
from s2s.tasks.captioning.evaluation import METRICS, CaptionEvaluation, evaluate_images
from s2s.tasks.captioning.insides import insides
from s2s.tasks.captioning.pictures import captions_picture, looks_picture
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.captioning.symptoms import symptoms
from s2s.tasks.captioning.writing import build_model, looks, write
from s2s.tasks.contract import Course, Loaded, Rescored, Say, Scoring, check_positions, draw
from s2s.tasks.pixels import statistics_for
from s2s.tasks.seq2seq import sequence_loss, too_long_for_decoding
from s2s.tasks.writing import WritingTask, rescored
from s2s.training import drawing
from s2s.training.logger import RunLog, Sample
from s2s.training.progress import Meter
from s2s.training.trainer import mean_loss
from s2s.training.validation import Validation

_SAMPLES = 5
_DRAWN, _LOOKED_AT = 18, 2

CaptionCourse = Course[CaptionRecipe, PreparedCaptions, Seq2Seq]
CaptionRun = Loaded[CaptionRecipe, Seq2Seq]


class Captioning(WritingTask[CaptionRecipe, PreparedCaptions]):
    """Images in, captions out."""

    def source(self, recipe: CaptionRecipe) -> CaptionSource:
        return CaptionSource(recipe.data)

    def check(self, recipe: CaptionRecipe) -> None:
        """Refuses a tokenizer of BLEU that is not installed."""
        check_tokenizer(recipe.validation.bleu_tokenizer, "validation.bleu_tokenizer")

    def prepare(self, recipe: CaptionRecipe, tokenizers: tuple[Tokenizer, ...], say: Say) -> PreparedCaptions:
        corpus: Corpus[Captioned] = CaptionSource(recipe.data).load()
        train, validation = (list(part.texts()) for part in (corpus.train, corpus.validation))
        tokenizer = tokenizers[0] if tokenizers else learned(train, recipe.tokenizer)
        return PreparedCaptions(corpus, tokenizer, *(Lists.of(tokenizer.encode_batch(p)) for p in (train, validation)))

    def resolved(self, recipe: CaptionRecipe, data: PreparedCaptions) -> CaptionRecipe:
        """The recipe with mean and deviation of the pixels."""
        known = statistics_for(recipe.data, data.corpus.train.pixels)
        return recipe.model_copy(update={"data": recipe.data.model_copy(update=known)})

    def build(self, recipe: CaptionRecipe, tokenizers: Sequence[Tokenizer]) -> Seq2Seq:
        return build_model(recipe, tokenizers[0].size)

    def examples(self, recipe: CaptionRecipe, data: PreparedCaptions, model: Seq2Seq) -> CaptionedImages:
        longest = recipe.batches.max_length
        check_positions(model.decoder.longest, longest, f"set model.max_positions={longest} or higher")
        asked, known = longest_of(data.validation), model.decoder.longest
        if known is not None and known < asked:
            raise UserError(
                f"the model knows {known} positions, but the longest validation caption has {asked} pieces",
                where="model.max_positions",
                remedy=f"set model.max_positions={asked} or higher",
            )
        return examples_of(recipe, data.corpus.train, data.train)

    def read(self, run: CaptionRun, part: Captioned) -> CaptionedImages:
        pieces = Lists.of(run.tokenizers[0].encode_batch(list(part.texts())))
        return every_one(run.recipe, part, pieces, run.model.decoder.longest)

    def rescored(self, run: CaptionRun, batch: Batch) -> Rescored:
        """All hypotheses of the beam that the recipe asks for, in fp32."""
        decoding = run.recipe.decoding.model_copy(update={"precision": "fp32"})
        writer = Writer(run.model, run.tokenizers[0], decoding, decoding.beam)
        limits = np.full(len(batch.source), decoding.max_length)
        found = writer.hypotheses(batch.source, batch.source_valid, limits)
        return rescored(run.model, batch.source, batch.source_valid, found)

    def symptoms(self, run: CaptionRun, part: Captioned, rows: Int[np.ndarray, " images"], meter: Meter) -> Symptoms:
        return symptoms(run, part, rows, meter)

    def counts(self, course: CaptionCourse) -> dict[str, int]:
        examples = course.trainer.examples
        return {"test": 0, **super().counts(course), "captions": len(examples), "too_long": examples.left_out}

    def introduce(self, course: CaptionCourse, say: Say) -> None:
        data, stem = course.recipe.data, course.recipe.stem
        for name, part in course.data.corpus.parts().items():
            captions = sum(map(len, part.captions))
            say(f"{name}: {len(part):,} images, {captions:,} captions")
            if name != "train" and (advice := self._unreachable(course, name, part)):
                say(advice)
        references = course.data.corpus.validation.captions
        tokenization = choose_tokenization(references, course.recipe.validation.bleu_tokenizer)
        if note := describe_tokenizer(tokenization.tokenizer, references):
            say(note)
        colour = "grey" if data.channels == 1 else "colour"
        say(
            f"{data.size} x {data.size} pixels, {colour} · {stem.kind} of {stem.size} x {stem.size}: "
            f"{positions_of(course.recipe)} vectors of an image · {course.data.tokenizer.size:,} pieces"
        )
        if left_out := course.trainer.examples.left_out:
            limit = course.recipe.batches.max_length
            say(f"{left_out} training captions are longer than batches.max_length ({limit}): left out")

    def _unreachable(self, course: CaptionCourse, name: str, part: Captioned) -> str | None:
        tokens = np.array([len(row) for row in course.data.tokenizer.encode_batch(list(part.texts()))])
        allowed = np.full(len(tokens), course.recipe.decoding.max_length)
        remedy = f"decoding.max_length={tokens.max(initial=0)}"
        return too_long_for_decoding(name, tokens, allowed, course.model, remedy)

    def begin(self, course: CaptionCourse, folder: Path, log: RunLog) -> None:
        """Draws some images with their captions."""
        some = course.data.corpus.train.first(_DRAWN)
        captions = [first for first, *_ in some.captions]
        picture = captions_picture(some.pixels, captions, "training images, each with one of its captions")
        draw(course, folder, log, "data", {"training": picture})

    def validate(self, course: CaptionCourse, log: RunLog) -> Validation:
        recipe, data, update = course.recipe, course.data, course.trainer.update
        examples = every_one(recipe, data.corpus.validation, data.validation)
        loss = mean_loss(course.model, examples, sequence_loss(0.0), course.trainer.computer)
        part = data.corpus.validation.first(recipe.validation.images)
        decoding = recipe.decoding.model_copy(update={"beam": recipe.validation.beam})
        writer = Writer(course.model, data.tokenizer, decoding)
        written = course.trainer.computer.ranks.shared(
            lambda rows: write(recipe, writer, part.pixels[rows]), range(len(part.pixels))
        )
        captions = [each.text for each in written]
        lowercase, tokenizer = data.tokenizer.writes_lowercase, recipe.validation.bleu_tokenizer
        tokenization = choose_tokenization(part.captions, tokenizer)
        found = {"loss": loss, **score(captions, part.captions, lowercase, METRICS, tokenization)}
        first_ones = [first for first, *_ in part.captions]
        rows = zip(part.names, first_ones, captions, strict=True)
        log.validation(update, found, [Sample(*row) for row in rows][:_SAMPLES])
        _draw_captions(course, log, part.first(_DRAWN), written)
        if advice := collapse([image.tobytes().hex() for image in part.pixels], captions, first_ones, "captions"):
            log.say(advice)
        metric = recipe.validation.metric
        return Validation(update, -found[metric] if metric in LOWER_IS_BETTER else found[metric], loss)

    def evaluate(self, run: CaptionRun, part: Captioned, scoring: Scoring, meter: Meter) -> CaptionEvaluation:
        return evaluate_images(run, part, scoring, meter)

    def inspect(self, run: CaptionRun, focus: Focus) -> Inspection:
        return insides(run, focus)


TASK = Captioning()


def _draw_captions(course: CaptionCourse, log: RunLog, part: Captioned, written: Sequence[Translation]) -> None:
    """Puts validation images with what is written of them into TensorBoard, and where the model looks for each word."""
    update = course.trainer.update
    title = f"{course.recipe.name}, update {update}"
    captions = [each.text for each in written[: len(part)]]
    log.picture("captions/validation", drawing.png(captions_picture(part.pixels, captions, title)), update)
    some = part.first(_LOOKED_AT)
    seen = looks(course.recipe, course.model, course.data.tokenizer, some.pixels, written[: len(some)], some.names)
    if seen:
        log.picture("attention/validation", drawing.png(looks_picture(seen, title)), update)
