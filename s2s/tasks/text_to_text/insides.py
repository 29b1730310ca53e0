"""What `s2s inspect` shows of a text-to-text model that does one of its tasks."""

from collections.abc import Sequence
from dataclasses import replace

from s2s.interpretability.inspection import Focus, Inspection
from s2s.interpretability.seq2seq import inspection_of
from s2s.models.contract import Seq2Seq
from s2s.tasks.contract import Loaded
from s2s.tasks.seq2seq import pair_of
from s2s.tasks.text_to_text.answers import log_probabilities, shares
from s2s.tasks.text_to_text.recipe import TextToTextRecipe
from s2s.tasks.text_to_text.use import task_named

MixtureRun = Loaded[TextToTextRecipe, Seq2Seq]


def insides(run: MixtureRun, focus: Focus) -> Inspection:
    """What is found of one text or two, prefix included; without a text, of an example of the first task or that named.

    Raises:
        UserError: no task is named, or another; a text is empty or too long, or has not the word.
    """
    name = focus.task
    if not focus.inputs and name is None:
        name = next(each for each, one in run.recipe.data.corpora.items() if one.objective == "pairs")
    task = task_named(run.recipe, name)
    texts = focus.inputs or (str(replace(focus, part=focus.part.parts[name]).example["source"][0]),)
    pairs = []
    for text in texts:
        answer, remark = (None, "") if task.answers is None else _answer(run, task.prefix + text, task.answers)
        pairs.append(pair_of(run, text, answer, task.prefix, remark))
    return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, *inspection_of(run.model, pairs, focus))


def _answer(run: MixtureRun, source: str, answers: Sequence[str]) -> tuple[str, str]:
    """The likeliest of the answers, and how likely each is."""
    found = shares(log_probabilities(run.model, run.tokenizers[0], [source], answers, 1))[0].tolist()
    likely = sorted(zip(found, answers, strict=True), reverse=True)
    return likely[0][1], " · ".join(f"{answer} {share:.3f}" for share, answer in likely)
