"""`s2s evaluate`."""

from pathlib import Path

import click


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="RUN [RUN]... [section.key=value]...")
@click.option("--split", type=click.Choice(["test", "validation"]), default="test", show_default=True)
@click.option("--lowercase", is_flag=True, help="Score without regard to case.")
@click.option("--beam", type=click.IntRange(1), help="Hypotheses kept at each step; the recipe's by default.")
@click.option("--checkpoint", help="best, last, average or a number; the average if there is one, else the best.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
def evaluate(
    words: tuple[str, ...], split: str, lowercase: bool, beam: int | None, checkpoint: str | None, file: Path | None
) -> None:
    """Score RUN on a split of its corpus; with several runs, test each against the first."""
    from s2s.cli.runs import score_runs

    evaluations, comparisons = score_runs(words, split, lowercase, beam, checkpoint)
    for part in (*evaluations, *comparisons):
        click.echo(str(part))
    if file:
        file.write_text("[" + ",\n".join(e.to_json() for e in evaluations) + "]\n", encoding="utf-8")
