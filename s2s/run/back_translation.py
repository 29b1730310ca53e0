"""Back-translations: sources that a trained run writes for lines of the target language (Sennrich et al. 2016).

They are written once into the cache of data sets, under a name made of all that decides them: the lines, the run's
weights, tokenizers and search, and our version. A task then reads them as it reads any table of pairs. A run notes
which tables it learns from, and goes on with them, whatever has become of the run that wrote them.
"""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from s2s.data.caching import content_hash, named
from s2s.data.pairs import target_texts
from s2s.data.scripts import split_words
from s2s.data.sources import digest_of
from s2s.decoding.translator import Translator
from s2s.errors import UserError
from s2s.files import locked, whole, write_atomically
from s2s.json_files import read_json
from s2s.recipe.schema import AnyRecipe
from s2s.run.folder import MANIFEST, TOKENIZER, Opened, opened
from s2s.run.loaded import find_checkpoint, load
from s2s.tasks.lines import translated
from s2s.tasks.seq2seq import translator_of

if TYPE_CHECKING:
    from s2s.tasks.translation.recipe import FurtherPairs

R = TypeVar("R", bound=AnyRecipe[Any])
_LINES_AT_ONCE = 3_200
# seconds between two words of how far it is
_PAUSE = 30.0
_TABLE = "s2s-back-translated-"
_NOTE = "back_translations.json"


def with_back_translations(recipe: R, say: Callable[[str], object], folder: Path | None = None) -> R:
    """The recipe with the tables of pairs in the place of the lines that are to be back-translated.

    The run in `folder` goes on with the tables that it has noted, as long as the cache has them. What was not
    translated before is translated now.

    Raises:
        UserError: there is no such run, it translates the wrong way, or there are no lines, or one is too long for it.
    """
    data = dict(recipe)["data"]
    tables, noted = {}, _noted(folder)
    for name, settings in getattr(data, "more", {}).items():
        if settings.back_translated_by is None:
            continue
        try:
            tell = lambda line, name=name: say(f"data.more.{name}: {line}")  # noqa: E731
            table = noted[name] if name in noted else _table(settings, tell)
        except UserError as error:
            raise UserError(f"{error.what} (data.more.{name})", error.where, error.remedy) from None
        read = {"corpus": "files", "root": None, "train": str(table), "source": "source", "target": "target"}
        tables[name] = settings.model_copy(update={**read, "back_translated_by": None})
    if not tables:
        return recipe
    return recipe.model_copy(update={"data": data.model_copy(update={"more": {**data.more, **tables}})})


def note(recipe: AnyRecipe[Any], folder: Path) -> None:
    """Writes down which tables a run learns from, by the recipe that `with_back_translations` gave."""
    files = {name: Path(str(each.train)).name for name, each in getattr(dict(recipe)["data"], "more", {}).items()}
    tables = {name: file for name, file in files.items() if file.startswith(_TABLE)}
    if tables:
        write_atomically(folder / _NOTE, json.dumps(tables, indent=1) + "\n")


def _noted(folder: Path | None) -> dict[str, Path]:
    """The tables that a run has noted, and that are there."""
    if folder is None or not (folder / _NOTE).exists():
        return {}
    tables = read_json(folder / _NOTE, dict[str, str], "delete it: the lines are read")
    if wrong := [file for file in tables.values() if Path(file).name != file]:
        raise UserError(f"{wrong[0]!r:.200} is no name of a file", str(folder / _NOTE), "delete it: the lines are read")
    found = {name: _cache() / file for name, file in tables.items()}
    return {name: path for name, path in found.items() if path.exists()}


def _cache() -> Path:
    from datasets import config

    return Path(config.HF_DATASETS_CACHE)


def _table(settings: "FurtherPairs", say: Callable[[str], object]) -> Path:
    run = opened(Path(str(settings.back_translated_by)), tasks=["translation"])
    _check_direction(run, settings)
    checkpoint = find_checkpoint(run.path, None)
    most, texts = settings.filters.max_words, target_texts(settings)
    # the filters would drop them; they stay as empty lines, so that the others keep their numbers
    lines = ["" if most and len(split_words(text)) > most else text for text in texts]
    if left := sum(line != text for line, text in zip(lines, texts, strict=True)):
        say(f"lines of more than {most:,} words (filters.max_words), which are left out: {left:,}")
    parts = [
        content_hash(checkpoint / "model.safetensors"),
        digest_of(lines),
        dict(run.recipe)["decoding"].model_dump_json(),
    ]
    parts += [_data_of(run).prefix, *map(content_hash, sorted((checkpoint / TOKENIZER).glob("*.model")))]
    path = _cache() / f"{_TABLE}{named(*parts)}.jsonl"
    if path.exists():
        say(f"{len(lines):,} lines, back-translated before by {run.path}")
        return path
    say(f"back-translating {len(lines):,} lines by {run.path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    # who comes second waits, and finds them
    with locked(path.with_suffix(".lock"), wait=True):
        if not path.exists():
            _write(run, lines, path, say)
    return path


def _check_direction(run: Opened, settings: "FurtherPairs") -> None:
    # of weights that others have published, nobody has said what they translate
    if run.fetched and not (run.path / MANIFEST).exists():
        return
    its, asked = _data_of(run), (settings.source, settings.target)
    if (its.source, its.target) == asked and its.source != its.target:
        raise UserError(
            f"translates from {its.source} to {its.target}, and the lines are {settings.target}",
            where=f"back_translated_by: {run.path}",
            remedy=f"name a run that translates from {settings.target} to {settings.source}",
        )


def _data_of(run: Opened) -> Any:
    return dict(run.recipe)["data"]


def _write(run: Opened, lines: list[str], path: Path, say: Callable[[str], object]) -> None:
    """What the run writes for each line, as `s2s translate` does; part by part, so that an interruption costs one."""
    loaded = load(run)
    translator, prefix = translator_of(loaded), loaded.recipe.data.prefix
    _check_lengths(translator, lines, prefix)
    place, files, told = path.with_suffix(".parts"), list[Path](), time.monotonic()
    warnings: list[str] = []
    place.mkdir(exist_ok=True)
    for first in range(0, len(lines), _LINES_AT_ONCE):
        targets = lines[first : first + _LINES_AT_ONCE]
        last = first + len(targets)
        files.append(place / f"{first + 1}-{last}.jsonl")
        if not files[-1].exists():
            sources = translated(translator, None, [targets], False, warnings.append, prefix)
            rows = [{"source": s, "target": t} for s, t in zip(sources, targets, strict=True)]
            write_atomically(files[-1], "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
        if time.monotonic() - told >= _PAUSE:
            say(f"{last:,} of {len(lines):,} lines are back-translated")
            told = time.monotonic()
    if warnings:
        say(f"in {len(warnings):,} of {len(files):,} parts, e.g. {warnings[0]}")
    with whole(path) as table, table.open("wb") as file:
        file.writelines(part.read_bytes() for part in files)
    shutil.rmtree(place)


def _check_lengths(translator: Translator, lines: list[str], prefix: str) -> None:
    """Refuses a line that the run cannot read before the first is translated."""
    longest = translator.longest
    for first in range(0, len(lines) if longest else 0, _LINES_AT_ONCE):
        some = [prefix + line for line in lines[first : first + _LINES_AT_ONCE]]
        for number, pieces in enumerate(translator.source.encode_batch(some), first + 1):
            if longest and len(pieces) >= longest:
                raise UserError(
                    f"line {number:,} has {len(pieces):,} pieces, and the run reads {longest - 1:,} at most",
                    where="train",
                    remedy="split it, or lower filters.max_words",
                )
