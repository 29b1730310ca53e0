"""The report of `s2s diagnose`: numerical self-tests, then signs of a bad run."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from s2s.data.dataset import BaseBatch, Examples
from s2s.diagnosis.self_tests import ModelUnderTest, SelfTest, Status, diagnosable, run_self_tests
from s2s.errors import UserError
from s2s.evaluation.learning_signs import Learning, learning_signs
from s2s.evaluation.signs import Diagnostics, Finding, WorstExample
from s2s.run.folder import RunConfig
from s2s.run.inference import default_split, evaluation_split, evenly_spaced, load_for_inference
from s2s.run.manifest import training_device
from s2s.run.tasks import task_of
from s2s.tasks.base import AnyRun, PrintFn
from s2s.tasks.protocols import Diagnosable
from s2s.training.logger import METRICS, read_metrics
from s2s.training.progress import ProgressBar, no_progress_bar

_SELF_TEST_EXAMPLES = 24
"""Number of examples: enough for several lengths, few enough to take seconds."""

Section = Literal["self-tests", "signs"]


@dataclass(frozen=True)
class SelfTestReport:
    """Results of all self-tests.

    Attributes:
        results: One result per self-test.
    """

    examples: str
    results: Sequence[SelfTest]

    @property
    def passed(self) -> bool:
        """True if no self-test failed."""
        return all(result.status != "fail" for result in self.results)

    def __str__(self) -> str:
        counts = Counter(result.status for result in self.results)
        summary = ", ".join(f"{counts[status]} {status}" for status in get_args(Status) if counts[status])
        return "\n".join([f"self-tests: {summary} ({self.examples})", *map(str, self.results)])


@dataclass(frozen=True)
class SignReport:
    """Signs of a bad run.

    Attributes:
        summary: Number of examples and the quality of the answers.
        signs: All signs, found or not.
        worst: The worst answers, worst first.
    """

    split: str
    summary: str
    signs: Sequence[Finding]
    worst: Sequence[WorstExample]

    @property
    def found(self) -> list[Finding]:
        """The signs that were found."""
        return [sign for sign in self.signs if sign.found]

    def __str__(self) -> str:
        found = self.found
        count = f"signs: {len(found)} of {len(self.signs)} found ({self.split} set; 95 % intervals in brackets)"
        lines = [count, f"  {self.summary}", *map(str, found)]
        # one measurement may have several signs, such as too short and too long
        others: dict[str, list[str]] = {}
        for sign in self.signs:
            if not sign.found:
                others.setdefault(sign.measured, []).append(sign.name)
        if others:
            lines += ["", "not found", *(f"  {', '.join(names)}: {text}" for text, names in others.items())]
        if self.worst:
            lines += ["", f"the {len(self.worst)} worst answers", *map(str, self.worst)]
        return "\n".join(lines)


@dataclass(frozen=True)
class Diagnosis:
    """The report on a run.

    Attributes:
        device: Device and precision; the device of the training, too, if it differs.
        self_tests: Results of the self-tests; None if they were not run.
        signs: Signs of a bad run; None if they were not looked for.
    """

    run: str
    checkpoint: str
    device: str
    self_tests: SelfTestReport | None
    signs: SignReport | None

    @property
    def passed(self) -> bool:
        """True if no self-test failed; signs do not count."""
        return self.self_tests is None or self.self_tests.passed

    def __str__(self) -> str:
        sections = [str(section) for section in (self.self_tests, self.signs) if section is not None]
        return "\n\n".join([f"{self.run}, checkpoint {self.checkpoint}, {self.device}", *sections])

    def to_json(self) -> str:
        """Return the report as JSON, with `passed` and the names of the signs found."""
        found = {} if self.signs is None else {"found": [sign.name for sign in self.signs.found]}
        report = {"passed": self.passed, **found, **asdict(self)}
        return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def diagnose(
    run: RunConfig,
    checkpoint: str | None = None,
    split: str | None = None,
    examples: int = 500,
    only: Section | None = None,
    print_fn: PrintFn = lambda line: None,
    progress_bar: ProgressBar = no_progress_bar,
) -> Diagnosis:
    """Run self-tests on a trained model and check for signs of a bad run.

    The run is only read.

    Args:
        checkpoint: `best`, `last`, `average` or a step number. None: the average if there is one, else the best.
        split: Split of the examples; None: the test set, or the validation set if there is no test set.
        examples: Maximum number of answers to check for signs.
        only: Restrict the report to one section; None: both.

    Raises:
        UserError: The run has no checkpoint, or the split is missing or empty.
    """
    loaded = load_for_inference(run, checkpoint)
    split = split or default_split(loaded)
    tests = None if only == "signs" else self_test(run, loaded, split, print_fn)
    signs = None if only == "self-tests" else _find_signs(run, loaded, split, examples, progress_bar)
    here, trained = str(loaded.device_context), training_device(loaded.path).partition(",")[0]
    moved = f", trained on {trained}" if trained not in ("", here.partition(",")[0]) else ""
    return Diagnosis(str(run.path), loaded.checkpoint.name, f"{here}{moved}", tests, signs)


def self_test(
    run: RunConfig,
    loaded: AnyRun,
    split: str,
    print_fn: PrintFn = lambda line: None,
    names: Sequence[str] | None = None,
) -> SelfTestReport:
    """Run self-tests on examples of a split."""
    examples = held_out(run, loaded, split)
    # A long document has several windows, and batches skip examples that are too long for the model.
    rows = np.unique(np.concatenate(examples.make_batches(0, 0)) % len(examples))
    rows = rows[evenly_spaced(len(rows), _SELF_TEST_EXAMPLES)]
    results = run_self_tests(ModelUnderTest(task_of(loaded.recipe), loaded, examples, rows, print_fn), names)
    return SelfTestReport(f"{len(rows)} examples of the {split} set", results)


def held_out(run: RunConfig, loaded: AnyRun, split: str) -> Examples[BaseBatch]:
    """Read some examples of a split, evenly spaced.

    Returns:
        Up to 24 examples.

    Raises:
        UserError: The split is missing or empty.
    """
    part = evaluation_split(run, loaded.recipe, split)
    if not len(part):
        raise UserError(f"the {split} set is empty", where=str(run.path), remedy=f"name another one: data.{split}=NAME")
    return diagnosable(loaded).examples_for_inference(
        loaded, part.select(evenly_spaced(len(part), _SELF_TEST_EXAMPLES))
    )


def _find_signs(
    run: RunConfig,
    loaded: AnyRun,
    split: str,
    examples: int,
    progress_bar: ProgressBar = no_progress_bar,
) -> SignReport:
    """Check a model's answers on a split, and its training log, for signs."""
    part = evaluation_split(run, loaded.recipe, split)
    if not len(part):
        raise UserError(f"the {split} set is empty", where=str(run.path), remedy="name another one with --split")
    rows = evenly_spaced(len(part), examples)
    task = task_of(loaded.recipe)
    if isinstance(task, Diagnosable):
        found = task.diagnose(loaded, part.select(rows), rows, progress_bar)
    else:
        found = Diagnostics("the answers of this task are not examined, only the log of the training")
    signs = [*found.signs, *learning_signs(Learning.of(_log(loaded.path)), found.chance_loss)]
    return SignReport(split, found.summary, signs, found.worst)


def _log(folder: Path) -> list[dict[str, object]]:
    # A checkpoint outside its run has no log.
    if not (folder / METRICS).exists():
        return []
    return [entry.model_dump(exclude_none=True) for entry in read_metrics(folder)]
