"""The page of the files' fields says what the files hold."""

import re
from pathlib import Path

from s2s.comparison.results import Result, Summary, reference

PAGE = Path(__file__).parents[2] / "docs" / "results.md"


def test_reference_is_the_docs_page():
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_reference_describes_every_field():
    page = reference()
    for part in (Result, Summary):
        for name in part.model_fields:
            assert re.search(rf"^\| `{name}` \| `.+` \| [^ ].* \|$", page, re.MULTILINE), name
