"""Write the table of steps, training speed and decoding cost of docs/comparison.md, from the kept lecture.

`python -m benchmarks.comparison` does it, with all that it writes itself.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from s2s.comparison.results import RESULT, Result, Table, Verdict, read_result

_TRAINING, _DECODING = "parallelism", "decoding"
_RIVAL = "transformer"
# Benchmarks of the tables of pairs, by their row here.
_SPEEDS = {
    _TRAINING: {
        "training, 32 tokens": "n = 32",
        "training, 32 tokens, equal depth": "equal depth",
        "training, 1,024 tokens": "n = 1,024",
        "training, one pair of 32 tokens at a time": "one pair at a time",
    },
    _DECODING: {
        "decoding one sentence of 32 tokens": "batch 1, 32 tokens",
        "decoding, equal depth": "equal depth",
        "decoding, source of 1,024 tokens": "source of 1,024 tokens",
    },
}


def cost_tables(folder: Path) -> str:
    """Return two tables in Markdown: the cost of each model, and its speed relative to the Transformer's.

    Args:
        folder: Folder of the kept comparison.
    """
    results = {name: read_result(folder / name / RESULT) for name in (_TRAINING, _DECODING)}
    models = results[_TRAINING].models
    heads = f"| | {' | '.join(f'`{model}`' for model in models)} |\n|---|{'---|' * len(models)}"
    figures = {
        "chain at 1,024 tokens": _chains(results[_TRAINING], models),
        "grows with": _growth(results[_TRAINING], models),
        "thousand target tokens/s in training, 32 tokens": _values(results[_TRAINING], "training speed", 1e-3, 1),
        "ms per output token, one sentence of 32 tokens": _values(results[_DECODING], "decoding cost", 1, 3),
        "its exponent against the length of the source": _exponents(results[_DECODING], models),
    }
    ratios = {
        row: _ratios(_table(results[name], "pairs"), benchmark)
        for name, rows in _SPEEDS.items()
        for row, benchmark in rows.items()
    }
    others = [model for model in models if model != _RIVAL]
    ratio_heads = f"| times as fast as the Transformer | {' | '.join(f'`{model}`' for model in others)} |"
    return "\n".join(
        [
            heads,
            *(_row(name, cells, models) for name, cells in figures.items()),
            "",
            f"{ratio_heads}\n|---|{'---|' * len(others)}",
            *(_row(name, cells, others) for name, cells in ratios.items()),
            "",
        ]
    )


def _row(name: str, cells: Mapping[str, str], models: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells.get(model, '–') for model in models)} |"


def _table(result: Result, name: str) -> Table:
    (found,) = [table for table in result.tables if table.name == name]
    return found


def _chains(result: Result, models: Sequence[str]) -> dict[str, str]:
    """The longest chain of dependent operations at the longest length."""
    found = {verdict.model: verdict for verdict in result.findings if verdict.row == "sequential steps"}
    return {model: f"{found[model].value:,.0f}" for model in models}


def _growth(result: Result, models: Sequence[str]) -> dict[str, str]:
    found = {verdict.model: verdict for verdict in result.findings if verdict.row == "sequential steps"}
    # `grows as n: by 48 with each token`, `grows with log n: by 32 with each doubling`, `does not grow with n`
    laws = {model: str(found[model].facts["chain in training"]).partition(": ")[2] for model in models}
    return {model: law.rpartition(" with ")[2] or "–" for model, law in laws.items()}


def _exponents(result: Result, models: Sequence[str]) -> dict[str, str]:
    found = {verdict.model: verdict for verdict in result.findings if verdict.row == "decoding cost"}
    return {model: str(found[model].facts.get("exponent of time against source length", "–")) for model in models}


def _values(result: Result, row: str, scale: float, digits: int) -> dict[str, str]:
    def shown(verdict: Verdict) -> str:
        value, *ends = (
            "" if each is None else f"{scale * each:.{digits}f}" for each in (verdict.value, verdict.low, verdict.high)
        )
        return f"{value} ({' to '.join(ends)})" if all(ends) else value or "–"

    return {verdict.model: shown(verdict) for verdict in result.findings if verdict.row == row}


def _ratios(pairs: Table, benchmark: str) -> dict[str, str]:
    """The speed of each model relative to the Transformer's, with its interval and p-value."""
    found = {}
    for what, names, _, ratio, low, high, p, _, _, steady in pairs.rows:
        second, _, first = str(names).partition(" / ")
        if what == benchmark and _RIVAL in (first, second) and isinstance(ratio, float):
            model = first if second == _RIVAL else second
            ends = [float(str(each)) for each in (ratio, low, high)]
            value, low, high = sorted(1 / each for each in ends) if second == _RIVAL else ends
            if second == _RIVAL:
                value, low = low, value
            chance = "p < 0.001" if float(str(p)) < 0.001 else f"p = {p:.3f}"
            found[model] = f"{value:.2f} ({low:.2f} to {high:.2f}), {chance if steady == 'yes' else 'not tested'}"
    return found
