"""docs/gallery.md shows pictures that exist, with commands that s2s has."""

import re

from s2s.cli.main import _COMMANDS
from s2s.comparison.plans import experiments_of
from s2s.recipe.installed import models
from tests.docs.runner import page_path

PAGE = page_path("gallery")


def test_gallery_shows_each_picture_once():
    found = re.findall(r"^!\[.+\]\((.+)\)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) == len(set(found)) > 10
    assert [name for name in found if not (PAGE.parent / name).is_file()] == []
    # every picture of the other pages that s2s draws is here
    others = [path.read_text(encoding="utf-8") for path in PAGE.parent.glob("*.md") if path != PAGE]
    drawn = {name for text in others for name in re.findall(r"!\[.+\]\((images/.+\.png)\)", text)}
    assert drawn <= set(found)


def test_gallery_commands_are_commands_of_s2s():
    words = [command.split() for command in re.findall(r"`s2s ([a-z][^`]+)`", PAGE.read_text(encoding="utf-8"))]
    assert {first for first, *_ in words} <= set(_COMMANDS)
    for compared in [rest for first, *rest in words if first == "compare" and rest]:
        *names, option, experiment = compared
        assert option == "--experiment"
        assert experiment in experiments_of("translation")
        assert set(names) <= set(models())
        assert len(names) > 1
