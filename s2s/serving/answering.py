"""What runs answer: the work of the model thread."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from s2s.decoding.translator import Candidate as Found
from s2s.errors import UserError
from s2s.recipe.wording import suggestion
from s2s.run.trained import WRITES, Run
from s2s.serving.messages import Alignment, Attention, Candidate, Classified, Served, Translated

# of weights: what a page can show
_DIGITS = 4


class NoSuchRun(UserError):
    """A run is named that is not served."""


@dataclass(frozen=True)
class Asked:
    """What is asked of a run, beside the lines; two of the same can share a batch."""

    run: str
    beam: int | None = None
    nbest: int = 1
    task: str | None = None
    alignment: bool = False
    attention: bool = False


class Answering:
    """Runs by name, and what they answer.

    Args:
        runs: whose recipes may ask for any beam.
        beam: the largest; a request that names none is searched with it where the recipe's is larger.
    """

    def __init__(self, runs: Mapping[str, Run], beam: int) -> None:
        self.runs = {name: _bounded(run, beam) for name, run in runs.items()}

    def served(self) -> list[Served]:
        """What there is, in order."""
        return [_served(name, run) for name, run in self.runs.items()]

    def named(self, name: str | None, classes: bool) -> str:
        """The run of that name, or the first one that fits.

        Raises:
            NoSuchRun: there is none.
        """
        tasks = ("classification",) if classes else WRITES
        if name is None:
            name = next((each for each, run in self.runs.items() if run.task in tasks), None)
            if name is None:
                there = ", ".join(f"{each} ({run.task})" for each, run in self.runs.items())
                raise NoSuchRun(f"no run of {' or '.join(tasks)} is served; there are {there}")
        if name not in self.runs:
            raise NoSuchRun(f"no run {name[:60]!r} is served", remedy=suggestion(name[:60], list(self.runs)))
        return name

    def __call__(self, asked: Asked | str, lines: list[str]) -> Sequence[Translated | Classified]:
        """Translations, or the classes where only the run's name is asked; for the model thread.

        Raises:
            UserError: the run cannot do it, or a line is too long for it.
        """
        if isinstance(asked, str):
            found = self.runs[asked].probabilities(lines)
            return [Classified(label=max(each, key=each.__getitem__, default=""), probabilities=each) for each in found]
        run = self.runs[asked.run]
        found = run.candidates(lines, asked.nbest, asked.beam, asked.task)
        return [_translated(run, asked, line, each) for line, each in zip(lines, found, strict=True)]


def _bounded(run: Run, most: int) -> Run:
    """The run as its recipe has it, or with a smaller beam."""
    decoding = dict(run.recipe).get("decoding")
    if decoding is None or decoding.beam <= most:
        return run
    bounded, fewer = copy(run), decoding.model_copy(update={"beam": most})
    bounded.loaded = replace(run.loaded, recipe=run.recipe.model_copy(update={"decoding": fewer}))
    return bounded


def _served(name: str, run: Run) -> Served:
    decoding = dict(run.recipe).get("decoding")
    corpora = dict(run.recipe)["data"].corpora if run.task == "text-to-text" else {}
    return Served(
        name=name,
        task=run.task,
        answers="/translate" if run.task in WRITES else "/classify",
        beam=decoding.beam if decoding else None,
        tasks=[each for each, corpus in corpora.items() if corpus.objective == "pairs"],
    )


def _translated(run: Run, asked: Asked, line: str, found: Sequence[Found]) -> Translated:
    candidates = [_candidate(run, asked, line, each) for each in found]
    return Translated(text=candidates[0].text if candidates else "", candidates=candidates)


def _candidate(run: Run, asked: Asked, line: str, found: Found) -> Candidate:
    pieces, attention, alignment = found.hypothesis.tokens, None, None
    if asked.attention or asked.alignment:
        maps = run.looks(line, pieces, asked.task)
        if len(maps.weights) and asked.attention:
            weights = maps.weights[-1].mean(axis=0).round(_DIGITS).tolist()
            attention = Attention(source=list(maps.columns), target=list(maps.rows), weights=weights)
        if len(maps.weights) and asked.alignment:
            source, target, links = run.alignment(line, pieces, asked.task)
            alignment = Alignment(source=source, target=target, links=links)
    return Candidate(text=found.text, score=found.score, alignment=alignment, attention=attention)
