"""The messages of docs/troubleshooting.md are those of the source."""

import re

from tests.docs.runner import ROOT, page_path


def _source() -> str:
    """Return the source with the parts of each message joined."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "s2s").rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_troubleshooting_quotes_messages_of_the_source():
    source = _source()
    headings = re.findall(r"^### `(.+)`$", page_path("troubleshooting").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(headings) > 30
    missing = []
    for heading in headings:
        # A part may be the end of one line of the source and the beginning of the next one.
        pattern = ".*?".join(re.escape(part.strip()) for part in heading.split("…") if part.strip())
        if not re.search(pattern, source):
            missing.append(heading)
    assert missing == []
