"""What `s2s inspect` shows of a translator: where it looks while it writes, and what source words weigh for that."""

from s2s.interpretability.inspection import Focus, Inspection
from s2s.interpretability.seq2seq import inspection_of
from s2s.models.contract import Seq2Seq
from s2s.tasks.contract import Loaded
from s2s.tasks.seq2seq import pair_of
from s2s.tasks.translation.recipe import Recipe


def insides(run: Loaded[Recipe, Seq2Seq], focus: Focus) -> Inspection:
    """What is found of one sentence or two, each with the model's own translation unless the focus has another.

    Raises:
        UserError: a sentence is empty or too long, or has not the word; or there is no such layer or head.
    """
    # an example of a split has the prefix
    texts = [run.recipe.data.prefix + text for text in focus.inputs] or [str(focus.example["source"][0])]
    pairs = [pair_of(run, text, focus.output) for text in texts]
    return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, *inspection_of(run.model, pairs, focus))
