"""`s2s reproduce`."""

from pathlib import Path

import click

from s2s.cli import options


@options.command()
@click.argument("name", required=False)
@click.argument("settings", nargs=-1, metavar="[SECTION.KEY=VALUE]...")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder; runs/reproduce-NAME when absent.")
@click.option("--seeds", type=click.IntRange(1, 100), help="Repetitions; the finding's own number when absent.")
def reproduce(name: str | None, settings: tuple[str, ...], out: Path | None, seeds: int | None) -> None:
    """Measure a published finding again: `s2s reproduce radius`. Without NAME, list them with their numbers and costs.

    A finding that trains by a recipe takes the recipe's settings: `s2s reproduce tiny data.root=DIR`.

    What comes out is in DIR/report.html and DIR/reproduction.json. A command that was interrupted goes on where it was.
    A finding that is not found again is a result like any other.
    """
    from s2s.comparison.report.reproduction import draw
    from s2s.comparison.reproduce.reproducing import describe_all, format_result, reproduce

    if name is None:
        click.echo(describe_all())
        return
    result = reproduce(name, out or Path("runs") / f"reproduce-{name}", seeds, click.echo, settings)
    click.echo(f"{format_result(result)}\nreport:  {draw(out or Path('runs') / f'reproduce-{name}')}")
