"""The page of reproductions is what the kept files say."""

from pathlib import Path

from benchmarks import reproductions
from benchmarks.keeping import written
from s2s.comparison.reproduce.reproducing import REPRODUCTIONS, checks
from s2s.comparison.reproduced import read

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "reproductions"


def test_the_table_is_what_the_kept_files_say():
    page = (ROOT / "docs" / "reproductions.md").read_text(encoding="utf-8")
    assert written(page, reproductions.table(), "reproductions") == page
    assert len(reproductions.kept()) == len(list(RESULTS.glob("*.json"))) > 0


def test_the_kept_files_were_judged_by_the_bands_of_today():
    for path in sorted(RESULTS.glob("*.json")):
        result = read(path)
        assert path.stem == result.name
        assert [check.band for check in result.checks] == list(REPRODUCTIONS[result.name].bands)
        for check in result.checks:
            assert check.inside == (check.ours is not None and check.band.holds(check.ours))
        assert result.failures == []
        # nothing measured is nothing found
        assert all(check.inside is False for check in checks(REPRODUCTIONS[result.name], {}))
