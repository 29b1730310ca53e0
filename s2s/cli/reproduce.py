"""Command `s2s reproduce`: reproduce a published result."""

from pathlib import Path

import click

from s2s.cli import options


@options.command()
@click.argument("name", required=False)
@click.argument("settings", nargs=-1, metavar="[SECTION.KEY=VALUE]...")
@click.option("--out", type=options.FILE, metavar="DIR", help="Folder to write; default: runs/reproduce-NAME.")
@click.option("--seeds", type=click.IntRange(1, 100), help="Number of seeds; default: that of the finding.")
@options.quiet
@options.verbose("Without NAME, also list the published numbers, tolerance bands and sources.")
def reproduce(
    name: str | None, settings: tuple[str, ...], out: Path | None, seeds: int | None, quiet: bool, verbose: bool
) -> None:
    """Reproduce a published result: `s2s reproduce radius`. Without NAME, list the results with their costs.

    A result that is trained by a recipe accepts the recipe's settings: `s2s reproduce tiny data.root=DIR`. The results
    are in DIR/report.html and DIR/reproduction.json. The same command resumes an interrupted reproduction. A result
    that is not reproduced is reported like any other.
    """
    from s2s.comparison.report.drawing import draw_reproduction
    from s2s.comparison.reproduce.reproducing import describe_all, format_result
    from s2s.comparison.reproduce.reproducing import reproduce as reproduce_result

    if name is None:
        click.echo(describe_all(verbose))
        return
    folder = out or Path("runs") / f"reproduce-{name}"
    result = reproduce_result(name, folder, seeds, options.printer(quiet), settings)
    click.echo(f"{format_result(result)}\nreport:  {draw_reproduction(folder)}")
