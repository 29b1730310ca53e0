"""Shuffled sources, and trainings with each signal of position that a model can have."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

import datasets

from s2s.data.encoding import Encoded, encode_corpus
from s2s.experiments.contest import Cell, Contest, Experiment, Measured, Scale
from s2s.experiments.disciplines import trained
from s2s.experiments.positions.conclude import TRAINED, conclude
from s2s.experiments.translating import counts_of, greedy, pair_losses, schooled, some_pairs
from s2s.experiments.whole_runs import prepared, seconds_for
from s2s.models.contract import Seq2Seq, parameter_count
from s2s.recipe.schema import Section
from s2s.run.loaded import load
from s2s.tasks.translation.prepared import Prepared
from s2s.tasks.translation.recipe import Recipe

_SIDES = ("encoder_positions", "decoder_positions")
_NONE = "none"
_ENDS = ".!?"


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    sentences: int  # of the test set, translated as they are and shuffled
    # whether every kind in the encoder meets every kind in the decoder; otherwise the model's own kinds meet none,
    # and each other kind is tried on both sides at once
    all_kinds: bool
    seeds: int | None  # how many; None: all


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(sentences=200, all_kinds=False, seeds=1),
    "definitive": Sizes(sentences=500, all_kinds=False, seeds=1),
    "definitive on a GPU": Sizes(sentences=1000, all_kinds=True, seeds=None),
}


def cells(contest: Contest) -> list[Cell]:
    """For each seed and model, the trained model and each kind of positions that it can have."""
    sizes = contest.sizes(SIZES)
    return [
        Cell(contestant.name, part, seed, seconds=3 if part == TRAINED else seconds_for(contestant.recipe))
        for seed in contest.seeds[: sizes.seeds]
        for contestant in contest.contestants
        for part in (TRAINED, *(part_of(*kinds) for kinds in kinds_of(contestant.settings, sizes.all_kinds)))
    ]


def measure(contest: Contest, cell: Cell) -> Measured:
    """What becomes of the scores when the words of the sources change places."""
    sizes, contestant = contest.sizes(SIZES), contest.contestant(cell.model)
    recipe = contestant.recipe
    data = prepared(recipe)
    shuffled, own = shuffled_pairs(data), own_kinds(contestant.settings)
    if cell.part == TRAINED:
        # the last checkpoint, not the best one: so have the trainings without a signal of position
        model = load(trained(contest, cell.model, cell.seed), "last").model
        measured = losses_of(model, recipe, data, shuffled, contest) | _translations(model, recipe, data, sizes)
        return measured | {"own": own and list(own), "parameters": parameter_count(model)}
    kinds = next(k for k in kinds_of(contestant.settings, sizes.all_kinds) if part_of(*k) == cell.part)
    held_out = (shuffled.source_lengths, data.validation.source_lengths, data.validation.target_lengths)
    longest = max(recipe.batches.max_length, *(int(lengths.max()) for lengths in held_out))
    settings = with_kinds(contestant.settings, kinds, longest)
    recipe = recipe.model_copy(update={"model": settings})
    short = schooled(recipe, data, cell.seed or 0, contest.computer)
    return losses_of(short.model, recipe, data, shuffled, contest) | {
        "encoder": kinds[0],
        "decoder": kinds[1],
        "parameters": parameter_count(short.model),
        "updates": recipe.training.updates,
        "seconds": short.seconds,
    }


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
    """The name among the tasks of a training with these kinds of positions."""
    return f"{encoder}-{decoder}".lower().replace("_", "-")


def with_kinds(settings: Section, kinds: tuple[str, str], longest: int) -> Section:
    """The settings with these kinds of positions; tables of learned ones are long enough for so many pieces."""
    given = settings.model_dump() | dict(zip(_SIDES, kinds, strict=True))
    if "max_positions" in given:
        given["max_positions"] = max(given["max_positions"], longest)
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


def shuffled_pairs(data: Prepared) -> Encoded:
    """The validation pairs with shuffled sources."""
    pairs = data.corpus.validation
    columns = {"source": shuffle_all(list(pairs["source"])), "target": list(pairs["target"])}
    return encode_corpus(datasets.Dataset.from_dict(columns), data.source_tokenizer, data.target_tokenizer)


def losses_of(model: Seq2Seq, recipe: Recipe[Any], data: Prepared, shuffled: Encoded, contest: Contest) -> Measured:
    """Loss of each validation pair as it is, and with its source shuffled."""
    natural, other = (
        [round(float(loss), 4) for loss in pair_losses(model, pairs, recipe.batches, contest.computer)]
        for pairs in (data.validation, shuffled)
    )
    return {"tokens": data.validation.target_lengths.tolist(), "natural": natural, "shuffled": other}


def _translations(model: Seq2Seq, recipe: Recipe[Any], data: Prepared, sizes: Sizes) -> Measured:
    """What sacreBLEU counts in greedy translations of sources as they are and of shuffled ones."""
    sources, references = some_pairs(data, sizes.sentences)
    mixed = shuffle_all(sources)
    natural, other = (greedy(model, data, recipe, texts) for texts in (sources, mixed))
    return {
        "bleu": counts_of("bleu", natural, references),
        "bleu_shuffled": counts_of("bleu", other, references),
        "reordered": [int(a != b) for a, b in zip(sources, mixed, strict=True)],
        "changed": [int(a != b) for a, b in zip(natural, other, strict=True)],
        "same_words": [int(sorted(a.split()) == sorted(b.split())) for a, b in zip(natural, other, strict=True)],
        "examples": [list(texts) for texts in zip(sources[:3], natural[:3], mixed[:3], other[:3], strict=True)],
    }


EXPERIMENT = Experiment(
    "positions", "What does it know of the order of words?", cells, measure, conclude, reads="quality"
)
