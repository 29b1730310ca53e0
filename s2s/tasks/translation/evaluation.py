"""Scores of translations, a run's or a file's, and comparisons between them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from s2s.data.pairs import with_prefix
from s2s.data.text_files import line_pairs
from s2s.errors import UserError
from s2s.evaluation.metrics import Bucket, Score, by_source_length, scores, word_accuracy
from s2s.evaluation.significance import Comparison, compare
from s2s.models.contract import Seq2Seq
from s2s.tasks.contract import Evaluation, Loaded, Scoring, check_case, check_comparable
from s2s.tasks.seq2seq import translator_of
from s2s.tasks.translation.recipe import Recipe
from s2s.training.progress import Meter

_SAMPLES = 3


@dataclass(frozen=True)
class TranslationEvaluation(Evaluation):
    """What a translator scored on a split.

    `words` is the share of words at their right place, in percent; None unless each source word is answered by one.
    `own_case` says whether that is how the run is always scored: what only writes lower-case letters is compared with
    references without regard to case, since it can reach no other. Sources are without the run's prefix.
    """

    beam: int
    length_penalty: float
    lowercase: bool
    own_case: bool
    scores: dict[str, Score]
    words: float | None
    buckets: list[Bucket]
    sources: list[str]
    references: list[str]
    translations: list[str]

    def __str__(self) -> str:
        case = "lower-cased" if self.lowercase else "cased"
        lines = [
            f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {len(self.sources):,} sentences, "
            f"beam {self.beam}, {case}"
        ]
        lines += map(str, self.scores.values())
        if self.words is not None:
            lines.append(f"  {'words':8} {self.words:6.2f} % are right, each in its place")
        if len(self.buckets) > 1:
            lines.append("  BLEU by source length: " + " · ".join(map(str, self.buckets)))
        return "\n".join(lines)

    def main_scores(self) -> dict[str, float]:
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
        return compare({e.run: e.translations for e in evaluations}, first.references, first.lowercase)


def evaluate_pairs(
    run: Loaded[Recipe, Seq2Seq], sources: list[str], references: list[str], scoring: Scoring, meter: Meter
) -> TranslationEvaluation:
    """Translates sources, each after the run's prefix, and scores the translations on the untouched references."""
    with meter("translating", len(sources)) as advance:
        asked = [with_prefix(run.recipe.data.prefix, source) for source in sources]
        translations = [t.text for t in translator_of(run).translate(asked, advance)]
    own_case = run.tokenizers[-1].writes_lowercase
    lowercase = scoring.lowercase or own_case
    return TranslationEvaluation(
        run=str(run.path),
        checkpoint=run.checkpoint.name,
        split=scoring.name,
        beam=run.recipe.decoding.beam,
        length_penalty=run.recipe.decoding.length_penalty,
        lowercase=lowercase,
        own_case=lowercase == own_case,
        scores=scores(translations, references, lowercase),
        words=word_accuracy(sources, translations, references, lowercase),
        buckets=by_source_length(sources, translations, references, lowercase),
        sources=sources,
        references=references,
        translations=translations,
    )


@dataclass(frozen=True)
class FileScores:
    """What the lines of a file scored against those of a reference."""

    file: str
    reference: str
    lines: int
    lowercase: bool
    scores: dict[str, Score]

    def __str__(self) -> str:
        case = "lower-cased" if self.lowercase else "cased"
        head = f"{self.file} against {self.reference}: {self.lines:,} lines, {case}"
        return "\n".join([head, *map(str, self.scores.values())])


def score_files(
    files: Sequence[Path], reference: Path, lowercase: bool, names: Sequence[str]
) -> tuple[list[FileScores], list[Comparison]]:
    """Scores files of translations, line by line, by the named metrics, and tests each against the first.

    Raises:
        UserError: a file cannot be read, has no lines, or not as many as the reference; or one is named twice.
    """
    if len({file.resolve() for file in files}) < len(files):
        raise UserError("the same file is named twice", remedy="name each file once, the reference last")
    systems, references = {}, []
    for file in files:
        rows = list(line_pairs(file, reference))
        if not rows:
            raise UserError("has no lines", where=str(file), remedy="name a file with a translation a line")
        systems[str(file)], references = [row["source"] for row in rows], [row["target"] for row in rows]
    found = [
        FileScores(name, str(reference), len(lines), lowercase, scores(lines, references, lowercase, names))
        for name, lines in systems.items()
    ]
    return found, compare(systems, references, lowercase, names) if len(systems) > 1 else []
