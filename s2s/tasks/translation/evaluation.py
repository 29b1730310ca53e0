"""Scores of translations, for a run or for files, and significance tests."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.data.pairs import with_prefix
from s2s.data.text_files import line_rows
from s2s.decoding.generate import length_limited
from s2s.errors import UserError, counted
from s2s.evaluation.metrics import Bucket, References, Score, by_source_length, score_lines, scores, word_accuracy
from s2s.evaluation.tokenization import choose_tokenization, describe_tokenizer
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import BleuTokenizer
from s2s.tasks.base import EvaluationOptions, LoadedModel
from s2s.tasks.seq2seq import build_translator
from s2s.tasks.text_generation import GenerationEvaluation
from s2s.tasks.translation.recipe import Recipe
from s2s.training.progress import ProgressBar

if TYPE_CHECKING:
    from s2s.evaluation.significance import Comparison


@dataclass(frozen=True)
class TranslationEvaluation(GenerationEvaluation):
    """Scores and translations of a run on a split.

    Attributes:
        words: Share of words that are correct at their position, in percent; None unless each source word has one
            target word.
        buckets: BLEU by source length.
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
        found = asdict(self) | self.summary() | {"exact": self.scores["exact"].value}
        return json.dumps(found, indent=1, ensure_ascii=False)


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
        scores=scores(translations, references, lowercase, tokenization=tokenization),
        words=word_accuracy(sources, translations, references, lowercase),
        buckets=by_source_length(sources, translations, references, lowercase, tokenization),
        sources=sources,
        references=references,
        translations=translations,
        tokenizer=tokenization.tokenizer,
        length_limited=length_limited(written, translator.length_settings),
    )


@dataclass(frozen=True)
class FileScores:
    """Scores of a file of translations against one or more reference files."""

    file: str
    reference: str | list[str]
    lines: int
    lowercase: bool
    scores: dict[str, Score]

    def __str__(self) -> str:
        case = "lower-cased" if self.lowercase else "cased"
        several = [self.reference] if isinstance(self.reference, str) else self.reference
        count = f" each of {len(several)} references" if len(several) > 1 else ""
        head = f"{self.file} against{count} {', '.join(several)}: {counted(self.lines, 'line')}, {case}"
        return "\n".join([head, *score_lines(self.scores)])


def score_files(
    files: Sequence[Path],
    references: Sequence[Path],
    lowercase: bool,
    names: Sequence[str],
    tokenizer: BleuTokenizer = "auto",
    print_fn: Callable[[str], object] = lambda _: None,
) -> "tuple[list[FileScores], list[Comparison]]":
    """Score files of translations, and test each file against the first.

    Args:
        files: Translations of the same sources by one or more systems, line by line.
        references: One or more files; with several, each line has several references.
        names: Metrics, as in `s2s.evaluation.metrics.NAMES`.
        tokenizer: sacreBLEU tokenizer for BLEU and TER; a line is printed about any but `13a`.

    Returns:
        Scores of each file, and the comparisons with the first file.

    Raises:
        UserError: A file cannot be read, has no lines or a different number of lines; or a tokenizer is not installed.
    """
    from s2s.evaluation.significance import compare

    systems: dict[str, list[str]] = {}
    wanted: list[list[str]] = []
    for file in files:
        rows = list(line_rows(file, *references))
        if not rows:
            raise UserError("has no lines", where=str(file), remedy="name a file with one translation per line")
        systems[str(file)], wanted = [row[0] for row in rows], [row[1:] for row in rows]
    texts: References = wanted if len(references) > 1 else [each for (each,) in wanted]
    tokenization = choose_tokenization(texts, tokenizer)
    if note := describe_tokenizer(tokenization.tokenizer, texts):
        print_fn(note)
    paths = [str(path) for path in references]
    found = [
        FileScores(
            name,
            paths if len(paths) > 1 else paths[0],
            len(lines),
            lowercase,
            scores(lines, texts, lowercase, names, tokenization),
        )
        for name, lines in systems.items()
    ]
    return found, compare(systems, texts, lowercase, names, tokenization) if len(systems) > 1 else []
