"""What docs/export.md says of speed is measured by one command."""

import pytest

pytest.importorskip("ctranslate2")

from benchmarks import exports
from benchmarks.keeping import written


def test_an_export_is_measured_beside_its_run_and_told_on_the_page(small):
    found = exports.measure(small, ["decoding.beam=3"], rounds=2)
    names = [*exports.TORCH, *exports.ENGINES]
    assert (found["sentences"], found["beam"], found["width"]) == (10, 3, 32)
    assert [sorted(each) for each in found["seconds"]] == [sorted(names)] * 2
    assert found["other"][exports.TORCH[0]] == 0
    page = exports.PAGE.read_text(encoding="utf-8")
    shown = written(page, exports.table(found), exports.WRITER)
    assert all(f"\n| {name} | " in shown for name in names)
    assert shown.partition("<!--")[0] == page.partition("<!--")[0]
    assert shown.count("<!--") == page.count("<!--") == 2
