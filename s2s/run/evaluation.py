"""Scores of runs on their corpora, and comparisons between runs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import datasets

from s2s.data.corpora import load, load_split
from s2s.data.text_files import line_pairs
from s2s.errors import UserError
from s2s.evaluation.metrics import Bucket, Score, by_source_length, scores, word_accuracy
from s2s.evaluation.significance import Comparison, compare
from s2s.files import write_atomically
from s2s.recipe.schema import DataSettings
from s2s.run.held_out import digest_of_texts, split_to_score
from s2s.run.loading import LoadedRun, load_run
from s2s.training.progress import Meter, silent


@dataclass(frozen=True)
class Evaluation:
    """What a run scored on a split.

    Attributes:
        run: the run's folder.
        checkpoint: the checkpoint's name.
        split: `test` or `validation`, or the name of the file of the sources.
        beam: size of the beam.
        length_penalty: the search's α.
        lowercase: whether case was ignored.
        scores: of each metric.
        words: share of words at their right place, in percent; None unless each source word is answered by one.
        buckets: BLEU by source length.
        sources: what was translated.
        references: untouched.
        translations: what the model wrote.
    """

    run: str
    checkpoint: str
    split: str
    beam: int
    length_penalty: float
    lowercase: bool
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
        """The values alone, by metric."""
        return {name: s.value for name, s in self.scores.items()}

    def examples(self, count: int) -> list[tuple[str, str]]:
        """Some sources and their translations, spread over the split; no source twice."""
        pairs = list(dict(zip(self.sources, self.translations, strict=True)).items())
        return pairs[:: max(1, len(pairs) // count)][:count]

    def keep(self) -> None:
        """Writes it into the run's folder, as `evaluation-<split>.json`."""
        cased = "-lowercase" if self.lowercase else ""
        write_atomically(Path(self.run) / f"evaluation-{self.split}{cased}.json", self.to_json())

    def to_json(self) -> str:
        """Everything, translations included; `exact` alone, too, where it always was."""
        found = asdict(self) | {"exact": self.scores["exact"].value}
        return json.dumps(found, indent=1, ensure_ascii=False)


def evaluate_run(
    path: Path,
    split: str = "test",
    lowercase: bool = False,
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    keep: bool = True,
    files: tuple[Path, Path] | None = None,
    meter: Meter = silent,
) -> Evaluation:
    """Translates a split, or a file, and scores it on the untouched references.

    Args:
        path: the run's folder.
        split: `test` or `validation`.
        lowercase: score without regard to case.
        checkpoint: see `load_run`.
        overrides: `section.key=value` for `data`, `decoding` and `device`.
        keep: whether this is the run's result, kept in its folder as `evaluation-<split>.json`; of files, as
            `evaluation-file-<name of the sources' file>.json`.
        files: sources and references, line by line, in the place of a split.
        meter: shows how far it is.

    Raises:
        UserError: it is not a run, its recipe has no such split, or the files have not equally many lines, or none.
    """
    run = load_run(path, checkpoint, overrides)
    if files is not None:
        split = f"file-{files[0].name}"
    sources, references = _lines_of(*files) if files else _pairs(path, run.recipe.data, split)
    with meter("translating", len(sources)) as advance:
        translations = [t.text for t in run.translator().translate(sources, advance)]
    evaluation = _scored(run, path, split, lowercase, (sources, references, translations))
    if keep:
        evaluation.keep()
    return evaluation


def _lines_of(source: Path, reference: Path) -> tuple[list[str], list[str]]:
    rows = list(line_pairs(source, reference))
    if not rows:
        raise UserError("has no lines", where=str(source), remedy="name a file with a sentence a line")
    return [row["source"] for row in rows], [row["target"] for row in rows]


def compare_runs(evaluations: list[Evaluation]) -> list[Comparison]:
    """Tests each run against the first with sacreBLEU's paired bootstrap.

    Raises:
        UserError: the runs were not scored on the same sentences.
    """
    first = evaluations[0]
    for other in evaluations[1:]:
        if (other.sources, other.references) != (first.sources, first.references):
            raise UserError(
                f"{first.run} and {other.run} have different {first.split} sets",
                remedy="compare runs on the same data, e.g. by data.corpus, data.root and data.test overrides",
            )
    return compare({e.run: e.translations for e in evaluations}, first.references, first.lowercase)


def digest_of_pairs(pairs: datasets.Dataset) -> str:
    """What identifies sentence pairs."""
    return digest_of_texts(pairs, "source", "target")


def _pairs(path: Path, settings: DataSettings, split: str) -> tuple[list[str], list[str]]:
    found = split_to_score(
        path, settings, split, lambda: load_split(settings, split), lambda: load(settings), digest_of_pairs
    )
    return list(found["source"]), list(found["target"])


def _scored(
    run: LoadedRun, path: Path, split: str, lowercase: bool, texts: tuple[list[str], list[str], list[str]]
) -> Evaluation:
    sources, references, translations = texts
    return Evaluation(
        run=str(path),
        checkpoint=run.checkpoint.name,
        split=split,
        beam=run.recipe.decoding.beam,
        length_penalty=run.recipe.decoding.length_penalty,
        lowercase=lowercase,
        scores=scores(translations, references, lowercase),
        words=word_accuracy(sources, translations, references, lowercase),
        buckets=by_source_length(sources, translations, references, lowercase),
        sources=sources,
        references=references,
        translations=translations,
    )
