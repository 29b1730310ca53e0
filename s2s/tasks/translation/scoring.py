"""Scores of any translations against any references, from files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from s2s.data.text_files import line_pairs
from s2s.errors import UserError
from s2s.evaluation.metrics import Score, scores
from s2s.evaluation.significance import Comparison, compare


@dataclass(frozen=True)
class FileScores:
    """What the lines of a file scored.

    Attributes:
        file: of the translations.
        reference: the other file.
        lines: how many.
        lowercase: whether case was ignored.
        scores: of each metric.
    """

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
    """Scores files of translations, line by line, and tests each against the first.

    Args:
        files: of translations; a line each.
        reference: what a human wrote, a line each.
        lowercase: score without regard to case.
        names: of the metrics.

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
    tested = compare(systems, references, lowercase) if len(systems) > 1 else []
    return found, [each for each in tested if each.metric in names]
