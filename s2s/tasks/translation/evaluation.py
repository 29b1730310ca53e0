"""Scores of translations, a run's or a file's, and comparisons between them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from s2s.data.pairs import with_prefix
from s2s.data.text_files import line_rows
from s2s.decoding.generate import LengthLimited, length_limited
from s2s.errors import UserError
from s2s.evaluation.metrics import Bucket, References, Score, by_source_length, score_lines, scores, word_accuracy
from s2s.evaluation.significance import Comparison, compare
from s2s.evaluation.tokenization import choose_tokenization, describe_tokenizer
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import BleuTokenizer
from s2s.tasks.base import Evaluation, EvaluationOptions, LoadedModel
from s2s.tasks.comparable import check_case, check_comparable, check_tokenizers
from s2s.tasks.seq2seq import build_translator
from s2s.tasks.translation.recipe import Recipe
from s2s.training.progress import ProgressBar

_SAMPLES = 3


@dataclass(frozen=True)
class TranslationEvaluation(Evaluation):
    """What a translator scored on a split.

    `words` is the share of words at their right place, in percent; None unless each source word is answered by one.
    `own_case` says whether that is how the run is always scored: what only writes lower-case letters is compared with
    references without regard to case, since it can reach no other. Sources are without the run's prefix. A sentence has
    one reference, or a list of several. `tokenizer` is sacreBLEU's, of BLEU and TER.
    `length_limited` counts translations that the length limit ended; None where there are none.
    """

    beam: int
    length_penalty: float
    lowercase: bool
    own_case: bool
    scores: dict[str, Score]
    words: float | None
    buckets: list[Bucket]
    sources: list[str]
    references: list[str] | list[list[str]]
    translations: list[str]
    tokenizer: BleuTokenizer = field(default="13a", kw_only=True)
    length_limited: LengthLimited | None = field(default=None, kw_only=True)

    def notes(self) -> list[str]:
        return [*super().notes(), *([f"  {self.length_limited}"] if self.length_limited else [])]

    def __str__(self) -> str:
        case = "lower-cased" if self.lowercase else "cased"
        lines = [
            f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {len(self.sources):,} sentences, "
            f"beam {self.beam}, {case}"
        ]
        if note := describe_tokenizer(self.tokenizer, self.references):
            lines.append(f"  {note}")
        lines += score_lines(self.scores)
        if self.words is not None:
            lines.append(f"  {'words':8} {self.words:6.2f} % are right, each in its place")
        if len(self.buckets) > 1:
            lines.append("  BLEU by source length: " + " · ".join(map(str, self.buckets)))
        return "\n".join([*lines, *self.notes()])

    def headline_metrics(self) -> dict[str, float]:
        return {name: s.value for name, s in self.scores.items()}

    def samples(self) -> list[tuple[str, str]]:
        """Some sources and their translations, spread over the split; no source twice."""
        pairs = list(dict(zip(self.sources, self.translations, strict=True)).items())
        return pairs[:: max(1, len(pairs) // _SAMPLES)][:_SAMPLES]

    @property
    def file(self) -> str:
        """Another one where case was ignored though the run writes both."""
        return f"evaluation-{self.split}{'' if self.own_case else '-lowercase'}.json"

    def to_json(self) -> str:
        found = asdict(self) | self.summary() | {"exact": self.scores["exact"].value}
        return json.dumps(found, indent=1, ensure_ascii=False)

    @classmethod
    def compare(cls, evaluations: Sequence[Self]) -> list[Comparison]:
        """By exchanging translations."""
        first = evaluations[0]
        check_comparable(evaluations, lambda each: (each.sources, each.references))
        check_case([each.lowercase for each in evaluations])
        check_tokenizers([each.tokenizer for each in evaluations])
        tokenization = choose_tokenization(first.references, first.tokenizer)
        translations = {each.run: each.translations for each in evaluations}
        return compare(translations, first.references, first.lowercase, tokenization=tokenization)


def evaluate_pairs(
    run: LoadedModel[Recipe, Seq2Seq],
    sources: list[str],
    references: list[str] | list[list[str]],
    scoring: EvaluationOptions,
    progress_bar: ProgressBar,
) -> TranslationEvaluation:
    """Translates sources, each after the run's prefix, and scores the translations on the untouched references."""
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
    """What the lines of a file scored against those of one or more references."""

    file: str
    reference: str | list[str]
    lines: int
    lowercase: bool
    scores: dict[str, Score]

    def __str__(self) -> str:
        case = "lower-cased" if self.lowercase else "cased"
        several = [self.reference] if isinstance(self.reference, str) else self.reference
        count = f" each of {len(several)} references" if len(several) > 1 else ""
        head = f"{self.file} against{count} {', '.join(several)}: {self.lines:,} lines, {case}"
        return "\n".join([head, *score_lines(self.scores)])


def score_files(
    files: Sequence[Path],
    references: Sequence[Path],
    lowercase: bool,
    names: Sequence[str],
    tokenizer: BleuTokenizer = "auto",
    print_fn: Callable[[str], object] = lambda _: None,
) -> tuple[list[FileScores], list[Comparison]]:
    """Scores files of translations, line by line, by the named metrics, and tests each against the first.

    Args:
        files: Translations of the same sources by one or more systems.
        references: One or more; with several, each line has all their lines as references.
        lowercase: Score without regard to case.
        names: Metrics, as in `s2s.evaluation.metrics.NAMES`.
        tokenizer: sacreBLEU's, of BLEU and TER.
        print_fn: Prints a line, about the tokenizer where it is not `13a`.

    Raises:
        UserError: A file cannot be read, has no lines, or not as many as the others; or the tokenizer needs what is
            not installed.
    """
    systems: dict[str, list[str]] = {}
    wanted: list[list[str]] = []
    for file in files:
        rows = list(line_rows(file, *references))
        if not rows:
            raise UserError("has no lines", where=str(file), remedy="name a file with a translation a line")
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
