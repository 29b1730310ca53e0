"""Commands `s2s compare` and `s2s report`: compare models, and render the report again."""

from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import click

from s2s.cli import options
from s2s.comparison.plans import Profile, experiments_of
from s2s.comparison.request import MATCHES, Order, check_cluster, check_resumes, extended, order
from s2s.errors import quote_path
from s2s.training import cpu_affinity

_ONLY = f"Answer only this question; may be repeated. For translation: {', '.join(experiments_of('translation'))}."


@options.command()
@click.argument("words", nargs=-1, metavar="MODEL... [key=value]...")
@click.option("--task", type=options.FILE, metavar="RECIPE", help="Recipe of a classification task, such as ag_news.")
@click.option("--profile", type=click.Choice(get_args(Profile)), help="Questions and sizes; default: quick.")
@click.option("--seeds", type=click.IntRange(1, 100), help="Number of seeds; default: 3, 5 or 5, by profile.")
@click.option("--match", type=click.Choice(MATCHES), help="Quantity to make equal; default: parameters.")
@click.option("--experiment", "experiments", multiple=True, metavar="NAME", help=_ONLY)
@click.option("--recipe", type=options.FILE, help="Recipe of a translation task; default: that of the profile.")
@click.option("--out", type=options.FILE, help="Folder to write; default: runs/compare-MODEL-MODEL.")
@click.option(
    "--resume", type=options.FILE, metavar="DIR", help="Resume; with MODEL, --seeds or --experiment, extend it."
)
@click.option("--cluster", metavar="ADDRESS", help="Run the trials on a Ray cluster: auto, HOST:PORT or ray://HOST.")
@click.option("--cost", is_flag=True, help="Print the estimated cost and start nothing.")
@options.quiet
def compare(
    words: tuple[str, ...],
    task: Path | None,
    profile: str | None,
    seeds: int | None,
    match: str | None,
    experiments: tuple[str, ...],
    recipe: Path | None,
    out: Path | None,
    resume: Path | None,
    cluster: str | None,
    cost: bool,
    quiet: bool,
) -> None:
    """Compare models: `s2s compare rnn transformer` answers the questions of the `quick` profile.

    MODEL is an installed model (`s2s recipe models`), or one with settings: `transformer:norm=post,activation=gelu`.
    `section.key=value` changes the task for all models, and `MODEL.key=value` a setting of all candidates of that
    model. With --task, the models classify texts instead of translating. The report is DIR/report.html.
    """
    asked = Order(words, profile, seeds, match, experiments, recipe, out, task)
    planned = None if resume else order(asked)
    if resume:
        check_resumes(asked)
    check_cluster(cluster)
    # Before torch is loaded.
    with cpu_affinity.save_affinity():
        from rich.console import Console

        from s2s.comparison.cluster import Cluster
        from s2s.comparison.engine import check_concluded, describe_costs
        from s2s.comparison.engine import resume as resume_comparison
        from s2s.comparison.report.drawing import claims_in_words, draw
        from s2s.comparison.setup import create, load_summary

        folder = planned.folder if planned else resume or Path()
        summary = planned.summary if planned else extended(load_summary(folder), asked)
        # Connect before anything is written.
        with Cluster(cluster) if cluster else nullcontext() as connected:
            if cost:
                click.echo(describe_costs(folder, summary, planned and planned.base, connected))
                return
            if planned:
                create(folder, planned.base, summary, options.printer(quiet))
            resume_comparison(folder, Console(quiet=quiet), connected, summary)
        page = draw(folder)
        for line in claims_in_words(folder):
            click.echo(line)
        click.echo(f"report:  {page}\ncurves:  tensorboard --logdir {quote_path(folder)}")
        check_concluded(folder)


@options.command()
@click.argument("folder", type=options.FILE)
def report(folder: Path) -> None:
    """Render the report of the comparison in FOLDER again, from its saved files."""
    from s2s.comparison.report.drawing import claims_in_words, draw

    page = draw(folder)
    for line in claims_in_words(folder):
        click.echo(line)
    click.echo(page)
