"""Diagnosis of text-to-text models: of the corpora before training, and of trained models."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from s2s.data import data_check as look
from s2s.data import pair_check
from s2s.data.data_check import cutting
from s2s.data.mixing import describe_mixture
from s2s.data.pairs import pairs, with_prefix
from s2s.data.sources import Corpus
from s2s.data.tokenizers import EOS, Tokenizer, train
from s2s.errors import UserError
from s2s.evaluation.signs import WORST, Diagnostics, WorstExample, entropy
from s2s.inspection.inspection import Inspection, InspectionRequest
from s2s.inspection.seq2seq import inspection_of
from s2s.models.base import Seq2Seq
from s2s.tasks.base import LoadedModel
from s2s.tasks.data_check import IMBALANCE, missing_classes
from s2s.tasks.symptoms import class_symptoms, pair_of, pair_symptoms
from s2s.tasks.text_to_text.answers import best_first, log_probabilities, shares, task_named
from s2s.tasks.text_to_text.data import (
    Mixture,
    MixtureSource,
    TrainingMixture,
    build_training_mixture,
    in_pieces,
    own_keys,
    read_and_written,
)
from s2s.tasks.text_to_text.evaluation import Run
from s2s.tasks.text_to_text.recipe import CorpusSettings, TextToTextRecipe
from s2s.training.progress import ProgressBar

if TYPE_CHECKING:
    import datasets

Parts = Mapping[str, "datasets.Dataset"]


def inspected(recipe: TextToTextRecipe) -> str:
    """Return a report on a recipe's corpora: statistics and suspicious examples.

    Returns:
        The report as text.
    """
    corpora, corpus, tokenizer = recipe.data.corpora, MixtureSource(recipe.data).load(), recipe.tokenizer
    shown, advice, learned = [], [], build_training_mixture(recipe.data.corpora, corpus)
    for name, settings in corpora.items():
        test = corpus.test.parts.get(name) if corpus.test else None
        alone = Corpus(corpus.train.parts[name], corpus.validation.parts[name], test)
        found = pair_check.inspect(alone, settings, tokenizer.normalization)
        head, *others = pair_check.blocks(found) if settings.objective == "pairs" else _of_texts(found)
        shown += [[f"── {name}", *head], *others]
        advice += [f"{name}: {own_keys(words, name)}" for words in _corpus_advice(found, settings)]
        if settings.answers:
            table, more = _answers(corpus, name, settings.answers)
            shown.append(table)
            advice += [f"{name}: {words}" for words in more]
    parts = {split: part.parts for split, part in corpus.splits().items()}
    parts["train"] = {name: each.kept for name, each in learned.items()}
    together, more = _together(recipe, learned, parts)
    return look.findings([*shown, together], [*advice, *_confusable(corpora), *more])


def _of_texts(found: pair_check.Inspection) -> list[list[str]]:
    """Return the report on a corpus with span corruption, whose sides are one text."""
    sizes = {name: split.source for name, split in found.splits.items()}
    rows = {"texts": [split.pairs for split in found.splits.values()]}
    rows["words"] = [side.words for side in sizes.values()]
    rows["words, different"] = [side.types for side in sizes.values()]
    rows["repeated texts"] = [len(split.duplicates) for split in found.splits.values()]
    spots = [f"  {row:>9,}  {look.escape_invisible(text)}" for row, text, _ in found.spots]
    return [look.table(sizes, rows), [f"train: {len(spots)} texts drawn at random", *spots]]


def _corpus_advice(found: pair_check.Inspection, settings: CorpusSettings) -> list[str]:
    """Return the advice that applies: answers are short, and a text equals its source."""
    beside: tuple[str, ...] = ("hardly go together",) if settings.answers else ()
    beside += ("just the source again",) if settings.objective == "span-corruption" else ()
    return [words for words in found.advice if not any(part in words for part in beside)]


def _answers(corpus: Corpus[Mixture], name: str, answers: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a table of the answers' frequencies, and advice."""
    said = {
        split: Counter(target.strip() for _, target in pairs(part.parts[name]))
        for split, part in corpus.splits().items()
        if name in part.parts
    }
    table = ["answers", *look.table(said, {answer: [count[answer] for count in said.values()] for answer in answers})]
    train = said["train"]
    most, advice = max(train[answer] for answer in answers), []
    for answer in answers:
        if train[answer] * IMBALANCE < most:
            advice.append(f"{answer} is {train[answer]:,} times the answer, another one {most:,} times: see macro-F1")
    for split, counts in said.items():
        advice += missing_classes(split, "targets", {answer: counts[answer] for answer in answers})
    return table, advice


def _confusable(corpora: Mapping[str, CorpusSettings]) -> Iterator[str]:
    """Yield advice on tasks with the same prefix, which a model cannot tell apart."""
    prefixes = Counter(each.prefix for each in corpora.values() if each.objective == "pairs")
    for prefix, count in prefixes.items():
        if count > 1:
            names = ", ".join(name for name, each in corpora.items() if each.prefix == prefix)
            yield f"{names} have the same prefix {prefix!r}: nothing says which task it is"


def _together(
    recipe: TextToTextRecipe, learned: Mapping[str, TrainingMixture], parts: Mapping[str, Parts]
) -> tuple[list[str], list[str]]:
    """Return statistics and advice on the mixture: tokenization and sampling rates."""
    corpora, longest = recipe.data.corpora, recipe.batches.max_length
    texts = {split: list(read_and_written(corpora, each)) for split, each in parts.items()}
    make = cache(lambda: train(texts["train"], recipe.tokenizer, "text"))
    cut = cutting(texts, make, None)
    lines, advice = [f"── together, mixing {recipe.data.mixing}"], [*cut.advice()]
    lines += [f"  {name}: {each.left}" for name, each in learned.items() if each.elsewhere]
    if cut.failure or not all(map(len, parts["train"].values())):
        return lines, advice
    try:
        sides = {split: _longer_sides(each, corpora, make(), longest) for split, each in parts.items()}
    except UserError as error:
        return lines, [*advice, f"{error.where}: {error.what}: {error.remedy}"]
    fit = [int((each <= longest).sum()) for each in sides["train"].values()]
    above = {split: sum(int((each > longest).sum()) for each in found.values()) for split, found in sides.items()}
    if any(fit):
        lines += describe_mixture(sides["train"], fit, recipe.data.mixing, recipe.data.weights)
    if above["train"]:
        advice.append(f"{above['train']:,} examples of train are longer than batches.max_length ({longest}): left out")
    return [*lines, *look.table(parts, {**cut.rows(), f"examples above {longest:,}": above.values()})], advice


def _longer_sides(
    parts: Parts, corpora: Mapping[str, CorpusSettings], tokenizer: Tokenizer, longest: int
) -> dict[str, Int[np.ndarray, " examples"]]:
    """Return the length of each example's longer side in tokens, as in training."""
    made = {name: in_pieces(part, corpora[name], tokenizer, longest)[0] for name, part in parts.items()}
    return {name: np.maximum(each.source_lengths, each.target_lengths) for name, each in made.items()}


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


def symptoms(run: Run, part: Mixture, rows: Int[np.ndarray, " examples"], progress_bar: ProgressBar) -> Diagnostics:
    """Generate or choose outputs for each task, and return signs of problems.

    Corpora with span corruption have no outputs; they only count for the frequencies of tokens.

    Args:
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
