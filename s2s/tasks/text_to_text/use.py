"""Inference with a text-to-text model: lines in, outputs of one task out."""

from collections.abc import Iterable, Iterator, Sequence

from s2s.decoding.generate import MAX_SOURCE_LENGTH, one_line
from s2s.errors import Refuse, UserError
from s2s.models.base import Seq2Seq
from s2s.tasks.base import TOKENIZER, LoadedModel
from s2s.tasks.line_translation import ReportFn, TooLong, VocabularyCoverage, count_sentences, translate_lines
from s2s.tasks.seq2seq import build_translator, check_fits
from s2s.tasks.text_to_text.answers import best_first, log_probabilities
from s2s.tasks.text_to_text.recipe import CorpusSettings, TextToTextRecipe


def task_named(recipe: TextToTextRecipe, name: str | None) -> CorpusSettings:
    """Return the settings of a task by name, or of the only task.

    Args:
        name: Name of the task; None for the only one.

    Raises:
        UserError: The task is unknown or ambiguous, or all corpora use span corruption.
    """
    corpora = {n: each for n, each in recipe.data.corpora.items() if each.objective == "pairs"}
    if name in corpora:
        return corpora[name]
    if name is None and len(corpora) == 1:
        return next(iter(corpora.values()))
    if not corpora:
        what = "the run learned nothing but to write what was taken out of texts"
        raise UserError(what, recipe.name, "train another one with init_from, init.parts=all and a task of pairs")
    what = "no task is named" if name is None else f"{name!r} is no task of this run"
    raise UserError(what, where="--task", remedy=f"name one of {', '.join(corpora)}")


def check_chosen(answers: Sequence[str], nbest: int, searching: Sequence[str]) -> None:
    """Refuse options that do not apply to a task with answers.

    Args:
        nbest: Number of answers to return.
        searching: Search options that the user gave, as written.

    Raises:
        UserError: A search option is given, or `nbest` is not between 1 and the number of answers.
    """
    if searching:
        raise UserError("says nothing to a task with answers, which searches nothing", searching[0], "leave it out")
    if not 1 <= nbest <= len(answers):
        what = f"{nbest} best answers asked for, but there are {len(answers)}"
        raise UserError(what, remedy=f"ask for 1 to {len(answers)}")


def generate_answers(
    run: LoadedModel[TextToTextRecipe, Seq2Seq],
    name: str | None,
    chunks: Iterable[list[str]],
    nbest: int,
    at_once: bool,
    tell: ReportFn,
    refuse: Refuse,
) -> Iterator[str]:
    """Generate or choose an output for each line, for one of the model's tasks.

    Args:
        name: Name of the task; None for the only one.
        chunks: Lines that are read together.
        nbest: Number of outputs for each line.
        at_once: Print each warning immediately, for an interactive session; otherwise counts at the end.
        refuse: Receives the error of each line that is too long; its output is empty.

    Yields:
        Outputs in order; with n-best output, `line number TAB log probability TAB answer`, or the score of a generated
        text.

    Raises:
        UserError: The task is unknown or ambiguous.
    """
    task, seen = task_named(run.recipe, name), VocabularyCoverage.load(run.checkpoint / TOKENIZER)
    if task.answers is None:
        yield from translate_lines(build_translator(run, nbest), seen, chunks, at_once, tell, task.prefix, refuse)
        return
    number, tokenizer = 0, run.tokenizers[0]
    too_long = TooLong(seen.longest if seen else None, tell, at_once, sentences=seen.sentences if seen else None)
    for chunk in chunks:
        filled = {place: task.prefix + text for place, text in enumerate(chunk) if text.strip()}
        for place, text in list(filled.items()):
            try:
                check_fits(run.model, tokenizer.encode(text), (), MAX_SOURCE_LENGTH)
            except UserError as error:
                refuse(number + place, error)
                del filled[place]
        rows = log_probabilities(run.model, tokenizer, list(filled.values()), task.answers, run.recipe.decoding.batch)
        found = dict(zip(filled, rows, strict=True))
        for place in range(len(chunk)):
            number += 1
            text = filled.get(place, "")
            too_long.add(len(tokenizer.encode(text)) if place in found else 0, count_sentences(text))
            best = best_first(found[place], task.answers) if place in found else []
            if nbest == 1:
                yield one_line(best[0][1]) if best else ""
            else:
                yield from (f"{number}\t{score:.4f}\t{one_line(answer)}" for score, answer in best[:nbest])
                yield from () if best else (f"{number}\t\t",)
    too_long.report()
