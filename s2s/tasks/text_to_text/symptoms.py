"""Signs of problems in the outputs of a text-to-text model, task by task."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from s2s.data.pairs import with_prefix
from s2s.data.tokenizers import EOS
from s2s.evaluation.signs import WORST, Diagnostics, WorstExample, entropy
from s2s.tasks.classification_base import class_symptoms
from s2s.tasks.symptoms import pair_symptoms
from s2s.tasks.text_to_text.answers import log_probabilities, shares
from s2s.tasks.text_to_text.data import Mixture, in_pieces, own_keys
from s2s.tasks.text_to_text.evaluation import Run
from s2s.tasks.text_to_text.recipe import CorpusSettings
from s2s.training.progress import ProgressBar

if TYPE_CHECKING:
    import datasets


def symptoms(run: Run, part: Mixture, rows: Int[np.ndarray, " examples"], progress_bar: ProgressBar) -> Diagnostics:
    """Generate or choose outputs for each task, and return signs of problems.

    Corpora with span corruption have no outputs; they only count for the frequencies of tokens.

    Args:
        run: Trained model.
        part: Examples of all tasks.
        rows: Row of each example in its split, counted over all tasks, from 0.
        progress_bar: Makes a progress bar.

    Returns:
        Scores, signs and the worst outputs.
    """
    corpora, found, wanted = run.recipe.data.corpora, {}, []
    places = _places(part, rows)
    for name, each in part.parts.items():
        settings = corpora[name]
        tokens, _ = in_pieces(each, settings, run.tokenizers[0], run.recipe.batches.max_length)
        _, targets = tokens.draw(np.arange(len(tokens.target_lengths)), 0)
        wanted += [*targets, np.full(len(targets), EOS)]
        if settings.answers:
            found[name] = _chosen(run, each, settings, places[name], progress_bar)
        elif settings.objective == "pairs":
            found[name] = pair_symptoms(run, each, places[name], progress_bar, settings.prefix, settings.bleu_tokenizer)
    signs = [
        # A text-to-text model has no classification head.
        replace(s, name=f"{n}: {s.name}", remedy=own_keys(s.remedy.replace("head.dropout", "model.dropout"), n))
        for n, task in found.items()
        for s in task.signs
    ]
    return Diagnostics(
        summary="\n  ".join(f"{name}: {task.summary}" for name, task in found.items()),
        signs=signs,
        worst=_worst({name: task.worst for name, task in found.items()}),
        chance_loss=entropy(np.concatenate(wanted)) if wanted else None,
    )


def _places(part: Mixture, rows: Int[np.ndarray, " examples"]) -> dict[str, list[str]]:
    """Return the place of each task's examples in their split, over all tasks."""
    ends = np.cumsum([0, *map(len, part.parts.values())])
    spans = zip(part.parts, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    return {name: [f"example {row + 1} of all tasks" for row in rows[first:last]] for name, first, last in spans}


def _chosen(
    run: Run, part: "datasets.Dataset", settings: CorpusSettings, places: Sequence[str], progress_bar: ProgressBar
) -> Diagnostics:
    """Return the signs of a classifier, for a task with answers."""
    answers = settings.answers or ()
    sources = list(part["source"])
    with progress_bar("choosing", len(sources)) as advance:
        prefixed = [with_prefix(settings.prefix, source) for source in sources]
        cut = run.tokenizers[0], prefixed, answers, run.recipe.decoding.batch
        probabilities = shares(log_probabilities(run.model, *cut, advance))
    truth = np.array([answers.index(text.strip()) for text in part["target"]])
    return class_symptoms(truth, probabilities, answers, "examples", places, sources.__getitem__)


def _worst(tasks: Mapping[str, Sequence[WorstExample]]) -> list[WorstExample]:
    """Return the worst examples, equally many of each task.

    Scores of different tasks are not comparable.
    """
    each = -(-WORST // max(1, len(tasks)))
    found = [replace(one, score=f"{name}: {one.score}") for name, several in tasks.items() for one in several[:each]]
    return found[:WORST]
