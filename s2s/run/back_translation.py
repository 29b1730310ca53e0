"""Back-translations: sources that a trained run writes for lines of the target language (Sennrich et al. 2016).

They are written once into the cache of data sets, under a name made of all that decides them: the lines, the run's
weights, tokenizers and search, and our version. A task then reads them as it reads any table of pairs.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from datasets import config

from s2s.data.caching import content_hash, named
from s2s.data.pairs import target_texts
from s2s.data.sources import digest_of
from s2s.errors import UserError
from s2s.files import write_atomically
from s2s.recipe.schema import AnyRecipe
from s2s.run.folder import TOKENIZER, Opened, opened
from s2s.run.loaded import find_checkpoint, load
from s2s.tasks.lines import translated
from s2s.tasks.seq2seq import translator_of

if TYPE_CHECKING:
    from s2s.tasks.translation.recipe import FurtherPairs

R = TypeVar("R", bound=AnyRecipe[Any])
_LINES_AT_ONCE = 3_200


def with_back_translations(recipe: R, say: Callable[[str], object]) -> R:
    """The recipe with the tables of pairs in the place of the lines that are to be back-translated.

    What was not translated before is translated now.

    Raises:
        UserError: there is no such run, it translates the wrong way, or there are no lines.
    """
    data = dict(recipe)["data"]
    tables = {}
    for name, settings in getattr(data, "more", {}).items():
        if settings.back_translated_by is None:
            continue
        try:
            table = _table(settings, lambda line, name=name: say(f"data.more.{name}: {line}"))
        except UserError as error:
            raise UserError(f"{error.what} (data.more.{name})", error.where, error.remedy) from None
        read = {"corpus": "files", "root": None, "train": str(table), "source": "source", "target": "target"}
        tables[name] = settings.model_copy(update={**read, "back_translated_by": None})
    if not tables:
        return recipe
    return recipe.model_copy(update={"data": data.model_copy(update={"more": {**data.more, **tables}})})


def _table(settings: "FurtherPairs", say: Callable[[str], object]) -> Path:
    run = opened(Path(str(settings.back_translated_by)), tasks=["translation"])
    _check_direction(run, settings)
    checkpoint = find_checkpoint(run.path, None)
    texts = target_texts(settings)
    parts = [
        content_hash(checkpoint / "model.safetensors"),
        digest_of(texts),
        dict(run.recipe)["decoding"].model_dump_json(),
    ]
    parts += [_data_of(run).prefix, *map(content_hash, sorted((checkpoint / TOKENIZER).glob("*.model")))]
    path = Path(config.HF_DATASETS_CACHE) / f"s2s-back-translated-{named(*parts)}.jsonl"
    if path.exists():
        say(f"{len(texts):,} lines, back-translated before by {run.path}")
        return path
    say(f"back-translating {len(texts):,} lines by {run.path}")
    rows = zip(_written(run, texts, say), texts, strict=True)
    lines = (json.dumps({"source": source, "target": target}, ensure_ascii=False) for source, target in rows)
    whole = "".join(f"{line}\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, whole)
    return path


def _check_direction(run: Opened, settings: "FurtherPairs") -> None:
    its, asked = _data_of(run), (settings.source, settings.target)
    if (its.source, its.target) == asked and its.source != its.target:
        raise UserError(
            f"translates from {its.source} to {its.target}, and the lines are {settings.target}",
            where=f"back_translated_by: {run.path}",
            remedy=f"name a run that translates from {settings.target} to {settings.source}",
        )


def _data_of(run: Opened) -> Any:
    return dict(run.recipe)["data"]


def _written(run: Opened, texts: list[str], say: Callable[[str], object]) -> Iterator[str]:
    """What the run writes for each line, as `s2s translate` does."""
    loaded = load(run)
    chunks = (texts[first : first + _LINES_AT_ONCE] for first in range(0, len(texts), _LINES_AT_ONCE))
    yield from translated(translator_of(loaded), None, chunks, False, say, loaded.recipe.data.prefix)
