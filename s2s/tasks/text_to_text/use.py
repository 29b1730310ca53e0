"""Lines in, one task's answers out."""

from collections.abc import Iterable, Iterator, Sequence

from s2s.errors import UserError
from s2s.models.contract import Seq2Seq
from s2s.tasks.contract import TOKENIZER, Loaded
from s2s.tasks.lines import Seen, Tell, translated
from s2s.tasks.seq2seq import translator_of
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


def written(
    run: Loaded[TextToTextRecipe, Seq2Seq],
    name: str | None,
    chunks: Iterable[list[str]],
    nbest: int,
    at_once: bool,
    tell: Tell,
) -> Iterator[str]:
    """What a model writes for each line as one of its tasks, in order; of a task with answers, one of them.

    With more than one best, answers come as `line number TAB log probability TAB answer`, as translations do with their
    scores.
    """
    task = task_named(run.recipe, name)
    if task.answers is None:
        seen = Seen.load(run.checkpoint / TOKENIZER)
        yield from translated(translator_of(run, nbest), seen, chunks, at_once, tell, task.prefix)
        return
    number = 0
    for chunk in chunks:
        filled = [task.prefix + text for text in chunk if text.strip()]
        found = iter(log_probabilities(run.model, run.tokenizers[0], filled, task.answers, run.recipe.decoding.batch))
        for text in chunk:
            number += 1
            best = best_first(next(found), task.answers) if text.strip() else []
            if nbest == 1:
                yield best[0][1] if best else ""
            else:
                yield from (f"{number}\t{score:.4f}\t{answer}" for score, answer in best[:nbest])
                yield from () if best else (f"{number}\t\t",)
