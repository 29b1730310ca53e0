"""What `s2s evaluate` and `s2s translate` do with the words they are given."""

import os
import re
import select
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from s2s.decoding.translator import Translation, Translator
from s2s.errors import UserError
from s2s.evaluation.significance import Comparison
from s2s.run.evaluation import Evaluation, compare_runs, evaluate_run
from s2s.run.loading import load_run


def score_runs(
    words: Sequence[str], split: str, lowercase: bool, beam: int | None, checkpoint: str | None
) -> tuple[list[Evaluation], list[Comparison]]:
    """Scores runs and, where there are several, tests each against the first.

    Args:
        words: runs and `section.key=value` overrides.
        split: `test` or `validation`.
        lowercase: score without regard to case.
        beam: overrides `decoding.beam`.
        checkpoint: see `load_run`.
    """
    runs = [Path(word) for word in words if "=" not in word]
    if not runs:
        raise UserError("no run is named", remedy="s2s evaluate runs/NAME")
    if len({run.resolve() for run in runs}) < len(runs):
        raise UserError("the same run is named twice", remedy="name each run once")
    overrides = [word for word in words if "=" in word] + ([f"decoding.beam={beam}"] if beam else [])
    # what another search, checkpoint or corpus scores is not the run's result
    keep = checkpoint is None and not overrides
    evaluations = [evaluate_run(run, split, lowercase, checkpoint, overrides, keep) for run in runs]
    return evaluations, compare_runs(evaluations) if len(evaluations) > 1 else []


def translate_file(
    run: Path, input_file: IO[bytes], settings: dict[str, object], nbest: int, checkpoint: str | None
) -> Iterator[str]:
    """Translated lines, in order, as soon as they are ready.

    Args:
        run: the run's folder.
        input_file: lines of UTF-8.
        settings: overrides of `decoding`, by key; None leaves the recipe's.
        nbest: translations of each line; more than one come as `line number TAB score TAB text`.
        checkpoint: see `load_run`.
    """
    overrides = [f"decoding.{key}={value}" for key, value in settings.items() if value is not None]
    loaded = load_run(run, checkpoint, overrides)
    translator = Translator(
        loaded.model, loaded.source_tokenizer, loaded.target_tokenizer, loaded.recipe.decoding, nbest
    )
    number = 0
    for chunk in _chunks(input_file, loaded.recipe.decoding.batch * 50):
        for translation in translator.translate_chunk(chunk):
            number += 1
            yield from _shown(translation, number, nbest)


def _shown(translation: Translation, number: int, nbest: int) -> Iterator[str]:
    if nbest == 1:
        yield _one_line(translation.text)
        return
    for candidate in translation.candidates:
        yield f"{number}\t{candidate.score:.4f}\t{_one_line(candidate.text)}"
    if not translation.candidates:
        yield f"{number}\t\t"


def _one_line(text: str) -> str:
    # bytes can spell any character; a line in is a line out
    return re.sub(r"[\r\n]+", " ", text)


def _chunks(file: IO[bytes], most: int) -> Iterator[list[str]]:
    """Lines that are there together: a file's by the thousand, a pipe's as they arrive, without waiting for more."""
    waiting, ended = b"", False
    while not ended:
        block = os.read(file.fileno(), 1 << 16)
        ended = not block
        waiting += block
        if not ended and waiting.count(b"\n") < most and _more_is_there(file):
            continue
        whole, newline, rest = waiting.rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        waiting = rest
        if ended and waiting:
            lines.append(waiting)
        for first in range(0, len(lines), most):
            yield [_text(line) for line in lines[first : first + most]]


def _more_is_there(file: IO[bytes]) -> bool:
    return bool(select.select([file], [], [], 0)[0])


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        print(f"not UTF-8, replaced what cannot be read: {line[:60]!r}", file=sys.stderr)
        return line.decode("utf-8", errors="replace")
