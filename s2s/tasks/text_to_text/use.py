"""Lines in, one task's answers out."""

from collections.abc import Iterable, Iterator, Sequence

from s2s.decoding.generate import MAX_SOURCE_LENGTH, one_line
from s2s.errors import Refuse, UserError
from s2s.inspection.seq2seq import check_fits
from s2s.models.base import Seq2Seq
from s2s.tasks.base import TOKENIZER, LoadedModel
from s2s.tasks.line_translation import ReportFn, TooLong, VocabularyCoverage, count_sentences, translate_lines
from s2s.tasks.seq2seq import build_translator
from s2s.tasks.text_to_text.answers import best_first, log_probabilities
from s2s.tasks.text_to_text.recipe import CorpusSettings, TextToTextRecipe


def task_named(recipe: TextToTextRecipe, name: str | None) -> CorpusSettings:
    """The task of that name, or the only one.

    Raises:
        UserError: there is no such task, none is named and there are several, or it is one that nobody uses.
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
    """Refuses what nobody can follow who chooses one of a few answers.

    Args:
        answers: to choose from.
        nbest: how many are asked for.
        searching: what was given that is of a search, as the user wrote it.

    Raises:
        UserError: something is, or not as many answers are there, or none is asked for.
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
    """What a model writes for each line as one of its tasks, in order; of a task with answers, one of them.

    A line that is too long is given to `refuse`, and its answer is empty.

    With more than one best, answers come as `line number TAB log probability TAB answer`, as translations do with their
    scores.
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
