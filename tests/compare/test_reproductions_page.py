"""docs/reproductions.md and the stored results of reproductions."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from benchmarks import reproductions
from benchmarks.keeping import written
from s2s.comparison.report.page import reproduction_page
from s2s.comparison.reproduce.reproducing import REPRODUCTIONS, checks
from s2s.comparison.reproduced import read

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "reproductions"


def test_reproductions_page_is_written_from_stored_results():
    page = (ROOT / "docs" / "reproductions.md").read_text(encoding="utf-8")
    assert written(page, reproductions.tables(), "reproductions") == page
    assert len(reproductions.kept()) == len(list(RESULTS.glob("*.json"))) > 0


def test_stored_results_have_the_bands_and_texts_of_the_code():
    for path in sorted(RESULTS.glob("*.json")):
        result, reproduction = read(path), REPRODUCTIONS[path.stem]
        assert path.stem == result.name
        assert [check.band for check in result.checks] == list(reproduction.bands)
        texts = ("finding", "source", "method", "setting")
        assert [getattr(result, text) for text in texts] == [getattr(reproduction, text) for text in texts]
        assert result.failures == []
        assert all(check.outcome == "undecided" for check in checks(reproduction, {}))


def test_stored_intervals_are_students_over_the_voting_seeds():
    for path in RESULTS.glob("*.json"):
        for check in read(path).numbers:
            values = np.array([check.by_seed[seed] for seed in check.voters])
            if len(values) > 1 and path.stem != "law":
                half = scipy.stats.sem(values) * scipy.stats.t.ppf(0.975, len(values) - 1)
                assert check.interval == pytest.approx((values.mean() - half, values.mean() + half), rel=1e-9)


@pytest.mark.parametrize(("seeds", "shown"), [(10, "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"), (11, "11 seeds, 0 to 10")])
def test_report_lists_few_seeds_and_the_range_of_many(seeds, shown):
    result = read(RESULTS / "radius.json")
    check = result.checks[0].model_copy(update={"by_seed": {seed: float(seed) for seed in range(seeds)}})
    page = reproduction_page(result.model_copy(update={"checks": [check]}))
    assert shown in " ".join(page.split())
