"""The page that works attention out by hand: every number on it is what comes out."""

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "attention-by-hand.md"


def test_every_number_of_the_page_comes_out():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = doctest.DocTestParser().get_doctest("".join(blocks), {}, PAGE.name, str(PAGE), 0)
    assert len(lines.examples) > 30
    told: list[str] = []
    done = doctest.DocTestRunner().run(lines, out=told.append)
    assert not done.failed, "".join(told)
