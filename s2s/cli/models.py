"""`s2s models`."""

import click


@click.command()
def models() -> None:
    """List the installed models: what `model.kind` may be."""
    from s2s.recipe.installed import models as installed
    from s2s.recipe.installed import module_of, package_of

    for kind, point in installed().items():
        first_line = (module_of(kind).__doc__ or "").strip().split("\n")[0]
        click.echo(f"{kind:20} {package_of(point):16} {first_line}")
