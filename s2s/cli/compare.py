"""`s2s compare`."""

from pathlib import Path

import click

from s2s.cli.comparing import Order, begin, check_lone, order


@click.command()
@click.argument("words", nargs=-1, metavar="MODEL... [key=value]...")
@click.option("--profile", type=click.Choice(["quick", "standard"]), help="Sizes; quick when absent.")
@click.option("--seeds", type=click.IntRange(1, 100), help="Repetitions; 3 when absent.")
@click.option("--match", type=click.Choice(["parameters", "time"]), help="What is made equal; parameters when absent.")
@click.option("--experiment", "experiments", multiple=True, metavar="NAME", help="Only this one; may be repeated.")
@click.option("--recipe", type=click.Path(path_type=Path), help="The translation task; the profile's own when absent.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder; runs/compare-MODEL-MODEL when absent.")
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR", help="Go on with a comparison.")
def compare(
    words: tuple[str, ...],
    profile: str | None,
    seeds: int | None,
    match: str | None,
    experiments: tuple[str, ...],
    recipe: Path | None,
    out: Path | None,
    resume: Path | None,
) -> None:
    """Compare models: `s2s compare rnn transformer` measures every cell of the classroom table.

    MODEL is an installed model (`s2s models`). `section.key=value` changes the translation task that all share, and
    `MODEL.key=value` a setting of one model. What is found is in DIR/report.html.
    """
    asked = Order(words, profile, seeds, match, experiments, recipe, out)
    if resume:
        check_lone(asked)
    folder = resume or begin(order(asked))
    from rich.console import Console

    from s2s.experiments.comparison import go_on
    from s2s.report.drawing import draw

    go_on(folder, Console())
    click.echo(f"report:  {draw(folder)}\ncurves:  tensorboard --logdir {folder}")
