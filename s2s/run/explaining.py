"""`s2s explain`: why a run is bad, by signs measured in its answers and in its log, with a remedy for each."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from s2s.errors import UserError
from s2s.evaluation.signs import Sign, Worst
from s2s.evaluation.signs.learning import Learning, learning_signs
from s2s.run.folder import Opened
from s2s.run.loaded import evenly, part_to_score, ready, usual_split
from s2s.run.tasks import task_of
from s2s.training.logger import METRICS, read_metrics
from s2s.training.progress import Meter


@dataclass(frozen=True)
class Explanation:
    """What was looked for in a run, by its folder and checkpoint, and what was found."""

    run: str
    checkpoint: str
    split: str
    summary: str
    signs: Sequence[Sign]
    worst: Sequence[Worst]

    @property
    def found(self) -> list[Sign]:
        """The signs that were found."""
        return [sign for sign in self.signs if sign.found]

    def __str__(self) -> str:
        head = f"{self.run}, checkpoint {self.checkpoint}, {self.split} (in brackets: 95 % intervals)"
        lines = [head, f"  {self.summary}", ""]
        found, others = self.found, [sign for sign in self.signs if not sign.found]
        if found:
            lines += [f"{len(found)} {'sign' if len(found) == 1 else 'signs'} found", *map(str, found)]
        else:
            lines.append(f"no sign found: none of {len(self.signs)} that were looked for")
        lines += ["", "looked for and not found", *_together(others)] if others else []
        lines += ["", f"the {len(self.worst)} worst", *map(str, self.worst)] if self.worst else []
        return "\n".join(lines)

    def to_json(self) -> str:
        """Everything."""
        names = [sign.name for sign in self.found]
        return json.dumps({"found": names, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"


def _together(signs: Sequence[Sign]) -> list[str]:
    """A line for each measurement; several signs may lie in one, such as too short and too long."""
    names: dict[str, list[str]] = {}
    for sign in signs:
        names.setdefault(sign.measured, []).append(sign.name)
    return [f"  {', '.join(each)}: {measured}" for measured, each in names.items()]


def explained(run: Opened, checkpoint: str | None, split: str | None, most: int, meter: Meter) -> Explanation:
    """Looks for all signs, in the answers to `most` examples of a split, or of the usual one, and in the run's log.

    Raises:
        UserError: the run has no checkpoint, or no such split.
    """
    loaded = ready(run, checkpoint)
    split = split or usual_split(loaded)
    part = part_to_score(run, loaded.recipe, split)
    if not len(part):
        raise UserError(f"the {split} set is empty", where=str(run.path), remedy="name another one with --split")
    rows = evenly(len(part), most)
    found = task_of(loaded.recipe).symptoms(loaded, part.select(rows), rows, meter)
    signs = [*found.signs, *learning_signs(Learning.of(_entries(loaded.path)), found.ignorant)]
    return Explanation(str(run.path), loaded.checkpoint.name, f"{split} set", found.summary, signs, found.worst)


def _entries(folder: Path) -> list[dict[str, object]]:
    """The lines of a run's log; none where there is no log beside a checkpoint."""
    if not (folder / METRICS).exists():
        return []
    return [entry.model_dump(exclude_none=True) for entry in read_metrics(folder)]
