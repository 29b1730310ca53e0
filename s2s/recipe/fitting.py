"""A recipe fitted to the user's own files."""

import gzip
import lzma
from pathlib import Path

from s2s.errors import UserError

_TEMPLATE = """# Made by `s2s new translate` for {pairs:,} sentence pairs. All keys: s2s recipe reference
name: {name}
data:
  corpus: files
  train: [{source}, {target}]
  validation: {held_out} # pairs held out of the training data, never trained on
  test: {held_out}
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
  dropout: {dropout}
training:
  updates: {updates}
  learning_rate: {rate}
  schedule: cosine
  warmup: {warmup}
  ema: 0.999
validation:
  every: {every}
"""


def fitted_recipe(name: str, source: Path, target: Path) -> str:
    """A recipe for two line-aligned files, its sizes scaled to theirs.

    Small corpora get small vocabularies, narrow models and much dropout (Sennrich & Zhang 2019, "Revisiting
    low-resource neural machine translation").

    Args:
        name: of the run.
        source: lines to read from.
        target: their translations.

    Raises:
        UserError: a file is missing, or the numbers of lines differ or are too few.
    """
    counts = [_count_lines(path) for path in (source, target)]
    if counts[0] != counts[1]:
        raise UserError(
            f"{source} has {counts[0]:,} lines, {target} has {counts[1]:,}",
            remedy="line n of one file must translate line n of the other",
        )
    pairs = counts[0]
    if pairs < 20:
        raise UserError(f"{pairs} sentence pairs are too few to learn from", where=str(source), remedy="collect 1,000 or more")
    large, middling = pairs > 300_000, pairs > 10_000
    width = 512 if large else 256 if pairs > 100_000 else 128
    updates = min(100_000, max(1_000, pairs // 6))
    return _TEMPLATE.format(
        name=name,
        pairs=pairs,
        source=source.absolute(),
        target=target.absolute(),
        held_out=max(1, min(1000, pairs // 20)),
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


def _count_lines(path: Path) -> int:
    try:
        opened = gzip.open(path) if path.suffix == ".gz" else lzma.open(path) if path.suffix == ".xz" else path.open("rb")
        with opened as file:
            return sum(1 for _ in file)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"cannot be read: {getattr(error, 'strerror', None) or error}", where=str(path), remedy="check the path") from None
