"""Translation task: data, training, validation, evaluation and inspection."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from s2s.data.batches import ParallelBatch, ParallelDataset, all_pairs_in_order
from s2s.data.pairs import pairs, unreachable, without_prefix
from s2s.data.tokenized import encode_corpus
from s2s.data.tokenizers import Tokenizer
from s2s.decoding.generate import TextTranslator, describe_collapse
from s2s.errors import UserError, counted_items
from s2s.evaluation.metrics import score
from s2s.evaluation.tokenization import check_tokenizer, choose_tokenization, describe_tokenizer
from s2s.models.base import Seq2Seq
from s2s.tasks.base import (
    SHOWN_EXAMPLES,
    TOKENIZER,
    EvaluationOptions,
    LoadedModel,
    PrintFn,
    Task,
    TrainContext,
    short_text,
)
from s2s.tasks.coverage import measure_coverage
from s2s.tasks.protocols import RescoredHypotheses
from s2s.tasks.seq2seq import (
    build_model,
    check_lengths,
    check_test_lengths,
    cross_attention_weights,
    fitting_pairs,
    longest_source,
    mean_loss,
    sequence_loss,
    unreachable_references,
)
from s2s.tasks.text_generation import TextGeneration
from s2s.tasks.translation.evaluation import TranslationEvaluation, evaluate_pairs
from s2s.tasks.translation.prepared import PreparedTranslation, TranslationSource, prepare
from s2s.tasks.translation.recipe import Recipe
from s2s.training import figures
from s2s.training.logger import RunLog, Sample
from s2s.training.progress import ProgressBar
from s2s.training.trainer import Loss
from s2s.training.validation import LOWER_IS_BETTER, Validation

if TYPE_CHECKING:
    import datasets

    from s2s.data.mixing import MixedDataset
    from s2s.evaluation.signs import Diagnostics
    from s2s.inspection.inspection import Inspection, InspectionRequest

_SAMPLES = 5
# Largest number of tokens of a side in the attention figure, which grows with both sides.
_DRAWN_TOKENS = 40

TranslationRun = LoadedModel[Recipe, Seq2Seq]
TranslationContext = TrainContext[Recipe, PreparedTranslation, Seq2Seq]


class TranslationTask(TextGeneration, Task[Recipe, PreparedTranslation, Seq2Seq]):
    """Translation task: a target text for each source text."""

    def source(self, recipe: Recipe) -> TranslationSource:
        return TranslationSource(recipe.data)

    def check(self, recipe: Recipe) -> None:
        """Refuse a missing BLEU tokenizer, and tied embeddings with two vocabularies."""
        check_tokenizer(recipe.validation.bleu_tokenizer, "validation.bleu_tokenizer")
        # A published tokenizer has one vocabulary for both sides.
        two_vocabularies = not recipe.tokenizer.shared and recipe.tokenizer.kind != "published"
        if two_vocabularies and getattr(recipe.model, "tie", None) == "all":
            raise UserError(
                "is all, but source and target have separate vocabularies (tokenizer.shared: false): a source "
                "token and the target token with the same id would share an embedding",
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

    def example(self, recipe: Recipe, part: "datasets.Dataset") -> tuple[str, ...]:
        return (short_text(without_prefix(part, recipe.data.prefix)[:SHOWN_EXAMPLES]["source"]),)

    def build(self, recipe: Recipe, tokenizers: Sequence[Tokenizer]) -> Seq2Seq:
        return build_model(recipe, tokenizers[0].size, tokenizers[-1].size)

    def examples(self, recipe: Recipe, data: PreparedTranslation, model: Seq2Seq) -> "ParallelDataset | MixedDataset":
        check_lengths(recipe.batches, model, data.train, data.validation, recipe.model.kind)
        if test := data.corpus.test:
            check_test_lengths(model, lambda: encode_corpus(test, data.source_tokenizer, data.target_tokenizer))
        settings, wanted = recipe.data, recipe.training.tokens_per_update
        if settings.evenly:
            return ParallelDataset(data.train, recipe.batches, wanted)
        from s2s.data.mixing import FixedPairs, MixedDataset

        ends = itertools.pairwise(itertools.accumulate(data.sizes.values(), initial=0))
        corpora = {name: FixedPairs(data.train, *span) for name, span in zip(data.sizes, ends, strict=True)}
        return MixedDataset(corpora, recipe.batches, settings.mixing, wanted, settings.weights)

    def loss(self, recipe: Recipe) -> Loss[Seq2Seq, ParallelBatch]:
        return sequence_loss(recipe.training)

    def log_dataset_summary(self, train_context: TranslationContext, print_fn: PrintFn) -> None:
        recipe, data, examples = train_context.recipe, train_context.data, train_context.trainer.examples
        source, target = data.source_tokenizer, data.target_tokenizer
        if source is target:
            print_fn(f"vocabulary: {target.size:,} tokens")
        else:
            print_fn(
                f"vocabularies: {source.size:,} source tokens ({source.kind}), {target.size:,} target tokens "
                f"({target.kind})"
            )
        for name, part in data.corpus.splits().items():
            if name == "train":
                continue
            # The validation set is encoded already; `datasets` caches the tokens of the test set on disk.
            tokens = data.validation if name == "validation" else encode_corpus(part, source, target)
            for advice in (
                unreachable(part, name, target.normalization),
                unreachable_references(name, tokens, train_context.model, recipe.decoding),
            ):
                if advice:
                    print_fn(advice)
        references = data.corpus.validation["target"]
        tokenization = choose_tokenization(references, recipe.validation.bleu_tokenizer)
        if note := describe_tokenizer(tokenization.tokenizer, references):
            print_fn(note)
        if recipe.data.more:
            from s2s.data.mixing import MixedDataset, describe_mixture

            sizes = examples.sizes if isinstance(examples, MixedDataset) else list(data.sizes.values())
            print_fn("\n".join(describe_mixture(data.sizes, sizes, recipe.data.mixing, recipe.data.weights)))
        if examples.num_skipped:
            limit = recipe.batches.max_length
            skipped = counted_items(examples.num_skipped, "training pairs")
            are = "is" if examples.num_skipped == 1 else "are"
            print_fn(f"{skipped} {are} longer than batches.max_length ({limit}): left out")

    def on_train_start(self, train_context: TranslationContext, folder: Path, log: RunLog) -> None:
        """Write the vocabulary coverage of the training text, for out-of-domain warnings."""
        data, tokenizer = train_context.data, train_context.data.source_tokenizer
        texts = (source for source, _ in pairs(data.corpus.train))
        longest = longest_source(data.train, train_context.recipe.batches.max_length)
        found = measure_coverage(texts, data.train.source_token_ids(), longest, tokenizer)
        found.save(folder / TOKENIZER, data.corpus.validation["source"], tokenizer)

    def validate(self, train_context: TranslationContext, log: RunLog) -> Validation:
        """Measure the loss, and translate the validation set with a small beam."""
        recipe, data, update = train_context.recipe, train_context.data, train_context.trainer.update
        device_context = train_context.trainer.device_context
        loss = mean_loss(train_context.model, data.validation, recipe.batches, device_context)
        rows = data.corpus.validation
        rows = rows.select(range(min(recipe.validation.sentences or len(rows), len(rows))))
        decoding = recipe.decoding.with_beam(recipe.validation.beam)
        translator = TextTranslator(train_context.model, data.source_tokenizer, data.target_tokenizer, decoding)
        sources, references = list(rows["source"]), list(rows["target"])
        translations = device_context.distributed.map_sharded(
            lambda part: [t.text for t in translator.translate(part)], sources
        )
        tokenization = choose_tokenization(references, recipe.validation.bleu_tokenizer)
        lowercase = data.target_tokenizer.writes_lowercase
        found = {"loss": loss, **score(translations, references, lowercase, tokenization=tokenization)}
        samples = [Sample(*row) for row in zip(sources, references, translations, strict=True)]
        log.log_validation(update, found, samples[:_SAMPLES])
        _draw_attention(train_context, log)
        if advice := describe_collapse(sources, translations, references):
            log.info(advice)
        metric = recipe.validation.metric
        return Validation(update, found[metric], loss, lower_is_better=metric in LOWER_IS_BETTER)

    def evaluate(
        self, run: TranslationRun, part: "datasets.Dataset", scoring: EvaluationOptions, progress_bar: ProgressBar
    ) -> TranslationEvaluation:
        # Sources of a split have the prefix; those that the caller gives do not.
        part = part if scoring.given else without_prefix(part, run.recipe.data.prefix)
        references = part["references"] if "references" in part.column_names else part["target"]
        return evaluate_pairs(run, list(part["source"]), list(references), scoring, progress_bar)

    def examples_for_inference(self, run: TranslationRun, part: "datasets.Dataset") -> ParallelDataset:
        data = fitting_pairs(run.model, encode_corpus(part, run.tokenizers[0], run.tokenizers[-1]))
        if not len(data):
            what = f"all of {len(part):,} pairs are longer than the positions of the model"
            raise UserError(what, where=str(run.path), remedy="name another split, with shorter references")
        return all_pairs_in_order(data, run.recipe.batches)

    def score_tokens(self, run: TranslationRun, batch: ParallelBatch) -> RescoredHypotheses:
        from s2s.tasks.source_use import rescore_texts

        return rescore_texts(run, batch)

    def diagnose(
        self, run: TranslationRun, part: "datasets.Dataset", rows: Int[np.ndarray, " pairs"], progress_bar: ProgressBar
    ) -> "Diagnostics":
        from s2s.tasks.symptoms import pair_symptoms

        # Sources of a split have the prefix.
        prefix, places = run.recipe.data.prefix, [f"line {row + 1}" for row in rows]
        tokenizer = run.recipe.validation.bleu_tokenizer
        return pair_symptoms(run, without_prefix(part, prefix), places, progress_bar, prefix, tokenizer)

    def inspect(self, run: TranslationRun, focus: "InspectionRequest") -> "Inspection":
        from s2s.inspection.inspection import Inspection
        from s2s.inspection.seq2seq import inspection_of
        from s2s.tasks.symptoms import pair_of

        prefix = run.recipe.data.prefix
        # An example of a split has the prefix.
        texts = focus.inputs or (str(focus.example["source"][0]).removeprefix(prefix),)
        pairs = [pair_of(run, text, focus.output, prefix) for text in texts]
        return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, *inspection_of(run.model, pairs, focus))


TASK = TranslationTask()


def _draw_attention(train_context: TranslationContext, log: RunLog) -> None:
    """Draw the last layer's cross-attention, averaged over heads, of a short validation pair, for TensorBoard."""
    data, update = train_context.data, train_context.trainer.update
    lengths = np.maximum(data.validation.source_lengths, data.validation.target_lengths)
    # Of few tokens, the labels are legible in a small image; of very few, there is little to see.
    short = [*np.flatnonzero((lengths >= 6) & (lengths <= 16)), *np.flatnonzero(lengths <= _DRAWN_TOKENS)]
    if not short:
        return
    source, target = data.validation.pair(int(short[0]))
    weights = cross_attention_weights(train_context.model, source, target, train_context.trainer.device_context.device)
    if len(weights):
        tokens = [*data.source_tokenizer.tokens(source), "</s>"], [*data.target_tokenizer.tokens(target), "</s>"]
        title = f"update {update}: cross-attention, last layer, mean of heads"
        mean = weights[-1].mean(dim=0, keepdim=True)
        picture = figures.render_png(figures.attention_picture(mean, *tokens, title))
        log.add_figure("attention/last_layer", picture, update)
