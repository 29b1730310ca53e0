"""Scores of files of translations, and significance tests between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from s2s.data.text_files import line_rows
from s2s.errors import UserError, counted
from s2s.evaluation.metrics import References, Score, score_lines, scores
from s2s.evaluation.significance import Comparison, compare
from s2s.evaluation.tokenization import choose_tokenization, describe_tokenizer
from s2s.recipe.schema import BleuTokenizer


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
    source: Path | None = None,
) -> tuple[list[FileScores], list[Comparison]]:
    """Score files of translations, and test each file against the first.

    Args:
        files: Translations of the same sources by one or more systems, line by line.
        references: One or more files; with several, each line has several references.
        names: Metrics, as in `s2s.evaluation.metrics.NAMES`.
        tokenizer: sacreBLEU tokenizer for BLEU and TER; a line is printed about any but `13a`.
        source: Sources, line by line, for installed metrics.

    Returns:
        Scores of each file, and the comparisons with the first file.

    Raises:
        UserError: A file cannot be read, has no lines or a different number of lines; or a tokenizer is not installed.
    """
    systems: dict[str, list[str]] = {}
    wanted: list[list[str]] = []
    sources: list[str] | None = None
    for file in files:
        rows = list(line_rows(file, *references, *([source] if source else [])))
        if not rows:
            raise UserError("has no lines", where=str(file), remedy="name a file with one translation per line")
        systems[str(file)], wanted = [row[0] for row in rows], [row[1 : 1 + len(references)] for row in rows]
        sources = [row[-1] for row in rows] if source else None
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
            scores(lines, texts, lowercase, names, tokenization, sources),
        )
        for name, lines in systems.items()
    ]
    return found, compare(systems, texts, lowercase, names, tokenization, sources) if len(systems) > 1 else []
