"""What `s2s evaluate`, `s2s translate` and `s2s classify` do with the words they are given."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from s2s.cli.lines import chunks
from s2s.errors import UserError
from s2s.files import explained
from s2s.run.tasks import task_of_run

if TYPE_CHECKING:
    import numpy as np

    from s2s.data.seen import Seen
    from s2s.data.tokenizers import Tokenizer
    from s2s.decoding.translator import Translation
    from s2s.training.progress import Meter

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
        files: sources and references, in the place of the split.
    """

    runs: list[Path]
    overrides: list[str]
    split: str
    lowercase: bool
    checkpoint: str | None
    files: tuple[Path, Path] | None

    @property
    def keep(self) -> bool:
        """Whether this is the run's result: what another search, checkpoint or corpus scores is not."""
        return self.checkpoint is None and not self.overrides

    @property
    def meter(self) -> "Meter":
        """A bar beside the results, which may go into a file; nothing where nobody looks."""
        from rich.console import Console

        from s2s.training.progress import meter, silent

        console = Console(stderr=True)
        return meter(console) if console.is_terminal else silent


def score_runs(
    words: Sequence[str],
    split: str,
    lowercase: bool,
    beam: int | None,
    checkpoint: str | None,
    files: tuple[Path, Path] | None = None,
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Scores runs and, where there are several, tests each against the first.

    Args:
        words: runs and `section.key=value` overrides.
        split: `test` or `validation`.
        lowercase: score without regard to case.
        beam: overrides `decoding.beam`.
        checkpoint: see `load_run`.
        files: sources and references, in the place of a split.

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
    given = {"--beam": beam, "--lowercase": lowercase, "--source": files}
    if task != "translation" and any(given.values()):
        named = ", ".join(option for option, value in given.items() if value)
        raise UserError(f"{named} says nothing to runs of {task}", remedy="leave it out")
    overrides = [word for word in words if "=" in word] + ([f"decoding.beam={beam}"] if beam else [])
    from s2s.run.loading import prepare_for

    prepare_for(runs[0], overrides)
    asked = Asked(runs, overrides, split, lowercase, checkpoint, files)
    evaluations, comparisons = _SCORERS[task](asked)
    for evaluation in evaluations if asked.keep else []:
        _keep(evaluation)
    return evaluations, comparisons


def _keep(evaluation: Any) -> None:
    """Where the run's folder takes no more, its scores are still worth showing."""
    try:
        evaluation.keep()
    except OSError as error:
        click.echo(f"the scores are shown, but not kept: {explained(error)}", err=True)


def _score_translators(asked: Asked) -> tuple[Sequence[Any], Sequence[Any]]:
    from s2s.run.evaluation import compare_runs, evaluate_run

    evaluations = [
        evaluate_run(
            run,
            asked.split,
            asked.lowercase,
            asked.checkpoint,
            asked.overrides,
            keep=False,
            files=asked.files,
            meter=asked.meter,
        )
        for run in asked.runs
    ]
    return evaluations, compare_runs(evaluations) if len(evaluations) > 1 else []


def _score_classifiers(asked: Asked) -> tuple[Sequence[Any], Sequence[Any]]:
    from s2s.run.classification_evaluation import evaluate_classifier
    from s2s.run.labelled_evaluation import compare_evaluations

    evaluations = [
        evaluate_classifier(run, asked.split, asked.checkpoint, asked.overrides, keep=False, meter=asked.meter)
        for run in asked.runs
    ]
    return evaluations, compare_evaluations(evaluations) if len(evaluations) > 1 else []


def _score_image_classifiers(asked: Asked) -> tuple[Sequence[Any], Sequence[Any]]:
    from s2s.run.image_evaluation import evaluate_images
    from s2s.run.labelled_evaluation import compare_evaluations

    evaluations = [
        evaluate_images(run, asked.split, asked.checkpoint, asked.overrides, keep=False, meter=asked.meter)
        for run in asked.runs
    ]
    return evaluations, compare_evaluations(evaluations) if len(evaluations) > 1 else []


def _score_masked_lms(asked: Asked) -> tuple[Sequence[Any], Sequence[Any]]:
    from s2s.run.masked_lm_loading import evaluate_masked_lm

    found = [
        evaluate_masked_lm(run, asked.split, asked.checkpoint, asked.overrides, keep=False, meter=asked.meter)
        for run in asked.runs
    ]
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
    from s2s.data.seen import Seen
    from s2s.decoding.translator import Translator
    from s2s.run.folder import TOKENIZER
    from s2s.run.loading import load_run, prepare_for

    prompt = _told_to_wait(run, input_file)
    overrides = [f"decoding.{key}={value}" for key, value in settings.items() if value is not None]
    prepare_for(run, overrides)
    loaded = load_run(run, checkpoint, overrides)
    translator = Translator(
        loaded.model, loaded.source_tokenizer, loaded.target_tokenizer, loaded.recipe.decoding, nbest
    )
    seen = _Strangers(Seen.load(loaded.checkpoint / TOKENIZER), loaded.source_tokenizer, input_file.isatty())
    number = 0
    for chunk in chunks(input_file, loaded.recipe.decoding.batch * 50, prompt):
        for text, translation in zip(chunk, translator.translate_chunk(chunk), strict=True):
            number += 1
            seen.look(text, number)
            yield from _shown(translation, number, nbest)
    seen.sum_up(number)


def _told_to_wait(run: Path, input_file: IO[bytes]) -> Callable[[], None]:
    """Tells somebody at a terminal that a model is being loaded; gives what asks for a line then."""
    if not input_file.isatty():
        return lambda: None
    click.echo(f"loading {run} …", err=True)
    told = itertools.chain(["type a line and Enter; end with Ctrl-D\n"], itertools.repeat(""))
    return lambda: click.echo(f"{next(told)}> ", err=True, nl=False)


class _Strangers:
    """Lines that are far from what a model has seen: each is told at a terminal, their number elsewhere."""

    def __init__(self, seen: "Seen | None", tokenizer: "Tokenizer", at_once: bool) -> None:
        self.seen = seen
        self.tokenizer = tokenizer
        self.at_once = at_once
        self.count = 0
        self.first = ""

    def look(self, text: str, number: int) -> None:
        """Takes notice of a line."""
        if self.seen is None or not text.strip() or (what := self.seen.far(text, self.tokenizer)) is None:
            return
        self.count += 1
        self.first = self.first or f"line {number}: {what}"
        if self.at_once:
            click.echo(f"far from the training text, in which these never occur: {what}", err=True)

    def sum_up(self, lines: int) -> None:
        """Tells of a whole file."""
        if self.count and not self.at_once:
            click.echo(
                f"{self.count:,} of {lines:,} lines are far from the training text, which lacks many of their words "
                f"or pieces (first {self.first}); their translations may be nonsense",
                err=True,
            )


def classify_file(run: Path, input_file: IO[bytes], probabilities: bool, checkpoint: str | None) -> Iterator[str]:
    """The class of each line, in order, as soon as it is known; empty lines stay empty.

    Args:
        run: the run's folder.
        input_file: lines of UTF-8: texts, or paths of images, as the run's task is.
        probabilities: whether each class's probability follows, as `TAB name=0.1234`.
        checkpoint: see `loading.find_checkpoint`.
    """
    from s2s.run.loading import prepare_for

    prepare_for(run)
    prompt = _told_to_wait(run, input_file)
    classes, read = _image_reader(run, checkpoint) if task_of_run(run) == "images" else _text_reader(run, checkpoint)
    for chunk in chunks(input_file, _LINES_AT_ONCE, prompt):
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
