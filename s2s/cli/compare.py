"""`s2s compare`."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from s2s.cli.comparing import Order, begin, check_lone, order
from s2s.errors import quoted


def _note(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keeps a word of the order: there are more of them than a signature should have."""
    context.meta.setdefault(__name__, {})[option.name] = value


_noted = partial(click.option, expose_value=False, callback=_note)


@click.command()
@click.argument("words", nargs=-1, metavar="MODEL... [key=value]...", expose_value=False, callback=_note)
@_noted("--task", type=click.Path(path_type=Path), metavar="RECIPE", help="A classification task, such as ag_news.")
@_noted("--profile", type=click.Choice(["quick", "standard"]), help="Sizes for translation; quick when absent.")
@_noted("--seeds", type=click.IntRange(1, 100), help="Repetitions; 3 when absent.")
@_noted("--match", type=click.Choice(["parameters", "time"]), help="What is made equal; parameters when absent.")
@_noted("--experiment", "experiments", multiple=True, metavar="NAME", help="Only this one; may be repeated.")
@_noted("--recipe", type=click.Path(path_type=Path), help="A translation task; the profile's own when absent.")
@_noted("--out", type=click.Path(path_type=Path), help="Folder; runs/compare-MODEL-MODEL when absent.")
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR", help="Go on with a comparison.")
@click.pass_context
def compare(context: click.Context, resume: Path | None) -> None:
    """Compare models: `s2s compare rnn transformer` measures every cell of the classroom table.

    MODEL is an installed model (`s2s models`). `section.key=value` changes the task that all share, and
    `MODEL.key=value` a setting of one model. With --task, the models name classes of texts instead of translating.
    What is found is in DIR/report.html.
    """
    asked = Order(**context.meta[__name__])
    if resume:
        check_lone(asked)
    folder = resume or begin(order(asked))
    from rich.console import Console

    from s2s.experiments.comparison import go_on
    from s2s.report.drawing import draw

    go_on(folder, Console())
    click.echo(f"report:  {draw(folder)}\ncurves:  tensorboard --logdir {quoted(folder)}")
