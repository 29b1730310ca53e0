"""Measure the use of word order: shuffled sources, and trainings with each positional encoding of a model."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

import datasets
import numpy as np
from pydantic import TypeAdapter

from s2s.comparison.executor import load_result
from s2s.comparison.longer_texts import TextScores, translate_joined, words_of_longest
from s2s.comparison.matching import translators
from s2s.comparison.questions.positions.analyse import (
    TRAINED,
    OtherPositions,
    Places,
    Spared,
    TrainedPositions,
    analyse,
)
from s2s.comparison.questions.positions.longer import LongerTexts
from s2s.comparison.runs import learning_curve, prepared
from s2s.comparison.spec import Comparison, Experiment, Scale, Trial
from s2s.comparison.tasks import trained
from s2s.comparison.translation import (
    chosen_pairs,
    counts_of,
    first_pairs,
    greedy,
    joined_texts,
    resized,
    sizes_of,
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
# words and number of the long texts; positions of a bin, and its minimum number of target tokens
_LONG, _LONG_TEXTS = 60, 60
_BIN, _PIECES = 10, 30
# least value of `max_distance`
_NEAREST = 17


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    sentences: int  # of the test set, translated in order and shuffled
    # True: all pairs of encodings in encoder and decoder; False: the model's own with none on either side, and each
    # other encoding on both sides
    all_kinds: bool
    seeds: int  # seeds of the trainings with the same other encoding in encoder and decoder
    seeds_left_out: int  # seeds of the trainings with positions in the encoder or the decoder alone
    texts: int  # minimum number of texts of each number of sentences, for texts longer than trained on


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(sentences=200, all_kinds=False, seeds=1, seeds_left_out=1, texts=10),
    "lecture": Sizes(sentences=300, all_kinds=False, seeds=5, seeds_left_out=3, texts=300),
    "definitive": Sizes(sentences=500, all_kinds=False, seeds=3, seeds_left_out=3, texts=300),
    "definitive on a GPU": Sizes(sentences=1000, all_kinds=True, seeds=3, seeds_left_out=3, texts=300),
}


def trials(comparison: Comparison) -> list[Trial]:
    """Return a trial of each trained model and of each other positional encoding.

    Encodings on one side only come last, because the loss without any decides whether they are skipped.
    """
    sizes = comparison.sizes(SIZES)
    every = {
        Trial(candidate.name, part, seed): kinds
        for number, seed in enumerate(comparison.seeds)
        for candidate in comparison.candidates
        for part, kinds in ((TRAINED, ()), *_trainings(candidate.settings, sizes, number).items())
    }
    return sorted(every, key=lambda trial: _is_one_sided(every[trial]))


def measure(comparison: Comparison, trial: Trial) -> TrainedPositions | OtherPositions | Spared:
    """Measure losses and BLEU with shuffled sources, losses by position, and BLEU of longer texts.

    Positional encodings on one side only are skipped if the loss hardly rises without any.
    """
    sizes, candidate = comparison.sizes(SIZES), comparison.candidate(trial.model)
    trainings = _trainings(candidate.settings, sizes)
    if _is_one_sided(trainings.get(trial.part, ())) and (spared := _spared(comparison, trial)):
        return spared
    recipe, device_context = candidate.translation, comparison.device_context
    data = prepared(recipe)
    pairs, shuffled = data.validation, shuffled_pairs(data)
    longer = long_pairs(data, recipe.batches.max_length)

    def _losses(model: Seq2Seq, kinds: tuple[str, str] | None) -> dict[str, Any]:
        natural, other = losses_of(model, recipe, pairs, shuffled, comparison)
        return {
            "tokens": pairs.target_lengths.tolist(),
            "natural": natural,
            "shuffled": other,
            "places": place_losses(model, longer, recipe, comparison),
            "learned": int(data.train.target_lengths.max()),
            "parameters": count_parameters(model),
            "longer": _longer(model, data, recipe, sizes.texts) if kinds and kinds[0] == kinds[1] else None,
        }

    if trial.part == TRAINED:
        # the last checkpoint, not the best one, as in the trainings with other encodings
        folder = trained(comparison, trial.model, trial.seed)
        model = load(folder, "last").narrow(Recipe, Seq2Seq).model
        sources, references = first_pairs(data, sizes.sentences)
        mixed = shuffle_all(sources)
        natural, other = (greedy(model, data, recipe, texts) for texts in (sources, mixed))
        lowercase = data.target_tokenizer.writes_lowercase
        return TrainedPositions(
            **_losses(model, own_kinds(candidate.settings)),
            bleu=counts_of("bleu", natural, references, lowercase),
            bleu_shuffled=counts_of("bleu", other, references, lowercase),
            reordered=[int(a != b) for a, b in zip(sources, mixed, strict=True)],
            changed=[int(a != b) for a, b in zip(natural, other, strict=True)],
            same_words=[int(sorted(a.split()) == sorted(b.split())) for a, b in zip(natural, other, strict=True)],
            examples=list(zip(sources[:3], natural[:3], mixed[:3], other[:3], strict=True)),
            own=own_kinds(candidate.settings),
            curve=learning_curve(folder, device_context),
            rate=candidate.choice(),
        )
    longest = max(recipe.batches.max_length, *(int(each.source_lengths.max()) for each in (pairs, shuffled)))
    kinds, settings = trainings[trial.part], candidate.settings
    pieces, kind = sizes_of(data), recipe.model.kind
    parameters = translators(*pieces).parameters(kind, settings)
    settings = resized(with_kinds(settings, kinds, longest, _longest_trained(data)), kind, pieces, parameters)
    recipe = recipe.model_copy(update={"model": settings})
    short = train_briefly(recipe, data, trial.seed or 0, device_context)
    return OtherPositions(
        **_losses(short.model, kinds),
        encoder=kinds[0],
        decoder=kinds[1],
        updates=recipe.training.updates,
        seconds=short.seconds,
    )


def _longer(model: Seq2Seq, data: PreparedTranslation, recipe: Recipe[Any], texts: int) -> LongerTexts:
    """Return the scores of translated texts of several sentences, without the translations."""
    parts = [
        TextScores(words=each.words, counts=each.counts, exact=each.exact, unread=each.unread)
        for each in translate_joined(model, data, recipe, texts, _LONG)
    ]
    return LongerTexts(parts, words_of_longest(data))


def _trainings(settings: Section, sizes: Sizes, number: int = 0) -> dict[str, tuple[str, str]]:
    """Return the other encodings of encoder and decoder in repetition `number`, by part."""
    every = kinds_of(settings, sizes.all_kinds)
    repeated = [(kinds, sizes.seeds_left_out if _is_one_sided(kinds) else sizes.seeds) for kinds in every]
    return {part_of(*kinds): kinds for kinds, seeds in repeated if number < seeds}


def _is_one_sided(kinds: Sequence[str]) -> bool:
    """Return True if only encoder or decoder has positional encodings."""
    return len(set(kinds)) == 2 and _NONE in kinds


def _spared(comparison: Comparison, trial: Trial) -> Spared | None:
    """Return the rise of the loss without any positional encoding if it is known and negligible, else None."""
    folder = comparison.results_folder(EXPERIMENT.name)
    stored = [load_result(folder, replace(trial, part=part)) for part in (TRAINED, part_of(_NONE, _NONE))]
    measured = [EXPERIMENT.measurement.validate_python(each.measured) for each in stored if each and each.measured]
    losses = [each.loss for each in measured if not isinstance(each, Spared)]
    return Spared(losses[1] - losses[0]) if len(losses) == 2 and losses[1] - losses[0] < LEARNING else None


def own_kinds(settings: Section) -> tuple[str, str] | None:
    """Return the positional encodings of encoder and decoder; None without a choice that includes `none`."""
    fields = type(settings).model_fields
    if not all(side in fields and _NONE in get_args(fields[side].annotation) for side in _SIDES):
        return None
    given = settings.model_dump()
    return given[_SIDES[0]], given[_SIDES[1]]


def kinds_of(settings: Section, every: bool) -> list[tuple[str, str]]:
    """Return the other positional encodings of encoder and decoder that a model is trained with.

    With `every`, each encoder encoding is combined with each decoder encoding.
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
    """Return the part of a training with these encodings and the same number of parameters."""
    return f"equal-{encoder}-{decoder}".lower().replace("_", "-")


def _longest_trained(data: PreparedTranslation) -> int:
    """Return the number of tokens of the longest training source or target."""
    return int(max(data.train.source_lengths.max(), data.train.target_lengths.max()))


def with_kinds(settings: Section, kinds: tuple[str, str], longest: int, trained: int) -> Section:
    """Return the settings with these positional encodings.

    Args:
        longest: Rows of a table of learned positions.
        trained: Tokens of the longest training text. Relative positions distinguish distances up to half of it, because
            larger ones are rare in training or do not occur.
    """
    given = settings.model_dump() | dict(zip(_SIDES, kinds, strict=True))
    if "max_positions" in given:
        given["max_positions"] = longest
    if "max_distance" in given and "relative" in kinds:
        given["max_distance"] = max(_NEAREST, trained // 2)
    return type(settings).model_validate(given)


def shuffle(sentence: str, number: int) -> str:
    """Shuffle the words of a sentence, but not its final punctuation; its number is the seed."""
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
    """Shuffle each sentence, reproducibly."""
    return [shuffle(sentence, number) for number, sentence in enumerate(sentences)]


def shuffled_pairs(data: PreparedTranslation) -> TokenizedDataset:
    """Return the validation pairs with shuffled sources."""
    pairs = data.corpus.validation
    columns = {"source": shuffle_all(list(pairs["source"])), "target": list(pairs["target"])}
    return encode_corpus(datasets.Dataset.from_dict(columns), data.source_tokenizer, data.target_tokenizer)


def long_pairs(data: PreparedTranslation, longest: int) -> TokenizedDataset:
    """Return texts of several validation pairs, of about 60 words, shorter than `longest` tokens."""
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
) -> tuple[list[float], list[float]]:
    """Return the summed loss of each validation pair, and the same with its source shuffled, in nats."""
    natural, other = (
        [round(float(loss), 4) for loss in pair_losses(model, each, recipe.batches, comparison.device_context)]
        for each in (pairs, shuffled)
    )
    return natural, other


def place_losses(model: Seq2Seq, data: TokenizedDataset, recipe: Recipe[Any], comparison: Comparison) -> Places:
    """Return the mean loss of target tokens by position, in bins of ten positions with enough tokens."""
    sums, counts = np.zeros(1), np.zeros(1)
    for _, loss, valid in token_losses(model, data, recipe.batches, comparison.device_context) if len(data) else ():
        width = max(len(sums), valid.shape[1])
        sums, counts = (np.pad(each, (0, width - len(each))) for each in (sums, counts))
        sums[: valid.shape[1]] += (loss * valid).sum(axis=0)
        counts[: valid.shape[1]] += valid.sum(axis=0)
    starts = np.arange(0, len(sums), _BIN)
    sums, counts = (np.add.reduceat(each, starts) for each in (sums, counts))
    enough = counts >= _PIECES
    losses = [round(float(each), 4) for each in sums[enough] / counts[enough]]
    return Places(starts[enough].tolist(), losses)


EXPERIMENT = Experiment(
    "positions",
    "How much does it rely on word order?",
    trials,
    measure,
    analyse,
    TypeAdapter(TrainedPositions | OtherPositions | Spared),
    depends_on="quality",
    depends_on_part=TRAINED,
)
