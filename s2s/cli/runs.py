"""What `s2s evaluate`, `s2s translate` and `s2s classify` do with the words they are given."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from s2s.cli.lines import chunks
from s2s.errors import UserError
from s2s.run.tasks import task_of_run

if TYPE_CHECKING:
    import numpy as np

    from s2s.decoding.translator import Translation

_LINES_AT_ONCE = 10_000

# the probabilities of the classes, row by row, of what lines hold
Reader = Callable[[Sequence[str]], "np.ndarray"]


@dataclass(frozen=True)
class Asked:
    """What `s2s evaluate` was asked for.

    Attributes:
        runs: their folders.
        overrides: `section.key=value`.
        split: `test` or `validation`.
        lowercase: score without regard to case.
        checkpoint: see `loading.find_checkpoint`.
    """

    runs: list[Path]
    overrides: list[str]
    split: str
    lowercase: bool
    checkpoint: str | None

    @property
    def keep(self) -> bool:
        """Whether this is the run's result: what another search, checkpoint or corpus scores is not."""
        return self.checkpoint is None and not self.overrides


def score_runs(
    words: Sequence[str], split: str, lowercase: bool, beam: int | None, checkpoint: str | None
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Scores runs and, where there are several, tests each against the first.

    Args:
        words: runs and `section.key=value` overrides.
        split: `test` or `validation`.
        lowercase: score without regard to case.
        beam: overrides `decoding.beam`.
        checkpoint: see `load_run`.

    Returns:
        The evaluations and the comparisons.

    Raises:
        UserError: no run is named, or one twice, or they are of different tasks; or an option says nothing to them.
    """
    runs = [Path(word) for word in words if "=" not in word]
    if not runs:
        raise UserError("no run is named", remedy="s2s evaluate runs/NAME")
    if len({run.resolve() for run in runs}) < len(runs):
        raise UserError("the same run is named twice", remedy="name each run once")
    tasks = {run: task_of_run(run) for run in runs}
    if len(set(tasks.values())) > 1:
        raise UserError(
            f"runs of different tasks: {', '.join(f'{run} ({task})' for run, task in tasks.items())}",
            remedy="evaluate runs of one task together",
        )
    task = tasks[runs[0]]
    if task != "translation" and (lowercase or beam):
        raise UserError(f"{'--beam' if beam else '--lowercase'} says nothing to runs of {task}", remedy="leave it out")
    overrides = [word for word in words if "=" in word] + ([f"decoding.beam={beam}"] if beam else [])
    return _SCORERS[task](Asked(runs, overrides, split, lowercase, checkpoint))


def _score_translators(asked: Asked) -> tuple[Sequence[Any], Sequence[Any]]:
    from s2s.run.evaluation import compare_runs, evaluate_run

    evaluations = [
        evaluate_run(run, asked.split, asked.lowercase, asked.checkpoint, asked.overrides, asked.keep)
        for run in asked.runs
    ]
    return evaluations, compare_runs(evaluations) if len(evaluations) > 1 else []


def _score_classifiers(asked: Asked) -> tuple[Sequence[Any], Sequence[Any]]:
    from s2s.run.classification_evaluation import evaluate_classifier
    from s2s.run.labelled_evaluation import compare_evaluations

    evaluations = [
        evaluate_classifier(run, asked.split, asked.checkpoint, asked.overrides, asked.keep) for run in asked.runs
    ]
    return evaluations, compare_evaluations(evaluations) if len(evaluations) > 1 else []


def _score_image_classifiers(asked: Asked) -> tuple[Sequence[Any], Sequence[Any]]:
    from s2s.run.image_evaluation import evaluate_images
    from s2s.run.labelled_evaluation import compare_evaluations

    evaluations = [
        evaluate_images(run, asked.split, asked.checkpoint, asked.overrides, asked.keep) for run in asked.runs
    ]
    return evaluations, compare_evaluations(evaluations) if len(evaluations) > 1 else []


def _score_masked_lms(asked: Asked) -> tuple[Sequence[Any], Sequence[Any]]:
    from s2s.run.masked_lm_loading import evaluate_masked_lm

    found = [evaluate_masked_lm(run, asked.split, asked.checkpoint, asked.overrides, asked.keep) for run in asked.runs]
    return found, []


_SCORERS = {
    "translation": _score_translators,
    "classification": _score_classifiers,
    "images": _score_image_classifiers,
    "masked-lm": _score_masked_lms,
}


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
    from s2s.decoding.translator import Translator
    from s2s.run.loading import load_run

    overrides = [f"decoding.{key}={value}" for key, value in settings.items() if value is not None]
    loaded = load_run(run, checkpoint, overrides)
    translator = Translator(
        loaded.model, loaded.source_tokenizer, loaded.target_tokenizer, loaded.recipe.decoding, nbest
    )
    number = 0
    for chunk in chunks(input_file, loaded.recipe.decoding.batch * 50):
        for translation in translator.translate_chunk(chunk):
            number += 1
            yield from _shown(translation, number, nbest)


def classify_file(run: Path, input_file: IO[bytes], probabilities: bool, checkpoint: str | None) -> Iterator[str]:
    """The class of each line, in order, as soon as it is known; empty lines stay empty.

    Args:
        run: the run's folder.
        input_file: lines of UTF-8: texts, or paths of images, as the run's task is.
        probabilities: whether each class's probability follows, as `TAB name=0.1234`.
        checkpoint: see `loading.find_checkpoint`.
    """
    classes, read = _image_reader(run, checkpoint) if task_of_run(run) == "images" else _text_reader(run, checkpoint)
    for chunk in chunks(input_file, _LINES_AT_ONCE):
        rows = iter(read([text for text in chunk if text.strip()]).tolist())
        for text in chunk:
            if not text.strip():
                yield ""
                continue
            row = next(rows)
            shares = [f"{name}={share:.4f}" for name, share in zip(classes, row, strict=True)] if probabilities else []
            yield "\t".join([classes[row.index(max(row))], *shares])


def _text_reader(run: Path, checkpoint: str | None) -> "tuple[tuple[str, ...], Reader]":
    from s2s.run.classification_loading import load_classifier

    loaded = load_classifier(run, checkpoint)
    return loaded.classes, loaded.text_classifier().probabilities


def _image_reader(run: Path, checkpoint: str | None) -> "tuple[tuple[str, ...], Reader]":
    from s2s.run.image_loading import load_image_classifier

    loaded = load_image_classifier(run, checkpoint)
    return loaded.classes, loaded.probabilities


def _shown(translation: "Translation", number: int, nbest: int) -> Iterator[str]:
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
