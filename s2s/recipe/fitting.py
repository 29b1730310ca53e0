"""A recipe fitted to the user's own files."""

import gzip
import json
import lzma
import re
from pathlib import Path

from s2s.errors import UserError

_TEMPLATE = """# Made by `s2s new translate` for {pairs:,} sentence pairs. All keys: s2s recipe reference
name: {name}
data:
  corpus: files
  source: {source}
  target: {target}
  train: {train}
{splits}
tokenizer:
  size: {pieces} # pieces of one vocabulary for both languages
batches:
  tokens: 4096
model:
  kind: transformer
  width: {width}
  heads: 4
  feedforward: {feedforward}
  encoder_layers: {layers}
  decoder_layers: {layers}
  dropout: {dropout} # the smaller the corpus, the more
training:
  updates: {updates}
  learning_rate: {rate}
  schedule: cosine
  warmup: {warmup}
  ema: 0.999
validation:
  every: {every}
"""

Pair = tuple[Path, Path]


def fitted_recipe(name: str, train: Pair, validation: Pair | None = None) -> str:
    """A recipe for line-aligned files, its sizes scaled to theirs.

    Small corpora get small vocabularies, narrow models and much dropout (Sennrich & Zhang 2019, "Revisiting
    low-resource neural machine translation").

    Args:
        name: of the run; what a name may not hold becomes `-`.
        train: lines to read from and their translations.
        validation: the same, to validate by; when None, pairs are held out of the training files.

    Raises:
        UserError: a file is missing, or the numbers of lines differ or are too few.
    """
    pairs = _count_pairs(train)
    if pairs < 20:
        raise UserError(
            f"{pairs} sentence pairs are too few to learn from", where=str(train[0]), remedy="collect 1,000 or more"
        )
    if validation is not None:
        _count_pairs(validation)
    large, middling = pairs > 300_000, pairs > 10_000
    width = 512 if large else 256 if pairs > 100_000 else 128
    updates = min(100_000, max(1_000, pairs // 6))
    return _TEMPLATE.format(
        name=_text(re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._") or "translate"),
        pairs=pairs,
        source=_text(_language(train[0])),
        target=_text(_language(train[1])),
        train=_files(train),
        splits=_splits(validation, held_out=max(1, min(1000, pairs // 20))),
        pieces=16_000 if large else 8_000 if middling else 2_000 if pairs > 2_000 else 500,
        width=width,
        feedforward=4 * width,
        layers=6 if large else 3,
        dropout=0.1 if large else 0.3,
        updates=updates,
        rate=0.001 if width > 128 else 0.004,
        warmup=min(4_000, updates // 5),
        every=max(200, updates // 10),
    )


def _splits(validation: Pair | None, held_out: int) -> str:
    own = "pairs held out of the training files and never trained on; or your own pair of files, as above"
    first = f"{held_out} # {own}" if validation is None else _files(validation)
    return f"  validation: {first}\n  test: {held_out} # {'likewise' if validation is None else own}"


def _language(path: Path) -> str:
    """`en` for `a.en` and `a.en.gz`."""
    name = Path(path.stem) if path.suffix in (".gz", ".xz") else path
    return name.suffix.removeprefix(".") or name.name


def _files(pair: Pair) -> str:
    return f"[{', '.join(_text(str(path.absolute())) for path in pair)}]"


def _text(text: str) -> str:
    # YAML reads JSON's quotes, and a plain word needs none unless it means something else
    plain = re.fullmatch(r"[A-Za-z/][A-Za-z0-9._/-]*", text) and text.lower() not in ("null", "true", "false")
    return text if plain else json.dumps(text, ensure_ascii=False)


def _count_pairs(pair: Pair) -> int:
    counts = [_count_lines(path) for path in pair]
    if counts[0] != counts[1]:
        raise UserError(
            f"{pair[0]} has {counts[0]:,} lines, {pair[1]} has {counts[1]:,}",
            remedy="line n of one file must translate line n of the other",
        )
    return counts[0]


def _count_lines(path: Path) -> int:
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with opener(path, "rb") as file:
            return sum(1 for _ in file)
    except (OSError, EOFError, lzma.LZMAError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot be read: {why}", where=str(path), remedy="check the path") from None
