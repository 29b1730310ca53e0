"""Keeps what runs scored, for the tables of docs/scores.md and docs/ladder.md.

python -m benchmarks.results runs/translate runs/multi30k

Of each run, its scores on the test set (cased, and lower-cased where `s2s evaluate RUN --lowercase` was run), what it
cost and what it ran on go to `docs/results/<name>.json`; the tables are written anew from these files. A run called
`multi30k_…` is a rung of the ladder and stands in its table; how fast rungs are says `benchmarks/ladder.py`. A name
that ends in a seed, such as `multi30k_lstm-2`, is the same training once more, with another seed.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.keeping import RESULTS, described, keep_runs, learned_from, machines, read
from s2s.evaluation.differences import Pairwise, welch
from s2s.evaluation.inference import mean

SPEED = RESULTS / "speed.json"
# what is kept beside the runs
OTHERS = ("speed", "faults", "gpu", "serve", "peers", "peers-fp32", "export", "text_to_text", "speedrun")
RUNG = "multi30k_"


def summary(run: Path) -> dict[str, object]:
    """What is worth keeping of a run."""
    tests = [read(path) for path in sorted(run.glob("evaluation-test*.json"))]
    return described(run) | {
        "pairs": read(run / "manifest.json")[-1]["counts"]["train"],
        "target_tokens": learned_from(run, "tokens"),
        "tests": [
            {key: test[key] for key in ("beam", "length_penalty", "lowercase", "scores", "exact", "buckets")}
            | {"sentences": len(test["sources"])}
            for test in tests
        ],
    }


def table() -> str:
    """The table of docs/scores.md, from the kept files."""
    rows = [
        "| recipe | parameters | training | case | BLEU (95 % interval) | chrF2++ | exact | test sentences |",
        "|---|---|---|---|---|---|---|---|",
    ]
    runs = {name: found for name, found in _kept().items() if not name.startswith(RUNG)}
    kept = {name: found for name, found in runs.items() if "-" not in name}
    for name, found in sorted(kept.items(), reverse=True):
        training = f"{found['updates']:,} updates, {found['target_tokens'] / 1e6:.1f} M tokens, {_minutes(found)}"
        rows += [
            f"| `{name}` | {found['parameters'] / 1e6:.2f} M | {training} "
            f"| {'ignored' if test['lowercase'] else 'kept'} | {_bleu(test)} "
            f"| {test['scores']['chrf']['value']:.2f} | {test['exact']:.1f} % | {test['sentences']:,} |"
            for test in found["tests"]
        ]
    return "\n".join([*rows, "", "Seed 1; beam 5.", *_provenance(runs), *_repeated(runs, "recipe"), ""])


def ladder() -> str:
    """The ladder's table, from the kept files, lowest score first."""
    rows = [
        "| rung | parameters | training | BLEU, lower-cased (95 % interval) | BLEU, cased | chrF2++, cased "
        "| training, tokens/s | decoding, sentences/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    runs = {name: found for name, found in _kept().items() if name.startswith(RUNG)}
    kept = {name: found for name, found in runs.items() if "-" not in name}
    speeds = read(SPEED) if SPEED.exists() else {}
    order = sorted(kept, key=lambda name: _test(kept[name], True)["scores"]["bleu"]["value"])
    for name in order:
        found, speed = kept[name], speeds.get(name)
        lower, cased = _test(found, True), _test(found, False)
        pace = f"{speed['training']:,.0f} | {speed['decoding']:,.0f}" if speed else "– | –"
        rows.append(
            f"| `{found['kind']}` | {found['parameters']:,} "
            f"| {found['updates']:,} updates, {found['target_tokens'] / 1e6:.1f} M tokens, {_minutes(found)} "
            f"| {_bleu(lower)} | {_bleu(cased)} | {cased['scores']['chrf']['value']:.2f} | {pace} |"
        )
    about = "Test set test_2016_flickr, seed 1; beam 5."
    tests = [*_repeated(runs, "rung"), *differences(ladder_scores()), *by_length(list(runs.values()))]
    return "\n".join([*rows, "", about, *_provenance(runs), *tests, ""])


def _repeated(runs: dict[str, dict[str, Any]], column: str) -> list[str]:
    """The scores of what was trained with several seeds, for each seed; `column` is `recipe` or `rung`."""
    rows = []
    for name in sorted({name.partition("-")[0] for name in runs if "-" in name}):
        same = [found for other, found in sorted(runs.items()) if other.partition("-")[0] == name]
        label = name if column == "recipe" else same[0]["kind"]
        cells = []
        for lowercase in (True, False):
            scores = [_test(found, lowercase)["scores"]["bleu"]["value"] for found in same]
            over = mean(scores)
            interval = f" ({over.low:.2f}–{over.high:.2f})" if len(scores) > 2 else ", two seeds: no interval"
            cells.append(f"{', '.join(f'{score:.2f}' for score in scores)}: {over.value:.2f}{interval}")
        rows.append(f"| `{label}` | {' | '.join(cells)} |")
    if not rows:
        return []
    head = f"| {column} | BLEU, lower-cased, of each seed: mean (95 % interval, Student's) | the same, cased |"
    return ["", head, "|---|---|---|", *rows]


def ladder_scores() -> dict[str, list[float]]:
    """Return the lower-cased BLEU of each seed by model, of the ladder's models with three seeds or more."""
    scores: dict[str, list[float]] = {}
    for name, found in sorted(_kept().items()):
        if name.startswith(RUNG):
            scores.setdefault(found["kind"], []).append(_test(found, True)["scores"]["bleu"]["value"])
    return {kind: own for kind, own in scores.items() if len(own) > 2}


def ladder_updates() -> int:
    """Return the number of updates of the ladder's runs, which all have the same."""
    (updates,) = {found["updates"] for name, found in _kept().items() if name.startswith(RUNG)}
    return updates


def compare_means(scores: dict[str, list[float]]) -> Pairwise:
    """Test the differences of means between all pairs of names, lowest mean first, by Welch's test over seeds."""
    order = sorted(scores, key=lambda name: statistics.mean(scores[name]))
    return Pairwise.of(order, lambda low, high: welch(scores[low], scores[high]))


def differences(scores: dict[str, list[float]]) -> list[str]:
    """The table of the differences of means between all pairs, lowest mean first.

    Args:
        scores: Scores of each seed, by name.

    Returns:
        Lines with each difference (row minus column) and the p-value of Welch's test, corrected for the number of pairs
        (Holm 1979); none with fewer than two names.
    """
    found = compare_means(scores)
    if not found:
        return []
    order = sorted(scores, key=lambda name: statistics.mean(scores[name]))
    head = "| BLEU, lower-cased, row minus column (p, Welch's test over seeds, Holm) |"
    rows = [f"{head} {' | '.join(f'`{name}`' for name in order[:-1])} |", "|---" * len(order) + "|"]
    for place, high in enumerate(order[1:], start=1):
        cells = [f"{found[low, high].value:.2f} ({_p_words(found.p[low, high])})" for low in order[:place]]
        rows.append(f"| `{high}` | {' | '.join(cells + [''] * (len(order) - 1 - place))} |")
    return ["", *rows]


def by_length(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of BLEU by length of the source: means over the seeds of each model, shortest sources first.

    Args:
        runs: Kept runs; those kept without these scores are left out.

    Returns:
        Lines, the model that keeps the least of its BLEU on the longest sources first; none without such a run.
    """
    scores: dict[str, list[list[float]]] = {}
    heads: list[str] = []
    for found in runs:
        buckets = _test(found, True).get("buckets", [])
        if buckets:
            scores.setdefault(found["kind"], []).append([each["bleu"] for each in buckets])
            heads = [f"{each['shortest']}–{each['longest']} {each['unit']}" for each in buckets]
    means = {kind: [statistics.mean(column) for column in zip(*own, strict=True)] for kind, own in scores.items()}
    if not means:
        return []
    rows = list[str]()
    for kind, own in sorted(means.items(), key=lambda one: one[1][-1] / one[1][0]):
        cells = " | ".join(f"{bleu:.1f}" for bleu in own)
        rows.append(f"| `{kind}` | {len(scores[kind])} | {cells} | {100 * own[-1] / own[0]:.0f} % |")
    head = f"| BLEU, lower-cased, by length of the source | seeds | {' | '.join(heads)} | longest ÷ shortest |"
    return ["", head, "|---" * (3 + len(heads)) + "|", *rows]


def _p_words(p: float) -> str:
    """Return a p-value for a table: two significant digits, or a bound."""
    return f"p = {p:.2g}" if p >= 0.0001 else "p < 0.0001"


def _kept() -> dict[str, dict[str, Any]]:
    return {path.stem: read(path) for path in RESULTS.glob("*.json") if path.stem not in OTHERS}


def _test(found: Mapping[str, Any], lowercase: bool) -> dict[str, Any]:
    return next((test for test in found["tests"] if test["lowercase"] == lowercase), found["tests"][0])


def _minutes(found: dict[str, Any]) -> str:
    """Training time, and whether a GPU trained."""
    return f"{found['minutes']} min" + ("" if ", cpu" in found["machine"] else " (GPU)")


def _bleu(test: dict[str, Any]) -> str:
    bleu = test["scores"]["bleu"]
    return f"{bleu['value']:.2f} ({bleu['low']:.2f}–{bleu['high']:.2f})"


def _provenance(kept: dict[str, dict[str, Any]]) -> list[str]:
    runs = [found for _, found in sorted(kept.items(), reverse=True)]
    signatures = dict.fromkeys(f"`{test['scores']['bleu']['signature']}`" for found in runs for test in found["tests"])
    return [machines(runs), f"BLEU: {' and '.join(signatures)}."]


if __name__ == "__main__":
    keep_runs(__doc__, RESULTS, summary, {"docs/scores.md": table, "docs/ladder.md": ladder}, "results")
