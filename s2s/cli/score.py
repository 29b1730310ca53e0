"""`s2s score`."""

from pathlib import Path

import click

from s2s.cli.lines import check_output, write_json
from s2s.errors import UserError

_METRICS = ("bleu", "chrf", "ter", "exact", "cer", "wer")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="HYP [HYP]... REF")
@click.option("--metric", "names", multiple=True, type=click.Choice(_METRICS), help="Only this one; may be repeated.")
@click.option("--lowercase", is_flag=True, help="Score without regard to case.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
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
    for part in (*scores, *comparisons):
        click.echo(str(part))
    write_json(file, {"scores": scores, "comparisons": comparisons})
