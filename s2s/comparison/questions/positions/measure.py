"""Shuffled sources, and trainings with each signal of position that a model can have."""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, get_args

import datasets
import numpy as np

from s2s.comparison.executor import load_result
from s2s.comparison.matching import translators
from s2s.comparison.questions.positions.analyse import SPARED, TRAINED, analyse
from s2s.comparison.runs import history, prepared
from s2s.comparison.spec import Comparison, Experiment, Measured, Scale, Trial
from s2s.comparison.tasks import trained
from s2s.comparison.translation import (
    chosen_pairs,
    counts_of,
    greedy,
    joined_texts,
    resized,
    sizes_of,
    some_pairs,
    train_briefly,
)
from s2s.data.scripts import is_unspaced, sentence_separator, split_words
from s2s.data.tokenized import TokenizedDataset, encode_corpus
from s2s.evaluation.gates import LEARNING
from s2s.models.base import Seq2Seq, count_parameters
from s2s.recipe.schema import Section
from s2s.run.inference import load
from s2s.tasks.source_use import pair_losses, token_losses
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import Recipe

_SIDES = ("encoder_positions", "decoder_positions")
_NONE = "none"
_ENDS = ".!?"
# words and number of the long texts; pieces of a bin of places, and those that it must have
_LONG, _LONG_TEXTS = 60, 60
_BIN, _PIECES = 10, 30


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    sentences: int  # of the test set, translated as they are and shuffled
    # whether every kind in the encoder meets every kind in the decoder; otherwise the model's own kinds meet none,
    # and each other kind is tried on both sides at once
    all_kinds: bool
    seeds: int  # of the trainings with other kinds; shuffled sources are translated by the models of all seeds


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(sentences=200, all_kinds=False, seeds=1),
    "lecture": Sizes(sentences=300, all_kinds=False, seeds=3),
    "definitive": Sizes(sentences=500, all_kinds=False, seeds=3),
    "definitive on a GPU": Sizes(sentences=1000, all_kinds=True, seeds=3),
}


def trials(comparison: Comparison) -> list[Trial]:
    """For each seed and model, the trained model and each kind of positions that it can have; those of one side last.

    Whether one side is worth asking for is known by then.
    """
    sizes = comparison.sizes(SIZES)
    every = {
        Trial(candidate.name, part, seed): kinds
        for number, seed in enumerate(comparison.seeds)
        for candidate in comparison.candidates
        for part, kinds in ((TRAINED, ()), *_trainings(candidate.settings, sizes, number).items())
    }
    return sorted(every, key=lambda trial: _one_sided(every[trial]))


def measure(comparison: Comparison, trial: Trial) -> Measured:
    """Measure losses and BLEU with shuffled sources, and losses by position.

    Positional encodings on one side only are skipped for a model that loses next to nothing without any.
    """
    sizes, candidate = comparison.sizes(SIZES), comparison.candidate(trial.model)
    trainings = _trainings(candidate.settings, sizes)
    if _one_sided(trainings.get(trial.part, ())) and (spared := _spared(comparison, trial)):
        return spared
    recipe = candidate.translation
    data = prepared(recipe)
    pairs, shuffled, own = data.validation, shuffled_pairs(data), own_kinds(candidate.settings)
    longer = long_pairs(data, recipe.batches.max_length)
    if trial.part == TRAINED:
        # the last checkpoint, not the best one: so have the trainings without a signal of position
        folder = trained(comparison, trial.model, trial.seed)
        model = load(folder, "last").narrow(Recipe, Seq2Seq).model
        measured = losses_of(model, recipe, pairs, shuffled, comparison) | _translations(model, recipe, data, sizes)
        measured |= {
            "own": own and list(own),
            "curve": history(folder, {"losses": "loss"}, comparison.device_context),
            "rate": asdict(candidate.choice()),
        }
    else:
        longest = max(recipe.batches.max_length, *(int(each.source_lengths.max()) for each in (pairs, shuffled)))
        kinds, settings = trainings[trial.part], candidate.settings
        pieces, kind = sizes_of(data), recipe.model.kind
        parameters = translators(*pieces).parameters(kind, settings)
        settings = resized(with_kinds(settings, kinds, longest), kind, pieces, parameters)
        recipe = recipe.model_copy(update={"model": settings})
        short = train_briefly(recipe, data, trial.seed or 0, comparison.device_context)
        model = short.model
        measured = losses_of(model, recipe, pairs, shuffled, comparison) | {"encoder": kinds[0], "decoder": kinds[1]}
        measured |= {"updates": recipe.training.updates, "seconds": short.seconds}
    learned = int(data.train.target_lengths.max())
    places = place_losses(model, longer, recipe, comparison)
    return measured | {"parameters": count_parameters(model), "places": places, "learned": learned}


def _trainings(settings: Section, sizes: Sizes, number: int = 0) -> dict[str, tuple[str, str]]:
    """The kinds of positions that a model is trained with beside its own in a repetition, by their cells' part."""
    return {part_of(*kinds): kinds for kinds in kinds_of(settings, sizes.all_kinds) if number < sizes.seeds}


def _one_sided(kinds: Sequence[str]) -> bool:
    """Return True if only encoder or decoder has positional encodings."""
    return len(set(kinds)) == 2 and _NONE in kinds


def _spared(comparison: Comparison, trial: Trial) -> Measured:
    """Rise of the loss without any positional encoding, if it is negligible; otherwise, or if unmeasured, nothing."""
    folder = comparison.results_folder(EXPERIMENT.name)
    own, without = (load_result(folder, replace(trial, part=part)) for part in (TRAINED, part_of(_NONE, _NONE)))
    if not (own and own.measured and without and without.measured):
        return {}
    losses = [sum(each["natural"]) / sum(each["tokens"]) for each in (own.measured, without.measured)]
    return {SPARED: losses[1] - losses[0]} if losses[1] - losses[0] < LEARNING else {}


def own_kinds(settings: Section) -> tuple[str, str] | None:
    """The kinds of positions of encoder and decoder; None for a model that cannot choose them, or leave them out."""
    fields = type(settings).model_fields
    if not all(side in fields and _NONE in get_args(fields[side].annotation) for side in _SIDES):
        return None
    given = settings.model_dump()
    return given[_SIDES[0]], given[_SIDES[1]]


def kinds_of(settings: Section, every: bool) -> list[tuple[str, str]]:
    """Kinds of positions in encoder and decoder that a model is trained with beside its own; none where it has none.

    With `every`, each kind in the encoder meets each in the decoder.
    """
    own = own_kinds(settings)
    if own is None:
        return []
    choices = [get_args(type(settings).model_fields[side].annotation) for side in _SIDES]
    left_out = [(a, b) for a in (own[0], _NONE) for b in (own[1], _NONE)]
    both = [kind for kind in choices[0] if kind in choices[1]]
    others = product(choices[0], choices[1]) if every else zip(both, both, strict=True)
    every_one = dict.fromkeys([*left_out, *((str(a), str(b)) for a, b in others)])
    return [kinds for kinds in every_one if kinds != own]


def part_of(encoder: str, decoder: str) -> str:
    """The name among the tasks of a training with these kinds of positions, and as many parameters as with its own."""
    return f"equal-{encoder}-{decoder}".lower().replace("_", "-")


def with_kinds(settings: Section, kinds: tuple[str, str], longest: int) -> Section:
    """The settings with these kinds of positions; tables of learned ones have as many as that, and no more."""
    given = settings.model_dump() | dict(zip(_SIDES, kinds, strict=True))
    if "max_positions" in given:
        given["max_positions"] = longest
    return type(settings).model_validate(given)


def shuffle(sentence: str, number: int) -> str:
    """The sentence with its words in another order, wherever there is one, decided by its number; its end stays."""
    text = sentence.rstrip()
    body = text.rstrip(_ENDS)
    words = body.split()
    if len(set(words)) < 2:
        return sentence
    generator, order = random.Random(number), list(words)
    while order == words:
        generator.shuffle(order)
    return " ".join(order) + text[len(body) :]


def shuffle_all(sentences: Sequence[str]) -> list[str]:
    """Each sentence shuffled, always in the same way."""
    return [shuffle(sentence, number) for number, sentence in enumerate(sentences)]


def shuffled_pairs(data: PreparedTranslation) -> TokenizedDataset:
    """The validation pairs with shuffled sources."""
    pairs = data.corpus.validation
    columns = {"source": shuffle_all(list(pairs["source"])), "target": list(pairs["target"])}
    return encode_corpus(datasets.Dataset.from_dict(columns), data.source_tokenizer, data.target_tokenizer)


def long_pairs(data: PreparedTranslation, longest: int) -> TokenizedDataset:
    """Texts of several validation pairs, of about 60 words, shorter than `longest` pieces."""
    pairs = data.corpus.validation
    unspaced = is_unspaced(pairs["source"])
    words = [len(split_words(source, unspaced)) for source in pairs["source"]]
    pieces = max(data.validation.source_lengths.mean(), data.validation.target_lengths.mean())
    # most texts must fit
    most = min(_LONG / np.mean(words), 0.7 * longest / pieces, len(pairs))
    together = max(1, round(float(most)))
    rows = joined_texts(len(pairs), together, _LONG_TEXTS)
    sides = {side: list(pairs[side]) for side in ("source", "target")}
    columns = {}
    for side, texts in sides.items():
        separator = sentence_separator(texts)
        columns[side] = [separator.join(texts[row] for row in text) for text in rows]
    encoded = encode_corpus(datasets.Dataset.from_dict(columns), data.source_tokenizer, data.target_tokenizer)
    return chosen_pairs(encoded, encoded.within(longest - 1)[0])


def losses_of(
    model: Seq2Seq, recipe: Recipe[Any], pairs: TokenizedDataset, shuffled: TokenizedDataset, comparison: Comparison
) -> Measured:
    """Loss of each validation pair as it is, and with its source shuffled."""
    natural, other = (
        [round(float(loss), 4) for loss in pair_losses(model, each, recipe.batches, comparison.device_context)]
        for each in (pairs, shuffled)
    )
    return {"tokens": pairs.target_lengths.tolist(), "natural": natural, "shuffled": other}


def place_losses(model: Seq2Seq, data: TokenizedDataset, recipe: Recipe[Any], comparison: Comparison) -> Measured:
    """Mean loss of the target's pieces by their place, in bins of ten places that have enough pieces."""
    sums, counts = np.zeros(1), np.zeros(1)
    for _, loss, valid in token_losses(model, data, recipe.batches, comparison.device_context) if len(data) else ():
        width = max(len(sums), valid.shape[1])
        sums, counts = (np.pad(each, (0, width - len(each))) for each in (sums, counts))
        sums[: valid.shape[1]] += (loss * valid).sum(axis=0)
        counts[: valid.shape[1]] += valid.sum(axis=0)
    starts = np.arange(0, len(sums), _BIN)
    sums, counts = (np.add.reduceat(each, starts) for each in (sums, counts))
    kept = counts >= _PIECES
    losses = [round(float(each), 4) for each in sums[kept] / counts[kept]]
    return {"start": starts[kept].tolist(), "losses": losses}


def _translations(model: Seq2Seq, recipe: Recipe[Any], data: PreparedTranslation, sizes: Sizes) -> Measured:
    """BLEU statistics of greedy translations of sources in order, and of shuffled ones."""
    sources, references = some_pairs(data, sizes.sentences)
    mixed = shuffle_all(sources)
    natural, other = (greedy(model, data, recipe, texts) for texts in (sources, mixed))
    return {
        "bleu": counts_of("bleu", natural, references, data.target_tokenizer.writes_lowercase),
        "bleu_shuffled": counts_of("bleu", other, references, data.target_tokenizer.writes_lowercase),
        "reordered": [int(a != b) for a, b in zip(sources, mixed, strict=True)],
        "changed": [int(a != b) for a, b in zip(natural, other, strict=True)],
        "same_words": [int(sorted(a.split()) == sorted(b.split())) for a, b in zip(natural, other, strict=True)],
        "examples": [list(texts) for texts in zip(sources[:3], natural[:3], mixed[:3], other[:3], strict=True)],
    }


EXPERIMENT = Experiment(
    "positions",
    "What does it know of the order of words?",
    trials,
    measure,
    analyse,
    depends_on="quality",
    depends_on_part=TRAINED,
)
