"""Links between pages lead to a file, and to a heading of it, that exist."""

import re
from pathlib import Path

import pytest

from tests.docs.runner import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
# as many levels as docs/conf.py gives anchors
HEADING = re.compile(r"^#{1,3} (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in HEADING.findall(text))
    return {each.replace(" ", "-") for each in words}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_of_page_lead_to_files_and_headings(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target, anchor in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / target) if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_anchors_of_headings_are_those_of_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One, two\n\n```sh\n# no heading\n```\n\n### `rnn`: a state (claims 13 and 20)\n\n#### too deep\n"
    )
    assert anchors(page) == {"one-two", "rnn-a-state-claims-13-and-20"}
