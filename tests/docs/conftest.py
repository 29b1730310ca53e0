"""A small translator for pages and notebooks."""

import pytest


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """A translator that has learned a little."""
    from rich.console import Console

    from s2s.run.tasks import read
    from s2s.run.training import train
    from tests.export.conftest import RECIPE

    folder = tmp_path_factory.mktemp("docs")
    (folder / "small.yaml").write_text(RECIPE, encoding="utf-8")
    return train(read(folder / "small.yaml", [f"run.dir={folder / 'runs/translate'}"]), Console(quiet=True))
