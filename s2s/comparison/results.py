"""Results of a comparison as JSON: verdicts, figures and tables.

The report is drawn from these files alone, so this module knows no model and does not import torch.
"""

import ast
import inspect
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from s2s.comparison.plans import TABLES, Profile, Task
from s2s.errors import UserError
from s2s.files import read_file, write_atomically

# incremented when a field changes its meaning, so that old files are refused
FORMAT = 1

_HEAD = """# The files of a comparison

`<experiment>/result.json` holds a `Result`, `comparison.json` a `Summary`. All fields are written, with a default or
without; numbers are finite or null. This page is generated from `s2s/comparison/results.py`:
`python -c "from s2s.comparison.results import reference; print(reference(), end='')" > docs/results.md`.
"""

P = TypeVar("P", bound="Part")


def _known_experiment(name: str) -> str:
    """Refuse other names: a result is written into a folder of that name."""
    known = {row.experiment for rows in TABLES.values() for row in rows.values()}
    if name not in known:
        raise ValueError(f"{name!r:.60} is no experiment; there are {', '.join(sorted(known))}")
    return name


def _parsable(command: str) -> str:
    try:
        shlex.split(command)
    except ValueError as error:
        raise ValueError(f"{command!r:.60} is no command: {error}") from None
    return command


class Part(BaseModel):
    """Base of all parts of a result: frozen, without further fields."""

    # `reference` reads the fields' docstrings: pydantic's own `use_attribute_docstrings` takes 0.3 s of each import.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Series(Part):
    """A curve, a group of bars, or points."""

    label: str
    """Label in the legend: the model and, if there are several, its form."""
    model: str
    """Model, which determines the colour; empty for series of no model, such as a baseline."""
    x: list[float] | list[str]
    """Numbers, or names of groups."""
    y: list[float | None]
    """Values; None for missing ones."""
    low: list[float | None] | None = None
    """Lower ends of 95 % confidence intervals."""
    high: list[float | None] | None = None
    """Upper ends."""
    reference: bool = False
    """True for a baseline or a theory, which is not a measurement of a model."""


class Axis(Part):
    """An axis of a figure."""

    label: str
    """Quantity, without the unit."""
    unit: str = ""
    """Unit, such as `ms` or `%`; empty for a pure number."""
    log: bool = False
    """True for a logarithmic axis."""


class Heatmap(Part):
    """A matrix of values."""

    label: str
    """Title."""
    model: str
    """Model."""
    rows: list[str]
    """Names of the rows, from the top."""
    columns: list[str]
    """Names of the columns."""
    values: list[list[float | None]]
    """Values by row; None for missing ones."""


class Mark(Part):
    """A vertical line, such as the longest training length."""

    at: float | str
    """Position on the horizontal axis: a number, or the name of the group before it."""
    label: str
    """Label of the line."""


class Figure(Part):
    """Data of a figure."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    """Name of its files, unique within the result."""
    title: str
    """Title."""
    kind: Literal["lines", "bars", "points", "heatmaps"] = "lines"
    """Kind of plot; `points` are not joined by lines."""
    x: Axis = Axis(label="")
    """Horizontal axis."""
    y: Axis = Axis(label="")
    """Vertical axis; of heat-maps, the colour bar."""
    series: list[Series] = []
    """Data of lines, bars and points."""
    heatmaps: list[Heatmap] = []
    """Data of heat-maps."""
    marks: list[Mark] = []
    """Vertical lines."""
    caption: str = ""
    """Explanation, and the meaning of the intervals."""


class Verdict(Part):
    """A cell of the table: the verdict on one candidate and one question."""

    row: str
    """Row of the table, one of `s2s.comparison.plans.TABLES` of its task."""
    model: str
    """Candidate: the column of the table."""
    value: float | None = None
    """Estimate; None if there is none."""
    low: float | None = None
    """Lower end of its 95 % confidence interval."""
    high: float | None = None
    """Upper end."""
    at_least: bool = False
    """True if the estimate is a lower bound, because no higher value was tried."""
    unit: str = ""
    """Unit of the estimate."""
    quantity: str = ""
    """Quantity, such as `exponent of training time against length`."""
    standing: Literal[
        "better", "worse", "tie", "undecided", "still learning", "not measurable", "not applicable", ""
    ] = ""
    """Outcome of the comparison with the best of the others; empty if nothing is compared. `still learning`, `not
    measurable` and `not applicable` are no outcomes of a test."""
    rival: str = ""
    """The best of the others, with which it is compared."""
    difference: float | None = None
    """Difference from the rival, or ratio to it."""
    difference_low: float | None = None
    """Lower end of the 95 % confidence interval of the difference."""
    difference_high: float | None = None
    """Upper end."""
    difference_unit: str = ""
    """Unit of the difference."""
    p: float | None = None
    """P-value of the test that decided the outcome; None if nothing was tested."""
    test: str = ""
    """Name of that test."""
    reasons: list[str] = []
    """Failed validity checks, or other reasons of the outcome."""
    facts: dict[str, float | str] = {}
    """Further numbers, by name."""
    variations: dict[str, bool] = {}
    """True if the outcome stays the same with another choice, by choice, such as `half the updates`."""
    tokens: float | None = None
    """Target tokens that the model was trained on; None if it was not trained for this row."""
    figure: str = ""
    """Name of the figure that shows it."""
    failed: str = ""
    """Why the measurement failed, or does not apply to the model; empty if it succeeded."""


class ClaimNumber(Part):
    """The number of one candidate in a row of the table of claims."""

    model: str
    """Candidate."""
    value: float | None = None
    """Estimate; None if there is none."""
    low: float | None = None
    """Lower end of its 95 % confidence interval; None for counts."""
    high: float | None = None
    """Upper end."""
    at_least: bool = False
    """True if the estimate is a lower bound, because no higher value was tried."""
    note: str = ""
    """Text in place of a missing number, or behind it, such as `never`."""
    best: bool = False
    """True if no other candidate has a better number."""


class Claim(Part):
    """A claim about architectures, with the verdict of this comparison."""

    name: str
    """Claim, a key of `s2s.comparison.plans.CLAIMS`."""
    measured: str
    """Quantity of the numbers, with the sizes of this comparison."""
    unit: str = ""
    """Unit of the numbers."""
    verdict: Literal["yes", "no", "undecided"]
    """Verdict: `yes` if the claim holds here, `no` if it does not."""
    sentence: str
    """Reason of the verdict, one sentence."""
    numbers: list[ClaimNumber]
    """Numbers of the candidates, in the order of the command."""
    p: float | None = None
    """P-value of the test that decided; None if nothing was tested."""
    test: str = ""
    """Name of that test."""
    figure: str = ""
    """Name of the figure that shows it."""
    stable: dict[str, bool] = {}
    """True if the verdict stays the same with another choice, by choice, such as `width 32`."""


class Table(Part):
    """A table of numbers."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    """Name of its file, unique within the result."""
    title: str
    """Title."""
    columns: list[str]
    """Column heads, with units."""
    rows: list[list[str | float | int | None]]
    """Cells by row."""


class Failure(Part):
    """A failed measurement, or one that does not apply to a model."""

    task: str
    """Name of its file, without the ending."""
    model: str
    """Candidate."""
    reason: str
    """Reason of the failure."""
    applicable: bool = True
    """False if the question does not apply to the model."""


class Result(Part):
    """Result of one question: `result.json`."""

    format: Literal[1] = FORMAT
    """Version of this file's fields."""
    experiment: Annotated[str, AfterValidator(_known_experiment)]
    """Name on the command line."""
    question: str
    """The question, in one sentence."""
    method: str
    """Method, in paragraphs separated by empty lines."""
    limits: str = ""
    """Limits of what the numbers say."""
    models: list[str]
    """Candidates, in the order of the command."""
    seeds: list[int]
    """Seeds of the repetitions."""
    findings: list[Verdict]
    """Cells of the table."""
    claims: list[Claim] = []
    """Claims that the question decides for these candidates."""
    figures: list[Figure] = []
    """Figures."""
    tables: list[Table] = []
    """Tables."""
    failures: list[Failure] = []
    """Failed measurements."""
    seconds: float = 0.0
    """Seconds of all its measurements together."""
    machines: list[str] = []
    """Processors and GPUs that measured it, each with the precision; empty for the comparison's own."""
    codes: list[str] = []
    """Versions of s2s that measured it, each with a digest of its modules and torch's version."""

    def elsewhere(self, summary: "Summary") -> list[str]:
        """Return the machines that measured it, if they are not just the one that the comparison names."""
        processor, precision = summary.began_on or ("", "")
        names = {each: without_precision(each) for each in self.machines}
        own = all(
            (name == processor or name.startswith(f"{processor}, ")) and each == f"{name} ({precision})"
            for each, name in names.items()
        )
        return [] if own else self.machines


def without_precision(machine: str) -> str:
    """Remove the precision: `AMD EPYC (family 26, model 2) (bf16)` is measured on `AMD EPYC (family 26, model 2)`."""
    return re.sub(r" \((?:fp|bf|tf)\d+\)$", "", machine)


RESULT = "result.json"
"""File of a `Result`, in the folder of its question."""


class CandidateSummary(Part):
    """A candidate as it was compared."""

    model: str
    """Name as typed."""
    settings: dict[str, object]
    """Model section of its recipe, in full."""
    traits: str = ""
    """Parts that claims are about, such as `recurrent + attention`; empty if unknown."""
    parameters: int
    """Number of trainable parameters on the task."""
    learning_rate: float
    """Learning rate chosen by tuning."""
    rates: dict[str, float | None]
    """Validation loss by learning rate, after short trainings at the chosen depth; None for failed ones."""
    inside: bool = False
    """True if a lower and a higher rate than the chosen one were tried, and are worse."""
    depths: dict[str, float | None] = {}
    """Lowest of these losses by number of layers, if that was tuned, too."""
    whole: dict[str, float | None] = {}
    """Validation loss of the best trials after training in full."""
    failures: dict[str, str] = {}
    """Failed trials, by reason."""
    tuning_seconds: float
    """Seconds of tuning."""
    recipe: str
    """Recipe in full, as YAML."""


class Summary(Part):
    """Summary of a comparison: `comparison.json`."""

    format: Literal[1] = FORMAT
    """Version of this file's fields."""
    command: Annotated[str, AfterValidator(_parsable)]
    """Command that reproduces it."""
    task: Task = "translation"
    """Task that the models are compared on; it determines the rows of the table."""
    profile: Profile
    """Profile: the name of its sizes."""
    match: Literal["parameters", "time"]
    """Quantity that is equal for all candidates: parameters and updates, or parameters and training time."""
    models: list[str]
    """Candidates, in the order of the command."""
    own: dict[str, dict[str, object]] = {}
    """Settings of single candidates in the command."""
    seeds: list[int]
    """Seeds of the repetitions."""
    experiments: list[Annotated[str, AfterValidator(_known_experiment)]]
    """Questions that the command asks, in order."""
    contenders: list[CandidateSummary]
    """Candidates as they were compared; empty before tuning."""
    machine: dict[str, str]
    """Processor, device, threads, versions, commit, date."""
    seconds: float
    """Seconds of all measurements together."""
    sized_for: str = ""
    """Kind of device that the sizes are for, that of the first machine: `cpu` or `cuda`."""

    @property
    def began_on(self) -> tuple[str, str] | tuple[()]:
        """Processor and precision of the first machine; empty before it began."""
        device = self.machine.get("device", "")
        return (self.machine.get("processor", ""), device.rpartition(", ")[2]) if device else ()

    def measured_on(self, results: Sequence[Result]) -> str:
        """Describe the machine; `begun on …` if others measured some of the results."""
        named = ", ".join(self.machine[key] for key in ("processor", "device", "date") if key in self.machine)
        return f"begun on {named}" if named and any(each.elsewhere(self) for each in results) else named


def write(part: Part, path: Path) -> None:
    """Write a result or a summary as JSON, atomically."""
    write_atomically(path, part.model_dump_json(indent=1) + "\n")


def read_result(path: Path) -> Result:
    """Read a `result.json`.

    Raises:
        UserError: The file is damaged, or of another version.
    """
    return read(path, Result)


def read_summary(path: Path) -> Summary:
    """Read a `comparison.json`.

    Raises:
        UserError: The file is damaged, or of another version.
    """
    again = "remove it and go on with s2s compare --resume, which has a copy beside the measurements"
    return read(path, Summary, "summary of a comparison", again)


def read(
    path: Path, kind: type[P], what: str = "result", again: str = "run the comparison again with s2s compare --resume"
) -> P:
    """Read a JSON file.

    Args:
        path: The file.
        kind: Class of its content.
        what: Noun for the error message.
        again: Remedy for the error message: how to make the file again.

    Raises:
        UserError: The file is damaged, or of another version.
    """
    try:
        return kind.model_validate_json(read_file(path, f"{again}, or use the version that wrote it"))
    except ValidationError as error:
        first = error.errors()[0]
        found = ": ".join(part for part in (".".join(map(str, first["loc"])), first["msg"]) if part)
        raise UserError(
            f"is no {what} that this version reads: {found}",
            where=str(path),
            remedy=f"{again}, or use the version that wrote it",
        ) from error


def reference() -> str:
    """Return the reference of all fields of a comparison's files, in Markdown."""
    verdicts = (Claim, ClaimNumber, Verdict)
    drawn = (Figure, Axis, Series, Mark, Heatmap, Table)
    parts = (Result, *verdicts, *drawn, Failure, Summary, CandidateSummary)
    return _HEAD + "".join(_section(part) for part in parts)


def _section(part: type[Part]) -> str:
    meanings = _field_docstrings(part)
    rows = [
        f"| `{name}` | {_type(field)} | {' '.join(meanings[name].split())} |\n"
        for name, field in part.model_fields.items()
    ]
    return f"\n## {part.__name__}\n\n{part.__doc__}\n\n| field | type | meaning |\n|---|---|---|\n{''.join(rows)}"


def _field_docstrings(part: type[Part]) -> dict[str, str]:
    return {
        ast.unparse(field.target): ast.literal_eval(after.value)
        for definition in ast.parse(inspect.getsource(part)).body
        if isinstance(definition, ast.ClassDef)
        for field, after in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr)
    }


def _type(field: FieldInfo) -> str:
    kind = field.annotation
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    text = re.sub(r"typing\.Annotated\[str, [^]]*\]", "str", text)
    text = re.sub(r"typing\.|s2s\.comparison\.(results|plans)\.", "", text).replace("NoneType", "null")
    return f"`{text.replace('None', 'null').replace('|', 'or')}`"
