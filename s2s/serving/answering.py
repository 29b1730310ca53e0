"""Request handling: check requests and compute answers with the served runs."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from s2s.data.sentences import SplitLine
from s2s.decoding.generate import Candidate as Found
from s2s.errors import UserError
from s2s.models.base import Seq2Seq
from s2s.recipe.pairs import PairRecipe
from s2s.recipe.schema import SearchRecipe
from s2s.recipe.wording import suggestion
from s2s.run.trained_run import WRITES, Run
from s2s.serving.messages import Alignment, Attention, Candidate, ClassifyResponse, Limits, Served, Translated
from s2s.tasks.text_to_text.recipe import TextToTextRecipe

# Decimal places of attention weights.
_DIGITS = 4
_LABELS = ("classification",)


class RunNotFound(UserError):
    """A request names a run that is not served."""


@dataclass(frozen=True)
class GenerationRequest:
    """Options of a translation request; requests with equal options can share a batch."""

    run: str
    beam: int | None = None
    nbest: int = 1
    task: str | None = None
    alignment: bool = False
    attention: bool = False


class RequestHandler:
    """Checks and computes requests for the served runs."""

    def __init__(self, runs: Mapping[str, Run], limits: Limits) -> None:
        self.limits = limits
        self.runs = {name: _bounded(run, limits.beam) for name, run in runs.items()}

    def served(self) -> list[Served]:
        """Describe the served runs, in order."""
        found = []
        for name, run in self.runs.items():
            decoding = dict(run.recipe).get("decoding")
            beam = None if decoding is None or decoding.sample else decoding.beam
            found.append(Served(name=name, task=run.task, answers=_path(run), beam=beam, tasks=_tasks(run)))
        return found

    def named(self, name: str | None, classes: bool) -> str:
        """Return the run for a request; None names the first run with a suitable task."""
        tasks = _LABELS if classes else WRITES
        if name is None:
            name = next((each for each, run in self.runs.items() if run.task in tasks), None)
            if name is None:
                there = ", ".join(f"{each} ({run.task})" for each, run in self.runs.items())
                raise RunNotFound(f"no run of {' or '.join(tasks)} is served; there are {there}")
        if name not in self.runs:
            raise RunNotFound(f"no run {name[:60]!r} is served", remedy=suggestion(name[:60], list(self.runs)))
        return name

    def split(self, asked: GenerationRequest, lines: list[str]) -> list[SplitLine]:
        """Split texts into sentences.

        Raises:
            UserError: The run is not one of translation, an option is about whole texts, or sentencex is missing.
        """
        for name, given in (("nbest", asked.nbest > 1), ("alignment", asked.alignment), ("attention", asked.attention)):
            if given:
                raise UserError("does not apply to single sentences", name, "leave it out, or split_sentences")
        found = self.runs[asked.run].split_sentences(lines)
        if (count := sum(len(line.sentences) for line in found)) > self.limits.lines:
            what = f"{count:,} sentences; a request has at most {self.limits.lines:,}"
            raise UserError(what, remedy="send fewer or shorter texts at once")
        return found

    def check(self, asked: GenerationRequest | str, lines: list[str]) -> int:
        """Refuse a request that the run cannot answer, before it enters the queue.

        Returns:
            Positions of the longest text in a batch: its tokens times the beam size.
        """
        name, task = (asked, None) if isinstance(asked, str) else (asked.run, asked.task)
        run, able = self.runs[name], _LABELS if isinstance(asked, str) else WRITES
        if run.task not in able:
            others = [other for other, each in self.runs.items() if each.task in able]
            what = f"is a run of task {run.task}, which cannot {'classify' if able is _LABELS else 'translate'}"
            raise UserError(what, f"run {name!r:.80}", f"name {' or '.join(others)}" if others else f"ask {_path(run)}")
        beam = 1 if isinstance(asked, str) else _check_search(run, asked)
        counts, most = run.count_tokens(lines, task), run.max_source_tokens
        for number, count in enumerate(counts, start=1):
            which = f"text {number}" if len(counts) > 1 else "the text"
            if count > self.limits.tokens:
                raise UserError(f"{which} has {count:,} tokens; at most {self.limits.tokens:,}", remedy="split it")
            if most is not None and count > most:
                what = f"{which} has {count:,} tokens; the model has positions for {most:,}"
                raise UserError(what, remedy="split it")
        longest = max(counts)
        positions = len(lines) * longest * beam
        if positions > self.limits.positions:
            what = f"{len(lines):,} texts × {longest:,} tokens of the longest × beam {beam} are {positions:,} positions"
            raise UserError(f"{what}; at most {self.limits.positions:,}", remedy="send fewer or shorter texts at once")
        return longest * beam

    def __call__(
        self, asked: GenerationRequest | str, lines: list[str], before_step: Callable[[], None]
    ) -> Sequence[Translated | ClassifyResponse]:
        """Compute one answer per text for a request that `check` accepted; called in the model thread.

        An exception that `before_step` raises before a decoder step ends the computation.
        """
        if isinstance(asked, str):
            found, truncated = self.runs[asked].probabilities_and_truncation(lines)
            return [
                ClassifyResponse(label=max(each, key=each.__getitem__, default=""), probabilities=each, truncated=cut)
                for each, cut in zip(found, truncated, strict=True)
            ]
        run = self.runs[asked.run]
        found = run.candidates(lines, asked.nbest, asked.beam, asked.task, before_step)
        long = run.longer_than_training(lines, asked.task)
        answers = []
        words = run.unknown_words(lines, asked.task)
        for line, best, too_long, unknown in zip(lines, found, long, words, strict=True):
            candidates = []
            for each in best:
                # Attention and alignment are computed per candidate, which takes time.
                before_step()
                candidates.append(_candidate(run, asked, line, each))
            text = candidates[0].text if candidates else ""
            answers.append(
                Translated(text=text, candidates=candidates, longer_than_training=too_long, unknown=list(unknown))
            )
        return answers


def join_sentences(line: SplitLine, translations: Sequence[Translated]) -> Translated:
    """Join the translations of the sentences of a text, with its white space."""
    return Translated(
        text=line.join([each.text for each in translations]),
        candidates=[candidate for each in translations for candidate in each.candidates],
        longer_than_training=any(each.longer_than_training for each in translations),
        unknown=list(dict.fromkeys(word for each in translations for word in each.unknown)),
    )


def _bounded(run: Run, most: int) -> Run:
    """Return the run, with the beam size of its recipe bounded."""
    decoding = run.recipe.decoding if isinstance(run.recipe, SearchRecipe) else None
    if decoding is None or decoding.beam <= most:
        return run
    bounded, fewer = copy(run), decoding.model_copy(update={"beam": most, "beam_groups": 1})
    bounded.loaded = replace(run.loaded, recipe=run.recipe.model_copy(update={"decoding": fewer}))
    return bounded


def _check_search(run: Run, asked: GenerationRequest) -> int:
    """Check the fields `task`, `nbest` and `beam`, and return the hypotheses of each text in a batch.

    These are the beam size, the number of samples, or 1 without a search.
    """
    recipe = run.recipe
    if isinstance(recipe, TextToTextRecipe):
        tasks = _tasks(run)
        if asked.task not in tasks and not (asked.task is None and len(tasks) == 1):
            what = "is missing" if asked.task is None else f"the run has no task {asked.task!r:.80}"
            raise UserError(what, where="task", remedy=f"name one of {', '.join(tasks)}")
        answers = recipe.data.corpora[asked.task or tasks[0]].answers
        if answers is not None:
            if asked.beam is not None:
                what = f"the task has {len(answers)} answers to choose from, and no search"
                raise UserError(what, where="beam", remedy="leave it out")
            if asked.nbest > len(answers):
                raise UserError(f"is {asked.nbest}; the task has {len(answers)} answers", where="nbest")
            return 1
    elif asked.task is not None:
        raise UserError("a run of translation has no tasks to name", where="task", remedy="leave it out")
    decoding = recipe.decoding if isinstance(recipe, SearchRecipe) else None
    # a request for a beam size is one for a search
    if decoding is not None and decoding.sample and asked.beam is None:
        return asked.nbest
    beam = asked.beam or (decoding.beam if decoding else 1)
    if asked.nbest > beam:
        what = f"is {asked.nbest}, but the beam holds {beam}"
        raise UserError(what, where="nbest", remedy=f"set beam to {asked.nbest} or more, or lower nbest")
    return beam


def _tasks(run: Run) -> list[str]:
    corpora = run.recipe.data.corpora if isinstance(run.recipe, TextToTextRecipe) else {}
    return [each for each, corpus in corpora.items() if corpus.objective == "pairs"]


def _path(run: Run) -> str:
    return "/translate" if run.task in WRITES else "/classify"


def _candidate(run: Run, asked: GenerationRequest, line: str, found: Found) -> Candidate:
    tokens, attention, alignment = found.hypothesis.tokens, None, None
    if asked.attention or asked.alignment:
        maps = run.looks(line, tokens, asked.task)
        if len(maps.weights) and asked.attention:
            weights = maps.weights[-1].mean(axis=0).round(_DIGITS).tolist()
            attention = Attention(source=list(maps.columns), target=list(maps.rows), weights=weights)
        if len(maps.weights) and asked.alignment:
            source, target, links = run.alignment(line, tokens, asked.task)
            alignment = Alignment(source=source, target=target, links=links)
    return Candidate(
        text=found.text,
        score=found.score,
        at_length_limit=found.hypothesis.cut and not run.loaded.narrow(PairRecipe, Seq2Seq).model.decoder.is_one_to_one,
        alignment=alignment,
        attention=attention,
    )
