"""The table of claims: as data for the page, as CSV and as lines for a terminal."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from s2s.comparison.plans import CLAIMS, ClaimText, ModelGroup
from s2s.comparison.report.numbers import brief, halves
from s2s.comparison.report.table import ARROWS, stays_with
from s2s.comparison.results import RESULT, CandidateSummary, Claim, ClaimNumber, Result, Summary
from s2s.comparison.traits import Traits

CSV = "claims.csv"
HEAD = ("number", "claim", "measured", "verdict", "evidence", "command")
"""Columns of `claims.csv`."""
WORDS = {"yes": "✔ yes", "no": "✘ no", "undecided": "undecided"}
"""Verdicts on the page and in Markdown."""
LEGEND = (
    "✔ the claim holds here; ✘ it does not; undecided: the tests decide neither. ↑ higher is better; ↓ lower is "
    "better. Bold: the best of the models that finished learning, and all that tie with it, if the claim is decided. "
    "† still learning when training ended (in translation: another doubling would gain 1 BLEU). ≥ at least: no larger "
    "size was tested. (In brackets): the quantity in brackets in the second column, or a remark. – not measured."
)


_LEARNING = "still learning"


@dataclass(frozen=True)
class NumberCell:
    """The number of a candidate in the table of claims, as text."""

    model: str
    text: str = "–"
    note: str = ""  # after the number, or in its place
    ends: str = ""  # of the 95 % interval
    best: bool = False

    @property
    def mark(self) -> str:
        """Dagger if the model was still learning."""
        return "†" if self.text and self.note.startswith(_LEARNING) else ""

    @property
    def remark(self) -> str:
        """Note without the text that the dagger stands for.

        Example:
            >>> cell = NumberCell("transformer", "20", "still learning, with rotary positions 8")
            >>> cell.mark, cell.remark
            ('†', 'with rotary positions 8')
        """
        return self.note.removeprefix(_LEARNING).removeprefix(", ") if self.mark else self.note

    def __str__(self) -> str:
        """The number and its note in words."""
        return f"{self.text} ({self.note})" if self.note and self.text else self.note or self.text


@dataclass(frozen=True)
class ClaimRow:
    """Row of the table of claims."""

    claim: Claim
    result: Result  # of the question that decides it
    cells: list[NumberCell]  # one for each model

    @property
    def number(self) -> int:
        """Number of the claim, the same in all comparisons."""
        return CLAIMS[self.claim.name].number

    @property
    def claimed(self) -> str:
        """Sentence of the claim."""
        return CLAIMS[self.claim.name].sentence

    @property
    def arrow(self) -> str:
        """Arrow up if higher is better, down if lower is; or empty."""
        return ARROWS[self.good]

    @property
    def good(self) -> str:
        """Good numbers: `high`, `low`, or empty."""
        return CLAIMS[self.claim.name].good

    @property
    def word(self) -> str:
        """Verdict in words, with its sign."""
        return WORDS[self.claim.verdict]

    @property
    def test(self) -> str:
        """Name of the test and its p-value; empty for counts."""
        p = self.claim.p
        return ", ".join(filter(None, [self.claim.test, "" if p is None else f"p {_p_value(p)}"]))

    @property
    def stability(self) -> str:
        """Variations in which the verdict stays the same, and those in which it does not; may be empty."""
        return stays_with(self.claim.stable)

    @property
    def evidence(self) -> str:
        """File with the numbers, in the folder of the comparison, and the figure in it."""
        figure = f", figure {self.claim.figure}" if self.claim.figure else ""
        return f"{self.result.experiment}/{RESULT}{figure}"


# Models of each group, by their traits and their settings.
_GROUPS: dict[ModelGroup, Callable[[Traits, Mapping[str, object]], bool]] = {
    "a recurrent network": lambda traits, _: traits.is_sequential,
    "a recurrent encoder": lambda traits, _: traits.recurrence == "steps",
    "a recurrent encoder without attention": lambda traits, _: (
        traits.recurrence == "steps" and not traits.cross_attention
    ),
    "a recurrent decoder": lambda traits, _: traits.decoder_recurrence != "none",
    "a recurrent or scan encoder": lambda traits, _: traits.recurrence != "none",
    "a Transformer": lambda traits, _: traits.is_transformer,
    "a Transformer with a choice of positions": lambda traits, settings: (
        traits.is_transformer and {"encoder_positions", "decoder_positions"} <= settings.keys()
    ),
    "the built-in Transformer": lambda _, settings: settings.get("kind") == "transformer",
    "a model that is not a Transformer": lambda traits, _: not traits.is_transformer,
    "a model with self-attention": lambda traits, _: traits.self_attention,
    "a model with attention": lambda traits, _: traits.self_attention or traits.cross_attention,
    "a model with attention over the source": lambda traits, _: traits.cross_attention,
    "a model without attention over the source": lambda traits, _: not traits.cross_attention,
}


def missing_models(claim: ClaimText, candidates: Sequence[CandidateSummary]) -> list[ModelGroup]:
    """Return the groups without a candidate that a claim is about; none if the traits of a candidate are unknown.

    Args:
        claim: The claim.
        candidates: Candidates as they were compared.
    """
    if not candidates or not all(each.traits for each in candidates):
        return []
    models = [(Traits.parse(each.traits), each.settings) for each in candidates]
    return [group for group in claim.needs if not any(_GROUPS[group](*model) for model in models)]


def undecided(summary: Summary, results: Sequence[Result]) -> list[tuple[ClaimText, str]]:
    """Return the claims without a verdict, with reasons."""
    there = {claim.name for result in results for claim in result.claims}
    finished = {result.experiment for result in results}
    failures = ((result.experiment, each.reason) for result in results for each in result.failures if each.applicable)
    failed = dict(reversed(list(failures)))
    found = []
    for claim in (claim for name, claim in CLAIMS.items() if name not in there):
        if missing := missing_models(claim, summary.contenders):
            why = f"needs {' and '.join(missing)}"
        elif claim.experiment in failed:
            why = f"has no verdict: {failed[claim.experiment]}"
        elif claim.experiment in finished:
            why = "needs other models"
        elif claim.experiment in summary.experiments:
            why = "not finished"
        else:
            why = f"not requested: {command_for(summary.command, claim.experiment)}"
        found.append((claim, why))
    return found


def explain_absence(summary: Summary, results: Sequence[Result]) -> str:
    """Return a line on why the results decide no claim; empty if they do, or if no claims are about the task."""
    if summary.task != "translation" or any(result.claims for result in results):
        return ""
    asked = {*summary.experiments, *(result.experiment for result in results)}
    reasons = [f"{claim.number} {why}" for claim, why in undecided(summary, results) if claim.experiment in asked]
    return f"No claim is decided: {'; '.join(reasons) or 'these experiments are about none'}."


def claim_rows(models: Sequence[str], results: Sequence[Result]) -> list[ClaimRow]:
    """Build the rows of all claims that the results decide, in the order of their numbers.

    Args:
        models: Columns.
        results: Finished results.
    """
    rows = []
    for result in results:
        for claim in result.claims:
            known = {each.model: each for each in claim.numbers}
            decided = claim.verdict != "undecided"
            cells = [_cell(known[model], decided) if model in known else NumberCell(model) for model in models]
            rows.append(ClaimRow(claim, result, cells))
    return sorted(rows, key=lambda row: row.number)


def _cell(number: ClaimNumber, decided: bool) -> NumberCell:
    if number.value is None:
        return NumberCell(number.model, "" if number.note else "–", number.note)
    _, ends, power = halves(number.value, number.low, number.high)
    # The interval of a lower bound may have no width; then it is not shown.
    ends = "" if number.low == number.high else f"{ends}{power}"
    text = f"{'≥ ' if number.at_least else ''}{brief(number.value, 3)}"
    return NumberCell(number.model, text, number.note, ends, number.best and decided)


def tally(rows: Sequence[ClaimRow]) -> str:
    """Count the verdicts in a sentence; empty without claims."""
    counts = {verdict: sum(row.claim.verdict == verdict for row in rows) for verdict in WORDS}
    if not rows:
        return ""
    return (
        f"Claims that hold here: {counts['yes']} of {len(rows)}; that do not hold: {counts['no']}; "
        f"undecided: {counts['undecided']}."
    )


def _p_value(p: float) -> str:
    return "≤ 0.001" if p <= 0.001 else f"= {p:.2g}"


def device_in_words(summary: Summary) -> str:
    """Describe the device of a comparison, such as `two processor cores` or a GPU's name; empty before it began."""
    device = summary.machine.get("device", "")
    kind, _, rest = device.partition(", ")
    if kind != "cpu":
        return kind
    count = rest.partition(" ")[0]
    return (
        {"1": "one processor core", "2": "two processor cores"}.get(count, f"{count} processor cores") if rest else kind
    )


def command_for(command: str, experiment: str) -> str:
    """Return the command of a comparison with one question alone."""
    kept, words = [], iter(shlex.split(command))
    for word in words:
        if word == "--experiment":
            next(words, None)
        elif not word.startswith("--experiment="):
            kept.append(word)
    return shlex.join([*kept, "--experiment", experiment])


def csv_rows(rows: Sequence[ClaimRow], command: str) -> Iterator[tuple[str | int, ...]]:
    """Yield the rows of `claims.csv`, with the columns of `HEAD`.

    Args:
        rows: Claims.
        command: Command of the comparison.
    """
    for row in rows:
        found = "; ".join(f"{cell.model} {cell}" for cell in row.cells)
        measured = f"{row.claim.measured}: {found}"
        again = command_for(command, row.result.experiment)
        yield row.number, row.claimed, measured, row.claim.verdict, row.evidence, again


def claim_lines(rows: Sequence[ClaimRow]) -> list[str]:
    """Describe each claim in a line for a terminal: verdict, number, sentence and numbers."""
    lines = []
    for row in rows:
        found = ", ".join(f"{cell.model} {cell}" for cell in row.cells if str(cell) != "–")
        lines.append(f"{row.claim.verdict:<9}  {row.number:>2}  {row.claimed} ({f'{found} {row.claim.unit}'.rstrip()})")
    return lines
