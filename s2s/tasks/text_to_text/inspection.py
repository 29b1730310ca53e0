"""Inspection of a text-to-text model on one of its tasks."""

from collections.abc import Sequence
from dataclasses import replace

from s2s.errors import UserError
from s2s.inspection.inspection import Inspection, InspectionRequest
from s2s.inspection.seq2seq import inspection_of
from s2s.models.base import Seq2Seq
from s2s.tasks.base import LoadedModel
from s2s.tasks.symptoms import pair_of
from s2s.tasks.text_to_text.answers import best_first, log_probabilities, shares
from s2s.tasks.text_to_text.recipe import TextToTextRecipe
from s2s.tasks.text_to_text.use import task_named

MixtureRun = LoadedModel[TextToTextRecipe, Seq2Seq]


def insides(run: MixtureRun, focus: InspectionRequest) -> Inspection:
    """Inspect one text or two, with their prefix (`s2s inspect`).

    Without a text, an example of the named task is used, or of the first one.

    Args:
        focus: Texts, task, and the word, layer and head to inspect.

    Returns:
        Attention, saliency and hidden states.

    Raises:
        UserError: The task is missing, unknown or without example; or a text is empty or too long, or lacks the word.
    """
    corpora, name = run.recipe.data.corpora, focus.task
    there = [] if focus.inputs else [each for each in focus.part.parts if corpora[each].objective == "pairs"]
    name = name or next(iter(there), None)
    task = task_named(run.recipe, name)
    if not focus.inputs and name not in there:
        what = f"{name or 'the task'} has no {focus.split} set to take an example of"
        raise UserError(what, "INPUT", "give a text" + "".join(f", or --task {each}" for each in there[:1]))
    texts = focus.inputs or (str(replace(focus, part=focus.part.parts[name]).example["source"][0]),)
    pairs = []
    for text in texts:
        answer, remark = (None, "") if task.answers is None else _answer(run, task.prefix + text, task.answers)
        pairs.append(pair_of(run, text, answer, task.prefix, remark))
    return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, *inspection_of(run.model, pairs, focus))


def _answer(run: MixtureRun, source: str, answers: Sequence[str]) -> tuple[str, str]:
    """Return the most probable answer, and a remark with all probabilities."""
    found = shares(log_probabilities(run.model, run.tokenizers[0], [source], answers, 1))[0].tolist()
    likely = best_first(found, answers)
    return likely[0][1], " · ".join(f"{answer} {share:.3f}" for share, answer in likely)
