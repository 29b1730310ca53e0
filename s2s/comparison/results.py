"""Results of a comparison as JSON: verdicts, figures and tables.

The report is drawn from these files alone, so this module knows no model and does not import torch.
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from s2s.comparison.plans import TABLES, Profile, Task
from s2s.errors import UserError
from s2s.files import read_file, write_atomically

# raised when a field changes its meaning, so that an old file is refused and not misread
FORMAT = 1

_HEAD = """# The files of a comparison

`<experiment>/result.json` holds a `Result`, `comparison.json` a `Summary`. All fields are written, with a default or
without; numbers are finite or null. This page is made from `s2s/comparison/results.py`:
`python -c "from s2s.comparison.results import reference; print(reference(), end='')" > docs/results.md`.
"""

P = TypeVar("P", bound="Part")


def _one_of_ours(name: str) -> str:
    """A result is written into a folder of its experiment's name, so a file from elsewhere must not choose it."""
    known = {row.experiment for rows in TABLES.values() for row in rows.values()}
    if name not in known:
        raise ValueError(f"{name!r:.60} is no experiment; there are {', '.join(sorted(known))}")
    return name


def _words(command: str) -> str:
    try:
        shlex.split(command)
    except ValueError as error:
        raise ValueError(f"{command!r:.60} is no command: {error}") from None
    return command


def _all_ours(names: list[str]) -> list[str]:
    return [_one_of_ours(name) for name in names]


class Part(BaseModel):
    """A piece of a result: closed and unchangeable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Series(Part):
    """One curve, one group of bars, or the points of one kind."""

    label: str
    """What the legend says: the model and, where there are several forms of it, which."""
    model: str
    """Whose it is: gives the colour. Empty for what belongs to no model, such as a baseline."""
    x: list[float] | list[str]
    """Where the points stand: numbers, or names of groups."""
    y: list[float | None]
    """What was measured there; None where it could not be."""
    low: list[float | None] | None = None
    """Lower ends of 95 % intervals."""
    high: list[float | None] | None = None
    """Upper ends."""
    reference: bool = False
    """True if it is a baseline or a theory to compare with, not a measurement of a model."""


class Axis(Part):
    """An axis of a figure."""

    label: str
    """In words, without the unit."""
    unit: str = ""
    """E.g. `ms` or `%`; empty for a pure number."""
    log: bool = False
    """True if it is logarithmic."""


class Heatmap(Part):
    """A matrix as a picture."""

    label: str
    """What its title says."""
    model: str
    """Whose it is."""
    rows: list[str]
    """Names of the rows, from the top."""
    columns: list[str]
    """Names of the columns."""
    values: list[list[float | None]]
    """Row by row."""


class Mark(Part):
    """A place on the horizontal axis that a reader should know of, such as where the lengths learned from end."""

    at: float | str
    """Where: a number; or the name of a group, behind which it stands."""
    label: str
    """What is there."""


class Figure(Part):
    """A picture, as data."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    """Name of its file, unique within the result."""
    title: str
    """One sentence that says what is measured."""
    kind: Literal["lines", "bars", "points", "heatmaps"] = "lines"
    """How it is drawn; `points` are not joined."""
    x: Axis = Axis(label="")
    """The horizontal axis."""
    y: Axis = Axis(label="")
    """The vertical axis; for heat-maps, what colours mean."""
    series: list[Series] = []
    """What lines, bars and points show."""
    heatmaps: list[Heatmap] = []
    """What heat-maps show."""
    marks: list[Mark] = []
    """Vertical lines through lines, bars and points."""
    caption: str = ""
    """What to look for, and what the intervals are."""


class Verdict(Part):
    """A cell of the table: what was found of one candidate on one question."""

    row: str
    """The table's row, one of `s2s.comparison.plans.TABLES` of its task."""
    model: str
    """The candidate: the table's column."""
    value: float | None = None
    """The estimate; None where there is none."""
    low: float | None = None
    """Lower end of its 95 % interval."""
    high: float | None = None
    """Upper end."""
    at_least: bool = False
    """True if the estimate is a lower bound, because no higher one was looked for."""
    unit: str = ""
    """Of the three."""
    quantity: str = ""
    """What the estimate is, e.g. `exponent of training time against length`."""
    standing: Literal["better", "worse", "tie", "undecided", "still learning", "not measurable", ""] = ""
    """The outcome beside the best of the others; empty where nothing is compared. The last two must not be compared."""
    rival: str = ""
    """The best of the others, which the outcome compares it with."""
    difference: float | None = None
    """By how much it differs from the rival, or how many times the rival's it is."""
    difference_low: float | None = None
    """Lower end of the difference's 95 % interval."""
    difference_high: float | None = None
    """Upper end."""
    difference_unit: str = ""
    """Of the three."""
    p: float | None = None
    """P-value of the test that decided the outcome; None where nothing was tested."""
    test: str = ""
    """Name of that test."""
    reasons: list[str] = []
    """Failed validity checks, or what else explains the outcome."""
    facts: dict[str, float | str] = {}
    """Further numbers, by name."""
    variations: dict[str, bool] = {}
    """True if the outcome stays with another choice, by what was chosen instead, e.g. `half the updates`."""
    tokens: float | None = None
    """Target tokens that the model had learned from; None where it learned nothing for this row."""
    figure: str = ""
    """Name of the figure of the same result that shows it."""
    failed: str = ""
    """Why there is no estimate; empty where there is one."""


class Table(Part):
    """Numbers beside the figures."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    """Name of its file, unique within the result."""
    title: str
    """What it shows."""
    columns: list[str]
    """Heads of the columns, with units."""
    rows: list[list[str | float | int | None]]
    """Row by row."""


class Failure(Part):
    """A measurement that did not succeed."""

    task: str
    """Which, as its file is called."""
    model: str
    """Whose."""
    reason: str
    """What went wrong."""


class Result(Part):
    """Result of one question: `result.json`."""

    format: Literal[1] = FORMAT
    """Version of this file's fields."""
    experiment: Annotated[str, AfterValidator(_one_of_ours)]
    """Its name on the command line."""
    question: str
    """What it asks."""
    method: str
    """How it was measured, in plain words; paragraphs are separated by an empty line."""
    limits: str = ""
    """What the numbers do not say."""
    models: list[str]
    """Those compared, in the order of the command."""
    seeds: list[int]
    """Of the repetitions."""
    findings: list[Verdict]
    """Cells of the table."""
    figures: list[Figure] = []
    """Pictures."""
    tables: list[Table] = []
    """Numbers behind and beside them."""
    failures: list[Failure] = []
    """What was tried and did not succeed."""
    seconds: float = 0.0
    """Time that its measurements took."""
    machines: list[str] = []
    """Whose processors and GPUs measured it, each with the precision; the comparison's own where none is named."""
    codes: list[str] = []
    """Which s2s measured it: its version, a digest of its modules, and torch's version."""

    def elsewhere(self, summary: "Summary") -> list[str]:
        """The machines that measured it, where they are not just the one that the comparison names."""
        processor, precision = summary.began_on or ("", "")
        names = {each: without_precision(each) for each in self.machines}
        own = all(
            (name == processor or name.startswith(f"{processor}, ")) and each == f"{name} ({precision})"
            for each, name in names.items()
        )
        return [] if own else self.machines


def without_precision(machine: str) -> str:
    """`AMD EPYC (family 26, model 2)` of `AMD EPYC (family 26, model 2) (bf16)`: what made a measurement."""
    return re.sub(r" \((?:fp|bf|tf)\d+\)$", "", machine)


# the file of each experiment's `Result`, in a folder of its name
RESULT = "result.json"


class CandidateSummary(Part):
    """One model as it was compared."""

    model: str
    """As typed."""
    settings: dict[str, object]
    """Its section of the recipe, in full."""
    parameters: int
    """Trainable numbers of the whole model on the task."""
    learning_rate: float
    """Chosen for it."""
    rates: dict[str, float | None]
    """Validation loss by learning rate, after short trainings at the depth chosen; None where training failed."""
    inside: bool = False
    """True if lower and higher rates than the chosen one were tried, and are worse."""
    depths: dict[str, float | None] = {}
    """The lowest of these losses by number of layers, where that was chosen, too."""
    whole: dict[str, float | None] = {}
    """Validation loss of the best trials, trained as long as the recipe says."""
    failures: dict[str, str] = {}
    """The trials that failed, by the reason."""
    tuning_seconds: float
    """What choosing rate and depth cost."""
    recipe: str
    """Its recipe in full, as YAML."""


class Summary(Part):
    """Summary of a comparison: `comparison.json`."""

    format: Literal[1] = FORMAT
    """Version of this file's fields."""
    command: Annotated[str, AfterValidator(_words)]
    """What reproduces it."""
    task: Task = "translation"
    """What the models are compared on; it decides the table's rows."""
    profile: Profile
    """Name of the sizes used."""
    match: Literal["parameters", "time"]
    """What was made equal: the numbers of parameters and of updates, or of parameters and the training time."""
    models: list[str]
    """Those compared, in the order of the command."""
    own: dict[str, dict[str, object]] = {}
    """Settings that the command gives to single models."""
    seeds: list[int]
    """Of the repetitions."""
    experiments: Annotated[list[str], AfterValidator(_all_ours)]
    """Those asked for, in order."""
    contenders: list[CandidateSummary]
    """The models as they were compared; empty until their learning rates are chosen, or where none has to be."""
    machine: dict[str, str]
    """Processor, device, threads, versions, commit, date."""
    seconds: float
    """Time that all measurements took."""
    sized_for: str = ""
    """Kind of device that the sizes are for, that of the first that measured: `cpu` or `cuda`."""

    @property
    def began_on(self) -> tuple[str, str] | tuple[()]:
        """The processor and the precision of the machine that began; nothing where none did."""
        device = self.machine.get("device", "")
        return (self.machine.get("processor", ""), device.rpartition(", ")[2]) if device else ()

    def measured_on(self, results: Sequence[Result]) -> str:
        """The machine in words, as the one that only began where another measured some of the results; or nothing."""
        named = ", ".join(self.machine[key] for key in ("processor", "device", "date") if key in self.machine)
        return f"begun on {named}" if named and any(each.elsewhere(self) for each in results) else named


def write(part: Part, path: Path) -> None:
    """Writes a result or a summary as JSON; a crash leaves the old file or the new one."""
    write_atomically(path, part.model_dump_json(indent=1) + "\n")


def read_result(path: Path) -> Result:
    """Reads a `result.json`.

    Raises:
        UserError: it is damaged, or of another version.
    """
    return read(path, Result)


def read_summary(path: Path) -> Summary:
    """Reads a `comparison.json`.

    Raises:
        UserError: it is damaged, or of another version.
    """
    again = "remove it and go on with s2s compare --resume, which has a copy beside the measurements"
    return read(path, Summary, "summary of a comparison", again)


def read(
    path: Path, kind: type[P], what: str = "result", again: str = "run the comparison again with s2s compare --resume"
) -> P:
    """Reads a file of this kind, which is called so, and can be made again so.

    Raises:
        UserError: it is damaged, or of another version.
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
    """Reference of all fields of a comparison's files, in Markdown."""
    parts = (Result, Verdict, Figure, Axis, Series, Mark, Heatmap, Table, Failure, Summary, CandidateSummary)
    return _HEAD + "".join(_section(part) for part in parts)


def _section(part: type[Part]) -> str:
    head = f"\n## {part.__name__}\n\n{part.__doc__}\n\n| field | holds | meaning |\n|---|---|---|\n"
    fields = (
        (name, _type(field), " ".join(str(field.description).split())) for name, field in part.model_fields.items()
    )
    return head + "".join(f"| `{name}` | {kind} | {meaning} |\n" for name, kind, meaning in fields)


def _type(field: FieldInfo) -> str:
    kind = field.annotation
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    for old, new in (
        ("typing.", ""),
        ("s2s.comparison.results.", ""),
        ("s2s.comparison.plans.", ""),
        ("NoneType", "null"),
        ("None", "null"),
        ("|", "or"),
    ):
        text = text.replace(old, new)
    return f"`{text}`"
