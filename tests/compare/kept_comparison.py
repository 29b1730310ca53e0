"""Readers of a comparison's files, for tests that recompute its numbers."""

import json
from pathlib import Path
from typing import Any


def result(folder: Path, experiment: str) -> dict[str, Any]:
    """What an experiment says."""
    return json.loads((folder / experiment / "result.json").read_text(encoding="utf-8"))


def findings(said: dict, row: str) -> dict[str, dict]:
    """A row of the table of verdicts, by model."""
    return {each["model"]: each for each in said["findings"] if each["row"] == row}


def table(said: dict, name: str) -> list[dict[str, Any]]:
    """The rows of a table, by head."""
    found = next(each for each in said["tables"] if each["name"] == name)
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def figure(said: dict, name: str) -> dict[str, dict]:
    """The curves of a figure, by label."""
    return next({each["label"]: each for each in own["series"]} for own in said["figures"] if own["name"] == name)
