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
from s2s.data.data_check import report_tokens
from s2s.data.mixing import describe_mixture
from s2s.data.pairs import pairs, with_prefix
from s2s.data.sources import Corpus
from s2s.data.tokenizers import EOS, train
from s2s.errors import UserError, counted, counted_items
from s2s.evaluation.signs import WORST, Diagnostics, entropy
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
from s2s.tasks.text_to_text.recipe import CorpusSettings, TextToTextRecipe
from s2s.training.progress import ProgressBar

if TYPE_CHECKING:
    import datasets

Parts = Mapping[str, "datasets.Dataset"]


def inspected(recipe: TextToTextRecipe) -> str:
    """Return a report on a recipe's corpora: statistics and suspicious examples."""
    corpora, corpus, tokenizer = recipe.data.corpora, MixtureSource(recipe.data).load(), recipe.tokenizer
    shown, advice, learned = [], [], build_training_mixture(recipe.data.corpora, corpus)
    for name, settings in corpora.items():
        test = corpus.test.parts.get(name) if corpus.test else None
        own = {key.removeprefix(f"{name}."): rows for key, rows in corpus.rows.items() if key.startswith(f"{name}.")}
        alone = Corpus(corpus.train.parts[name], corpus.validation.parts[name], test, rows=own)
        # Answers are names of classes; with span corruption, the target is the source.
        translations, copies = settings.answers is None, settings.objective == "span-corruption"
        found = pair_check.inspect(alone, settings, tokenizer.normalization, translations, copies)
        head, *others = pair_check.blocks(found) if settings.objective == "pairs" else _report_texts(found)
        shown += [[f"── {name}", *head], *others]
        advice += [f"{name}: {own_keys(words, name)}" for words in found.advice]
        if settings.answers:
            table, more = _answers(corpus, name, settings.answers)
            shown.append(table)
            advice += [f"{name}: {words}" for words in more]
    parts = {split: part.parts for split, part in corpus.splits().items()}
    parts["train"] = {name: each.kept for name, each in learned.items()}
    together, more = _report_mixture(recipe, learned, parts)
    return look.findings(
        [*shown, together], [*advice, *_confusable(corpora), *more, *filter(None, corpus.note.split("\n"))]
    )


def _report_texts(found: pair_check.Inspection) -> list[list[str]]:
    """Return the report on a corpus with span corruption, whose sides are one text."""
    sizes = {name: split.source for name, split in found.splits.items()}
    rows = {"texts": [split.pairs for split in found.splits.values()]}
    rows["words"] = [side.words for side in sizes.values()]
    rows["words, different"] = [side.types for side in sizes.values()]
    rows["repeated texts"] = [len(split.duplicates) for split in found.splits.values()]
    spots = [f"  {row:>9,}  {look.escape_invisible(text)}" for row, text, _ in found.spots]
    return [look.table(sizes, rows), [f"train: {len(spots)} texts drawn at random", *spots]]


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
            rare = counted(train[answer], "time")
            advice.append(f"{answer} is the answer {rare}, another one {most:,} times: see macro-F1")
    for split, counts in said.items():
        advice += missing_classes(split, "targets", {answer: counts[answer] for answer in answers})
    return table, advice


def _confusable(corpora: Mapping[str, CorpusSettings]) -> Iterator[str]:
    """Yield advice on tasks with the same prefix, which a model cannot tell apart."""
    prefixes = Counter(each.prefix for each in corpora.values() if each.objective == "pairs")
    for prefix, count in prefixes.items():
        if count > 1:
            names = ", ".join(name for name, each in corpora.items() if each.prefix == prefix)
            yield f"{names} have the same prefix {prefix!r}: the model cannot know which task is meant"


def _report_mixture(
    recipe: TextToTextRecipe, learned: Mapping[str, TrainingMixture], parts: Mapping[str, Parts]
) -> tuple[list[str], list[str]]:
    """Return statistics and advice on the mixture: tokenization and sampling rates."""
    corpora, longest = recipe.data.corpora, recipe.batches.max_length
    texts = {split: list(read_and_written(corpora, each)) for split, each in parts.items()}
    make = cache(lambda: train(texts["train"], recipe.tokenizer, "text"))
    cut = report_tokens(texts, make, None)
    lines, advice = [f"── together, mixing {recipe.data.mixing}"], [*cut.advice()]
    lines += [f"  {name}: {each.held_out}" for name, each in learned.items() if each.elsewhere]
    if cut.failure or not all(map(len, parts["train"].values())):
        return lines, advice
    try:
        sides = {}
        for split, each in parts.items():
            tokens = {name: in_pieces(part, corpora[name], make(), longest)[0] for name, part in each.items()}
            # Length of each example's longer side in tokens, as in training.
            sides[split] = {n: np.maximum(t.source_lengths, t.target_lengths) for n, t in tokens.items()}
    except UserError as error:
        return lines, [*advice, f"{error.where}: {error.what}: {error.remedy}"]
    fit = [int((each <= longest).sum()) for each in sides["train"].values()]
    above = {split: sum(int((each > longest).sum()) for each in found.values()) for split, found in sides.items()}
    if any(fit):
        lines += describe_mixture(sides["train"], fit, recipe.data.mixing, recipe.data.weights)
    if above["train"]:
        are = "is" if above["train"] == 1 else "are"
        examples = counted_items(above["train"], "examples of train")
        advice.append(f"{examples} {are} longer than batches.max_length ({longest}): left out")
    return [*lines, *look.table(parts, {**cut.rows(), f"examples above {longest:,}": above.values()})], advice


MixtureRun = LoadedModel[TextToTextRecipe, Seq2Seq]


def inspect_inputs(run: MixtureRun, focus: InspectionRequest) -> Inspection:
    """Inspect one text or two, with the task's prefix; without a text, an example of the task, or of the first one."""
    corpora, name = run.recipe.data.corpora, focus.task
    there = [] if focus.inputs else [each for each in focus.part.parts if corpora[each].objective == "pairs"]
    name = name or next(iter(there), None)
    task = task_named(run.recipe, name)
    if not focus.inputs and name not in there:
        what = f"{name or 'the task'} has no {focus.split} set"
        raise UserError(what, "INPUT", "give a text" + "".join(f", or --task {each}" for each in there[:1]))
    texts = focus.inputs or (str(replace(focus, part=focus.part.parts[name]).example["source"][0]),)
    pairs = []
    for text in texts:
        answer, remark = None, ""
        if task.answers is not None:
            found = log_probabilities(run.model, run.tokenizers[0], [task.prefix + text], task.answers, 1)
            likely = best_first(shares(found)[0].tolist(), task.answers)
            answer, remark = likely[0][1], " · ".join(f"{each} {share:.3f}" for share, each in likely)
        pairs.append(pair_of(run, text, answer, task.prefix, remark))
    return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, *inspection_of(run.model, pairs, focus))


def symptoms(
    run: MixtureRun, part: Mixture, rows: Int[np.ndarray, " examples"], progress_bar: ProgressBar
) -> Diagnostics:
    """Generate or choose outputs for each task, and return signs of problems.

    Corpora with span corruption have no outputs; they only count for the frequencies of tokens.

    Args:
        rows: Row of each example in its split, counted over all tasks, from 0.
    """
    corpora, found, wanted = run.recipe.data.corpora, {}, []
    first = 0
    for name, each in part.parts.items():
        settings = corpora[name]
        places = [f"example {row + 1} of all tasks" for row in rows[first : first + len(each)]]
        first += len(each)
        tokens, _ = in_pieces(each, settings, run.tokenizers[0], run.recipe.batches.max_length)
        _, targets = tokens.draw(np.arange(len(tokens.target_lengths)), 0)
        wanted += [*targets, np.full(len(targets), EOS)]
        if settings.answers:
            found[name] = _chosen(run, each, settings, places, progress_bar)
        elif settings.objective == "pairs":
            found[name] = pair_symptoms(run, each, places, progress_bar, settings.prefix, settings.bleu_tokenizer)
    signs = [
        # A text-to-text model has no classification head.
        replace(s, name=f"{n}: {s.name}", remedy=own_keys(s.remedy.replace("head.dropout", "model.dropout"), n))
        for n, task in found.items()
        for s in task.signs
    ]
    # Scores of different tasks are not comparable: equally many of the worst examples of each task.
    most = -(-WORST // max(1, len(found)))
    worst = [replace(one, score=f"{n}: {one.score}") for n, task in found.items() for one in task.worst[:most]]
    return Diagnostics(
        summary="\n  ".join(f"{name}: {task.summary}" for name, task in found.items()),
        signs=signs,
        worst=worst[:WORST],
        chance_loss=entropy(np.concatenate(wanted)) if wanted else None,
    )


def _chosen(
    run: MixtureRun,
    part: "datasets.Dataset",
    settings: CorpusSettings,
    places: Sequence[str],
    progress_bar: ProgressBar,
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
