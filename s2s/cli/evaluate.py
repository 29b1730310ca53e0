"""What a run, or any file of translations, scores: `s2s evaluate` and `s2s score`."""

from functools import partial
from pathlib import Path

import click

from s2s.cli.lines import check_output, show_all
from s2s.cli.main import CHECKPOINT
from s2s.errors import UserError

_FILE = click.Path(path_type=Path)
_METRICS = ("bleu", "chrf", "ter", "exact", "cer", "wer")
_lowercase = click.option("--lowercase", is_flag=True, help="Score without regard to case.")
_json = click.option("--json", "file", type=_FILE, help="Write everything to this file, too.")


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="RUN [RUN]... [section.key=value]...")
@click.option("--split", type=click.Choice(["test", "validation"]), default="test", show_default=True)
@click.option("--source", type=_FILE, help="Lines to translate in the place of a split; with --reference.")
@click.option("--reference", type=_FILE, help="What a human wrote for each line of --source.")
@_lowercase
@click.option("--beam", type=click.IntRange(1), help="Hypotheses kept at each step; the recipe's by default.")
@CHECKPOINT
@_json
def evaluate(
    words: tuple[str, ...],
    split: str,
    source: Path | None,
    reference: Path | None,
    lowercase: bool,
    beam: int | None,
    checkpoint: str | None,
    file: Path | None,
) -> None:
    """Score RUN on a split of its corpus, or on files; with several runs, test each against the first."""
    files = _both(source, reference)
    check_output(file, "--json")
    from s2s.run.folder import opened_together

    paths, overrides = [Path(word) for word in words if "=" not in word], [word for word in words if "=" in word]
    given = {"--beam": beam, "--lowercase": lowercase, "--source": files}
    runs = opened_together(paths, overrides + ([f"decoding.beam={beam}"] if beam else []), given)
    from s2s.run.scoring import score_together
    from s2s.tasks.contract import Scoring

    evaluations, comparisons = score_together(
        runs, Scoring(split, lowercase, files), checkpoint, partial(click.echo, err=True)
    )
    show_all(file, {"evaluations": evaluations, "comparisons": comparisons})


def _both(source: Path | None, reference: Path | None) -> tuple[Path, Path] | None:
    if source and reference:
        from s2s.data.text_files import check_there

        check_there(source, reference)
        return source, reference
    if source or reference:
        missing = "--reference" if source else "--source"
        raise UserError(f"{source or reference} is one of two files", remedy=f"name the other one with {missing} FILE")
    return None


@click.command()
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="HYP [HYP]... REF")
@click.option("--metric", "names", multiple=True, type=click.Choice(_METRICS), help="Only this one; may be repeated.")
@_lowercase
@_json
def score(files: tuple[Path, ...], names: tuple[str, ...], lowercase: bool, file: Path | None) -> None:
    """Score the lines of HYP against those of REF; with several HYP, test each against the first.

    Of phones with white space between them, wer is the phone error rate.
    """
    *translated, reference = files
    if not translated:
        raise UserError(f"{reference} is one file", remedy="name the translations first, then the reference")
    check_output(file, "--json")
    from s2s.data.text_files import check_there
    from s2s.tasks.translation.evaluation import score_files

    check_there(*files)
    scores, comparisons = score_files(translated, reference, lowercase, names or _METRICS)
    show_all(file, {"scores": scores, "comparisons": comparisons})
