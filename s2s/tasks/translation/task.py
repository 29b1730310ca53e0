"""Translation task: data, training, validation, evaluation and inspection.

`overfit` is the sanity check of `s2s train --overfit`.
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from s2s.data.batches import ParallelBatch, ParallelDataset, all_pairs_in_order
from s2s.data.mixing import FixedPairs, MixedDataset, describe_mixture
from s2s.data.pairs import pairs, unreachable, without_prefix
from s2s.data.tokenized import TokenizedDataset, encode_corpus
from s2s.data.tokenizers import Tokenizer
from s2s.decoding.generate import TextTranslator, describe_collapse
from s2s.errors import UserError
from s2s.evaluation.metrics import LOWER_IS_BETTER, exact_share, score
from s2s.evaluation.tokenization import check_tokenizer, choose_tokenization, describe_tokenizer
from s2s.models.base import Seq2Seq
from s2s.tasks.base import TOKENIZER, EvaluationOptions, LoadedModel, PrintFn, Task, TrainContext
from s2s.tasks.line_translation import measure_coverage
from s2s.tasks.protocols import RescoredHypotheses
from s2s.tasks.seq2seq import (
    attention_weights,
    build_model,
    check_lengths,
    check_test_lengths,
    longest_source,
    mean_loss,
    sequence_loss,
    translation_trainer,
    unreachable_references,
)
from s2s.tasks.text_generation import TextGeneration, rescore_texts
from s2s.tasks.translation.evaluation import TranslationEvaluation, evaluate_pairs
from s2s.tasks.translation.prepared import PreparedTranslation, TranslationSource, prepare
from s2s.tasks.translation.recipe import Recipe
from s2s.training import figures
from s2s.training.device import select_device
from s2s.training.divergence import is_diverged
from s2s.training.logger import RunLog, Sample
from s2s.training.precision import check_precision
from s2s.training.progress import ProgressBar
from s2s.training.trainer import Loss
from s2s.training.validation import Validation

if TYPE_CHECKING:
    import datasets

    from s2s.evaluation.signs import Diagnostics
    from s2s.inspection.inspection import Inspection, InspectionRequest

_SAMPLES = 5
_DRAWN_PIECES = 40

TranslationRun = LoadedModel[Recipe, Seq2Seq]
TranslationCourse = TrainContext[Recipe, PreparedTranslation, Seq2Seq]


class TranslationTask(TextGeneration, Task[Recipe, PreparedTranslation, Seq2Seq]):
    """Translation task: a target text for each source text."""

    def source(self, recipe: Recipe) -> TranslationSource:
        return TranslationSource(recipe.data)

    def check(self, recipe: Recipe) -> None:
        """Refuse a missing BLEU tokenizer, and tied embeddings with two vocabularies.

        One embedding table for two vocabularies would share vectors between unrelated tokens.
        """
        check_tokenizer(recipe.validation.bleu_tokenizer, "validation.bleu_tokenizer")
        # A published tokenizer has one vocabulary for both sides.
        apart = not recipe.tokenizer.shared and recipe.tokenizer.kind != "published"
        if apart and getattr(recipe.model, "tie", None) == "all":
            raise UserError(
                "is all, but source and target have vocabularies of their own (tokenizer.shared: false): the vector of "
                "a source piece would be that of a target piece with the same number",
                where="model.tie",
                remedy="set model.tie: target, or leave it out",
            )

    def prepare(self, recipe: Recipe, tokenizers: tuple[Tokenizer, ...], print_fn: PrintFn) -> PreparedTranslation:
        if not tokenizers:
            return prepare(recipe, None, print_fn)
        # A run that provides the encoder has one tokenizer; the target's tokenizer is trained.
        source, *others = tokenizers
        target = source if recipe.tokenizer.shared else others[0] if others else None
        return prepare(recipe, (source, target), print_fn)

    def build(self, recipe: Recipe, tokenizers: Sequence[Tokenizer]) -> Seq2Seq:
        return build_model(recipe, tokenizers[0].size, tokenizers[-1].size)

    def examples(self, recipe: Recipe, data: PreparedTranslation, model: Seq2Seq) -> ParallelDataset | MixedDataset:
        check_lengths(recipe.batches, model, data.train, data.validation, recipe.model.kind)
        if test := data.corpus.test:
            cut = data.source_tokenizer, data.target_tokenizer
            check_test_lengths(model, lambda: encode_corpus(test, *cut))
        settings, wanted = recipe.data, recipe.training.tokens_per_update
        if settings.evenly:
            return ParallelDataset(data.train, recipe.batches, wanted)
        ends = itertools.pairwise(itertools.accumulate(data.sizes.values(), initial=0))
        corpora = {name: FixedPairs(data.train, *span) for name, span in zip(data.sizes, ends, strict=True)}
        return MixedDataset(corpora, recipe.batches, settings.mixing, wanted, settings.weights)

    def loss(self, recipe: Recipe) -> Loss[Seq2Seq, ParallelBatch]:
        return sequence_loss(recipe.training.label_smoothing)

    def examples_for_inference(self, run: TranslationRun, part: "datasets.Dataset") -> ParallelDataset:
        return all_pairs_in_order(encode_corpus(part, run.tokenizers[0], run.tokenizers[-1]), run.recipe.batches)

    def diagnose(
        self, run: TranslationRun, part: "datasets.Dataset", rows: Int[np.ndarray, " pairs"], progress_bar: ProgressBar
    ) -> "Diagnostics":
        from s2s.tasks.symptoms import pair_symptoms

        # Sources of a split have the prefix.
        prefix = run.recipe.data.prefix
        places, tokenizer = [f"line {row + 1}" for row in rows], run.recipe.validation.bleu_tokenizer
        return pair_symptoms(run, without_prefix(part, prefix), places, progress_bar, prefix, tokenizer)

    def log_dataset_summary(self, train_context: TranslationCourse, print_fn: PrintFn) -> None:
        source, target = train_context.data.source_tokenizer, train_context.data.target_tokenizer
        of_source = "" if source is target else f"{source.size:,} source pieces ({source.kind}), "
        print_fn(f"{of_source}{target.size:,} {f'target pieces ({target.kind})' if of_source else 'pieces'}")
        for name, part in train_context.data.corpus.splits().items():
            if name != "train" and (advice := unreachable(part, name, target.normalization)):
                print_fn(advice)
            # Encoded only once, because `datasets` caches the tokens of a corpus on disk.
            if name != "train" and (advice := self._unreachable(train_context, name, part)):
                print_fn(advice)
        references = train_context.data.corpus.validation["target"]
        tokenization = choose_tokenization(references, train_context.recipe.validation.bleu_tokenizer)
        if note := describe_tokenizer(tokenization.tokenizer, references):
            print_fn(note)
        examples, settings = train_context.trainer.examples, train_context.recipe.data
        if settings.more:
            sizes = examples.sizes if isinstance(examples, MixedDataset) else list(train_context.data.sizes.values())
            print_fn("\n".join(describe_mixture(train_context.data.sizes, sizes, settings.mixing, settings.weights)))
        if left_out := train_context.trainer.examples.num_skipped:
            limit = train_context.recipe.batches.max_length
            print_fn(f"{left_out} training pairs are longer than batches.max_length ({limit}): left out")

    def _unreachable(self, train_context: TranslationCourse, name: str, part: "datasets.Dataset") -> str | None:
        data = train_context.data
        known = name == "validation"
        encoded = data.validation if known else encode_corpus(part, data.source_tokenizer, data.target_tokenizer)
        return unreachable_references(name, encoded, train_context.model, train_context.recipe.decoding)

    def on_train_start(self, train_context: TranslationCourse, folder: Path, log: RunLog) -> None:
        """Write the vocabulary coverage of the training text, for out-of-domain warnings.

        No figures are drawn: `s2s data check` shows the corpus.
        """
        corpus, cut = train_context.data.corpus, train_context.data.source_tokenizer
        texts = (source for source, _ in pairs(corpus.train))
        longest = longest_source(train_context.data.train, train_context.recipe.batches.max_length)
        found = measure_coverage(texts, train_context.data.train.source_token_ids(), longest, cut)
        found.save(folder / TOKENIZER, corpus.validation["source"], cut)

    def validate(self, train_context: TranslationCourse, log: RunLog) -> Validation:
        """Measure the loss, and translate the validation set with a small beam.

        Returns:
            The score by `validation.metric`, negated if lower is better, and the loss.
        """
        recipe, data, update = train_context.recipe, train_context.data, train_context.trainer.update
        loss = mean_loss(train_context.model, data.validation, recipe.batches, train_context.trainer.device_context)
        rows = data.corpus.validation
        rows = rows.select(range(min(recipe.validation.sentences or len(rows), len(rows))))
        decoding = recipe.decoding.model_copy(update={"beam": recipe.validation.beam})
        translator = TextTranslator(train_context.model, data.source_tokenizer, data.target_tokenizer, decoding)
        sources, references = list(rows["source"]), list(rows["target"])
        distributed = train_context.trainer.device_context.distributed
        translations = distributed.map_sharded(lambda part: [t.text for t in translator.translate(part)], sources)
        tokenization = choose_tokenization(references, recipe.validation.bleu_tokenizer)
        lowercase = data.target_tokenizer.writes_lowercase
        found = {"loss": loss, **score(translations, references, lowercase, tokenization=tokenization)}
        samples = [Sample(*row) for row in zip(sources, references, translations, strict=True)]
        log.log_validation(update, found, samples[:_SAMPLES])
        _picture_attention(train_context, log)
        if advice := describe_collapse(sources, translations, references):
            log.info(advice)
        metric = recipe.validation.metric
        return Validation(update, -found[metric] if metric in LOWER_IS_BETTER else found[metric], loss)

    def evaluate(
        self, run: TranslationRun, part: "datasets.Dataset", scoring: EvaluationOptions, progress_bar: ProgressBar
    ) -> TranslationEvaluation:
        # Sources of a split have the prefix; those that the caller gives do not.
        part = part if scoring.given else without_prefix(part, run.recipe.data.prefix)
        references = part["references"] if "references" in part.column_names else part["target"]
        return evaluate_pairs(run, list(part["source"]), list(references), scoring, progress_bar)

    def score_tokens(self, run: TranslationRun, batch: ParallelBatch) -> RescoredHypotheses:
        return rescore_texts(run, batch)

    def inspect(self, run: TranslationRun, focus: "InspectionRequest") -> "Inspection":
        """Inspect one translation: the model's own, or the output that `focus` gives."""
        from s2s.inspection.inspection import Inspection
        from s2s.inspection.seq2seq import inspection_of
        from s2s.tasks.symptoms import pair_of

        # An example of a split has the prefix.
        texts = [run.recipe.data.prefix + text for text in focus.inputs] or [str(focus.example["source"][0])]
        pairs = [pair_of(run, text, focus.output) for text in texts]
        return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, *inspection_of(run.model, pairs, focus))


TASK = TranslationTask()


def _picture_attention(train_context: TranslationCourse, log: RunLog) -> None:
    data, update = train_context.data, train_context.trainer.update
    lengths = np.maximum(data.validation.source_lengths, data.validation.target_lengths)
    # The figure grows with both sides, and hundreds of tokens are unreadable.
    short = np.flatnonzero(lengths <= _DRAWN_PIECES)
    if not len(short):
        return
    source, target = data.validation.pair(int(short[0]))
    weights = attention_weights(train_context.model, source, target, train_context.trainer.device_context.device)
    if len(weights):
        tokens = [*data.source_tokenizer.tokens(source), "</s>"], [*data.target_tokenizer.tokens(target), "</s>"]
        title = f"{train_context.recipe.name}, update {update}: attention of the last layer"
        log.add_figure(
            "attention/last_layer", figures.render_png(figures.attention_picture(weights[-1], *tokens, title)), update
        )


_PAIRS = 16
_UPDATES = 800
_OVERFIT_SHARE = 90  # Percentage of exact translations: 1 of 16 may be wrong.


def overfit(recipe: Recipe, print_fn: Callable[[str], None]) -> None:
    """Sanity check: overfit 16 training pairs of medium length.

    The recipe applies, except for label smoothing, weight averaging and the learning-rate schedule after warm-up, which
    would prevent overfitting. Dropout is on in training and off in evaluation. Nothing is saved.

    Raises:
        UserError: The model did not overfit: model, learning rate and data do not fit each other.
    """
    TASK.check(recipe)
    device_context = select_device(recipe.device)
    prepared = prepare(recipe, None, print_fn)
    model = build_model(recipe, prepared.source_tokenizer.size, prepared.target_tokenizer.size).to(
        device_context.device
    )
    chosen = _middling(prepared.train)
    data = TokenizedDataset.from_rows(*prepared.train.rows(chosen))
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    batches = recipe.batches.model_copy(update={"tokens": longest * len(chosen), "max_length": longest})
    changes = {"updates": _UPDATES, "schedule": "constant", "label_smoothing": 0.0, "ema": None, "average_last": None}
    changes |= {"warmup": min(recipe.training.warmup, _UPDATES // 20), "tokens_per_update": None}
    training = recipe.training.model_copy(update=changes)
    trainer = translation_trainer(model, data, training, batches, recipe.seeds, device_context)
    check_precision(trainer)
    started = time.perf_counter()
    before = mean_loss(model, data, batches, device_context)
    print_fn(f"{len(chosen)} pairs, loss {before:.2f} before training")
    loss, exact = math.nan, 0.0
    while exact < _OVERFIT_SHARE and trainer.update < _UPDATES:
        for _ in trainer.updates(trainer.update + _UPDATES // 8):
            pass
        loss, exact = mean_loss(model, data, batches, device_context), _exact(model, prepared, recipe, chosen)
        print_fn(f"update {trainer.update}: loss {loss:.3f}, {exact:.0f} % of the translations exact")
    if exact < _OVERFIT_SHARE:
        if sign := is_diverged(model, loss, max(before, math.log(prepared.target_tokenizer.size))):
            raise UserError(
                f"the training diverged: {sign}",
                where=f"{trainer.update} updates",
                remedy="lower training.learning_rate, lengthen training.warmup, or set training.clip",
            )
        raise UserError(
            f"{len(chosen)} pairs are not known by heart after {trainer.update} updates",
            remedy="raise training.learning_rate or the model's width, lower its dropout, and look at the pairs with "
            "`s2s data check`",
        )
    print_fn(f"known by heart after {trainer.update} updates, {time.perf_counter() - started:.0f} s")


def _middling(data: TokenizedDataset) -> np.ndarray:
    """Return the rows of pairs of medium length."""
    order = np.argsort(np.maximum(data.source_lengths, data.target_lengths), kind="stable")
    first = max(0, (len(order) - _PAIRS) // 2)
    return order[first : first + _PAIRS]


def _exact(model: Seq2Seq, prepared: PreparedTranslation, recipe: Recipe, chosen: np.ndarray) -> float:
    """Return the share of pairs whose greedy translation is exact, in percent.

    The reference is the target as the tokenizer can represent it.
    """
    pairs = prepared.corpus.train.select(chosen)
    decoding = recipe.decoding.model_copy(update={"beam": 1})
    target = prepared.target_tokenizer
    translator = TextTranslator(model, prepared.source_tokenizer, target, decoding)
    spelled = [target.decode(target.encode(text)) for text in pairs["target"]]
    return exact_share([t.text for t in translator.translate(pairs["source"])], spelled)
