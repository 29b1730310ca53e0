"""Scores of the translations of a run."""

import json
from dataclasses import asdict, dataclass

from s2s.data.pairs import with_prefix
from s2s.decoding.generate import length_limited
from s2s.errors import counted
from s2s.evaluation.metrics import NAMES, Bucket, by_source_length, scores, word_accuracy
from s2s.evaluation.tokenization import choose_tokenization
from s2s.models.base import Seq2Seq
from s2s.tasks.base import EvaluationOptions, LoadedModel
from s2s.tasks.seq2seq import build_translator
from s2s.tasks.text_generation import GenerationEvaluation
from s2s.tasks.translation.recipe import Recipe
from s2s.training.progress import ProgressBar


@dataclass(frozen=True, repr=False)
class TranslationEvaluation(GenerationEvaluation):
    """Scores and translations of a run on a split.

    Attributes:
        words: Share of words that are correct at their position, in percent; None unless each source word has one
            target word, and if the caller names metrics.
        buckets: BLEU by source length; empty if the caller names other metrics.
        sources: Sources without the run's prefix.
        translations: Output of the model for each source.
    """

    words: float | None
    buckets: list[Bucket]
    sources: list[str]
    translations: list[str]

    @property
    def inputs(self) -> list[str]:
        return self.sources

    @property
    def outputs(self) -> list[str]:
        return self.translations

    def __str__(self) -> str:
        lines = self.score_table(counted(len(self.sources), "sentence"))
        if self.words is not None:
            lines.append(f"  {'words':8} {self.words:6.2f} % are correct at their position")
        if len(self.buckets) > 1:
            lines.append("  BLEU by source length: " + " · ".join(map(str, self.buckets)))
        return "\n".join([*lines, *self.notes()])

    def to_json(self) -> str:
        exact = {"exact": self.scores["exact"].value} if "exact" in self.scores else {}
        return json.dumps(asdict(self) | self.summary() | exact, indent=1, ensure_ascii=False)


def evaluate_pairs(
    run: LoadedModel[Recipe, Seq2Seq],
    sources: list[str],
    references: list[str] | list[list[str]],
    scoring: EvaluationOptions,
    progress_bar: ProgressBar,
) -> TranslationEvaluation:
    """Translate sources and score the translations."""
    with progress_bar("translating", len(sources)) as advance:
        asked = [with_prefix(run.recipe.data.prefix, source) for source in sources]
        translator = build_translator(run)
        written = list(translator.translate(asked, advance))
    translations = [each.text for each in written]
    names = scoring.metrics or NAMES
    own_case = run.tokenizers[-1].writes_lowercase
    lowercase = scoring.lowercase or own_case
    tokenization = choose_tokenization(references, scoring.tokenizer or run.recipe.validation.bleu_tokenizer)
    return TranslationEvaluation(
        run=str(run.path),
        checkpoint=run.checkpoint.name,
        split=scoring.name,
        beam=run.recipe.decoding.beam,
        length_penalty=run.recipe.decoding.length_penalty,
        lowercase=lowercase,
        own_case=lowercase == own_case,
        scores=scores(translations, references, lowercase, names, tokenization, sources),
        words=None if scoring.metrics else word_accuracy(sources, translations, references, lowercase),
        buckets=by_source_length(sources, translations, references, lowercase, tokenization) if "bleu" in names else [],
        sources=sources,
        references=references,
        translations=translations,
        tokenizer=tokenization.tokenizer,
        length_limited=length_limited(written, translator.length_settings),
        sampling_seed=run.recipe.decoding.sampling_seed,
    )
