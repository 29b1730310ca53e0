"""Text-to-text task: one model for several tasks, selected by a prefix.

The method is that of Raffel et al. (2020).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from s2s.data.batches import ParallelBatch
from s2s.data.corruption import SENTINELS
from s2s.data.mixing import MixedDataset, TokenizedPairSource, all_pairs_by_corpus, describe_mixture
from s2s.data.pairs import pairs, with_prefix
from s2s.data.tokenizers import Tokenizer
from s2s.errors import counted_items
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
    PLAIN_LOSS,
    build_model,
    check_lengths,
    check_test_lengths,
    longest_source,
    sequence_loss,
    unreachable_references,
)
from s2s.tasks.text_generation import TextGeneration
from s2s.tasks.text_to_text.data import Mixture, MixtureSource, PreparedMixture, in_pieces, prepare
from s2s.tasks.text_to_text.evaluation import TextToTextEvaluation, mean_of, score_task, with_intervals
from s2s.tasks.text_to_text.recipe import LOSS, MEAN, TextToTextRecipe
from s2s.training import trainer
from s2s.training.logger import RunLog, Sample
from s2s.training.progress import ProgressBar, no_progress_bar
from s2s.training.trainer import Loss
from s2s.training.validation import LOWER_IS_BETTER, Validation

if TYPE_CHECKING:
    from s2s.evaluation.signs import Diagnostics
    from s2s.inspection.inspection import Inspection, InspectionRequest

MixtureRun = LoadedModel[TextToTextRecipe, Seq2Seq]
MixtureContext = TrainContext[TextToTextRecipe, PreparedMixture, Seq2Seq]


class TextToTextTask(TextGeneration, Task[TextToTextRecipe, PreparedMixture, Seq2Seq]):
    """Text-to-text task: a target for each source with its prefix."""

    def source(self, recipe: TextToTextRecipe) -> MixtureSource:
        return MixtureSource(recipe.data)

    def example(self, recipe: TextToTextRecipe, part: Mixture) -> tuple[str, ...]:
        for name, texts in part.parts.items():
            if recipe.data.corpora[name].objective == "pairs":
                return short_text(texts[:SHOWN_EXAMPLES]["source"]), "--task", name
        return ()

    def check(self, recipe: TextToTextRecipe) -> None:
        """Refuse a BLEU tokenizer that is not installed."""
        for name, settings in recipe.data.corpora.items():
            check_tokenizer(settings.bleu_tokenizer, f"data.corpora.{name}.bleu_tokenizer")

    def prepare(
        self, recipe: TextToTextRecipe, tokenizers: tuple[Tokenizer, ...], print_fn: PrintFn
    ) -> PreparedMixture:
        return prepare(recipe, tokenizers[0] if tokenizers else None, print_fn)

    def build(self, recipe: TextToTextRecipe, tokenizers: Sequence[Tokenizer]) -> Seq2Seq:
        corrupted = any(each.objective == "span-corruption" for each in recipe.data.corpora.values())
        size = tokenizers[0].size + (SENTINELS if corrupted else 0)
        return build_model(recipe, size, size)

    def examples(self, recipe: TextToTextRecipe, data: PreparedMixture, model: Seq2Seq) -> MixedDataset:
        batches = recipe.batches
        mixing, weights = recipe.data.mixing, recipe.data.weights
        found = MixedDataset(data.train, batches, mixing, recipe.training.tokens_per_update, weights)
        check_lengths(batches, model, found, all_pairs_by_corpus(data.validation, batches), recipe.model.kind)
        if test := data.corpus.test:
            check_test_lengths(model, lambda: _read(recipe, test, data.tokenizer), check_targets=True)
        return found

    def loss(self, recipe: TextToTextRecipe) -> Loss[Seq2Seq, ParallelBatch]:
        return sequence_loss(recipe.training)

    def log_dataset_summary(self, train_context: MixtureContext, print_fn: PrintFn) -> None:
        recipe, tokenizer, examples = train_context.recipe, train_context.data.tokenizer, train_context.trainer.examples
        print_fn(f"vocabulary: {tokenizer.size:,} tokens ({tokenizer.kind})")
        for name, part in train_context.data.corpus.validation.parts.items():
            task = recipe.data.corpora[name]
            if task.answers is None and task.objective == "pairs":
                tokenization = choose_tokenization(part["target"], task.bleu_tokenizer)
                if note := describe_tokenizer(tokenization.tokenizer, part["target"]):
                    print_fn(f"{name}: {note}")
        for advice in self._unreachable(train_context):
            print_fn(advice)
        if isinstance(examples, MixedDataset):
            sizes, settings = examples.sizes, recipe.data
            print_fn("\n".join(describe_mixture(train_context.data.train, sizes, settings.mixing, settings.weights)))
        if examples.num_skipped:
            limit = recipe.batches.max_length
            skipped = counted_items(examples.num_skipped, "training examples")
            are = "is" if examples.num_skipped == 1 else "are"
            print_fn(f"{skipped} {are} longer than batches.max_length ({limit}): left out")

    def _unreachable(self, train_context: MixtureContext) -> Iterator[str]:
        """Yield warnings about references that are longer than decoding allows."""
        data, recipe = train_context.data, train_context.recipe
        for split, part in data.corpus.splits().items():
            for name, each in part.parts.items() if split != "train" else ():
                settings = recipe.data.corpora[name]
                if settings.objective != "pairs" or settings.answers:
                    continue
                known = data.validation[name] if split == "validation" else None
                lengths = known or in_pieces(each, settings, data.tokenizer, recipe.batches.max_length)[0]
                if advice := unreachable_references(f"{name} {split}", lengths, train_context.model, recipe.decoding):
                    yield advice

    def on_train_start(self, train_context: MixtureContext, folder: Path, log: RunLog) -> None:
        """Write the vocabulary coverage of the training text, for out-of-domain warnings."""
        data, corpora = train_context.data, train_context.recipe.data.corpora
        longest = max(longest_source(each, train_context.recipe.batches.max_length) for each in data.train.values())
        train, validation = (
            (
                with_prefix(corpora[name].prefix, source)
                for name, each in part.parts.items()
                for source, _ in pairs(each)
            )
            for part in (data.corpus.train, data.corpus.validation)
        )
        # Sources of pairs are tokenized with their prefix, texts of span corruption without.
        tokens = [np.array(data.tokenizer.encode(each.prefix.rstrip()), np.int32) for each in corpora.values()]
        tokens += [each.source_token_ids() for each in data.learned]
        seen = measure_coverage(train, np.unique(np.concatenate(tokens)), longest, data.tokenizer)
        seen.save(folder / TOKENIZER, list(validation), data.tokenizer)

    def validate(self, train_context: MixtureContext, log: RunLog) -> Validation:
        recipe, data, model = train_context.recipe, train_context.data, train_context.model
        decoding = recipe.decoding.with_beam(recipe.validation.beam)
        now = recipe.model_copy(update={"decoding": decoding})
        place, device_context = Path(recipe.name), train_context.trainer.device_context
        run = LoadedModel(place, place, now, model.eval(), data.tokenizers, device_context)
        tasks, samples, found = [], [], {LOSS: self._loss_of(run, data.validation)}
        for name, part in data.corpus.validation.parts.items():
            loss = self._loss_of(run, {name: data.validation[name]})
            rows = part.select(range(min(recipe.validation.sentences or len(part), len(part))))
            tasks.append(score := score_task(run, name, recipe.data.corpora[name], rows, no_progress_bar, loss))
            found |= {f"{name}/{LOSS}": loss, f"{name}/{score.metric}": score.value}
            texts = zip(score.sources, score.references, score.written, strict=False)
            samples += [Sample(f"{name}: {source}", reference, output) for source, reference, output in texts][:2]
        mean = mean_of(tasks)
        found |= {} if mean is None else {MEAN: mean}
        log.log_validation(train_context.trainer.update, found, samples)
        metric = name = recipe.validation.metric
        if name not in (LOSS, MEAN):
            metric = recipe.data.corpora[name].metric
            name = f"{name}/{metric}"
        lower_is_better = metric in LOWER_IS_BETTER
        return Validation(train_context.trainer.update, found[name], found[LOSS], lower_is_better)

    def evaluate(
        self, run: MixtureRun, part: Mixture, scoring: EvaluationOptions, progress_bar: ProgressBar
    ) -> TextToTextEvaluation:
        recipe, lowercase, found = run.recipe, run.tokenizers[0].writes_lowercase, []
        for name, each in part.parts.items():
            settings = recipe.data.corpora[name]
            if scoring.tokenizer:
                settings = settings.model_copy(update={"bleu_tokenizer": scoring.tokenizer})
            tokens, _ = in_pieces(each, settings, run.tokenizers[0], recipe.batches.max_length)
            loss = self._loss_of(run, {name: tokens})
            found.append(with_intervals(score_task(run, name, settings, each, progress_bar, loss), lowercase))
        return TextToTextEvaluation(
            run=str(run.path),
            checkpoint=run.checkpoint.name,
            split=scoring.name,
            beam=recipe.decoding.beam,
            lowercase=lowercase,
            mean=mean_of(found),
            tasks=found,
            sampling_seed=recipe.decoding.sampling_seed,
        )

    def examples_for_inference(self, run: MixtureRun, part: Mixture) -> MixedDataset:
        return _read(run.recipe, part, run.tokenizers[0])

    def score_tokens(self, run: MixtureRun, batch: ParallelBatch) -> RescoredHypotheses:
        from s2s.tasks.source_use import rescore_texts

        return rescore_texts(run, batch)

    def diagnose(
        self, run: MixtureRun, part: Mixture, rows: Int[np.ndarray, " examples"], progress_bar: ProgressBar
    ) -> "Diagnostics":
        from s2s.tasks.text_to_text.diagnosis import symptoms

        return symptoms(run, part, rows, progress_bar)

    def inspect(self, run: MixtureRun, focus: "InspectionRequest") -> "Inspection":
        from s2s.tasks.text_to_text.diagnosis import inspect_inputs

        return inspect_inputs(run, focus)

    def _loss_of(self, run: MixtureRun, tokens: Mapping[str, TokenizedPairSource]) -> float:
        """Return the cross-entropy without label smoothing, in nats per target token."""
        examples = all_pairs_by_corpus(tokens, run.recipe.batches)
        return trainer.mean_loss(run.model, examples, PLAIN_LOSS, run.device_context)


def _read(recipe: TextToTextRecipe, part: Mixture, tokenizer: Tokenizer) -> MixedDataset:
    longest, corpora = recipe.batches.max_length, recipe.data.corpora
    tokens = {name: in_pieces(each, corpora[name], tokenizer, longest)[0] for name, each in part.parts.items()}
    return all_pairs_by_corpus(tokens, recipe.batches)


TASK = TextToTextTask()
