"""Examples held out of the training data: whenever a run is scored, the very ones that it never learned from."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import datasets

from s2s.errors import UserError
from s2s.recipe.reading import read
from s2s.run import manifest
from s2s.run.folder import MANIFEST, RECIPE

Part = TypeVar("Part")


def held_out_hashes(settings: Any, parts: Mapping[str, Part | None], digest: Callable[[Part], str]) -> dict[str, str]:
    """What a run's manifest keeps of the parts that were held out of its training data.

    Args:
        settings: the recipe's `data` section.
        parts: examples by split.
        digest: identifies the examples of a part.
    """
    return {
        _name(split): digest(part)
        for split, part in parts.items()
        if part is not None and isinstance(getattr(settings, split), int)
    }


def split_to_score(
    run: Path,
    settings: Any,
    split: str,
    load_split: Callable[[], Part | None],
    load: Callable[[], Any],
    digest: Callable[[Part], str],
) -> Part:
    """The examples of a split, of which a run has learned none.

    Args:
        run: its folder, or that of one of its checkpoints.
        settings: the recipe's `data` section, with what was changed for now.
        split: `test` or `validation`.
        load_split: gives the split alone; None where it is held out of the training data.
        load: gives all parts of the corpus, those that are held out among them.
        digest: identifies the examples of a part, as for `held_out_hashes`.

    Raises:
        UserError: the recipe has no such split, or other examples would be held out than for the training.
    """
    found = load_split()
    if found is None and isinstance(getattr(settings, split), int):
        found = getattr(load(), split)
        folder = run if (run / MANIFEST).exists() else run.parent.parent
        starts = manifest.read(folder / MANIFEST)
        kept = starts[0]["hashes"].get(_name(split)) if starts else None
        # a run that held nothing out for this split has learned from all that could be drawn now
        held_out = isinstance(getattr(read(run / RECIPE).data, split), int)
        if not held_out or kept not in (None, digest(found)):
            raise UserError(
                f"the {split} set is drawn from the training data, and would not be the one that was held out when the "
                "run was trained: training has seen some of it",
                where=f"{run}: data.{split}: {getattr(settings, split)}",
                remedy=f"restore the training data and data.seed, or name a file or split: data.{split}=NAME",
            )
    if found is None:
        raise UserError(f"the run's recipe has no {split} set", remedy=f"name one: data.{split}=NAME")
    return found


def digest_of_texts(rows: datasets.Dataset, *columns: str) -> str:
    """What identifies texts, wherever they lie.

    Args:
        rows: have the columns.
        columns: of text.
    """
    digest = hashlib.blake2b(digest_size=16)
    for column in columns:
        for text in rows[column]:
            digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def _name(split: str) -> str:
    return f"held_out_{split}"
