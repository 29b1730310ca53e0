"""`s2s evaluate`."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from s2s.errors import UserError


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
    if file and not file.parent.is_dir():
        raise UserError("there is no such folder", where=str(file.parent), remedy="make it, or name another file")
    from s2s.cli.runs import score_runs

    evaluations, comparisons = score_runs(words, split, lowercase, beam, checkpoint)
    for part in (*evaluations, *comparisons):
        click.echo(str(part))
    if file:
        found = {"evaluations": evaluations, "comparisons": comparisons}
        rows = {name: [asdict(part) for part in parts] for name, parts in found.items()}
        file.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
