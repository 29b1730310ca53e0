"""Options that are numbers, and what is none."""

import click
import pytest

from s2s.cli.serve import serve
from s2s.cli.use import translate
from s2s.cli.write import generate


@pytest.mark.parametrize(
    ("command", "option"),
    [(generate, "--temperature"), (generate, "--top-p"), (translate, "--length-penalty"), (serve, "--seconds")],
)
def test_what_is_no_number_is_outside_of_every_range(command, option):
    assert command.make_context("s2s", ["run", option, "1"]).params
    with pytest.raises(click.BadParameter, match="nan is not in the range"):
        command.make_context("s2s", ["run", option, "nan"])


def test_translate_takes_texts_and_no_paths():
    (source,) = (each for each in translate.params if each.name == "source")
    assert isinstance(source, click.Option)
    assert "path" not in str(source.help)
