"""Translation models: short trainings that leave nothing behind, their losses, and the scores of what they write."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from s2s.comparison.instruments import counted_flops, unfused
from s2s.comparison.matching import match_parameters, non_width_settings, translators
from s2s.comparison.runs import seeds_of, stopwatch
from s2s.comparison.spec import check_translates
from s2s.data.batches import collate, make_batches
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import EOS
from s2s.decoding.generate import TextTranslator
from s2s.evaluation.inference import Counts, Draws
from s2s.evaluation.metrics import metrics, scores_of
from s2s.evaluation.tokenization import choose_tokenization
from s2s.models.base import Seq2Seq
from s2s.recipe.reading import shipped
from s2s.recipe.schema import BleuTokenizer, DecodingSettings, DeviceSettings, Section, TokenizerSettings
from s2s.run.tasks import read
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import BatchSettings, Recipe
from s2s.tasks.translation.task import build_model, translation_trainer
from s2s.training.device import DeviceContext
from s2s.training.loss import cross_entropy
from s2s.training.trainer import Trainer


def trainer_for(
    recipe: Recipe[Any],
    pieces: tuple[int, int],
    data: TokenizedDataset,
    seed: int,
    device_context: DeviceContext,
    start: Mapping[str, Tensor] | None = None,
) -> Trainer:
    """A trainer of a recipe's model that has done nothing yet, from these weights where there are any.

    Raises:
        NotForThisModel: the model cannot translate.
    """
    seeds = seeds_of(seed)
    model = build_model(recipe.model_copy(update={"seeds": seeds}), *pieces)
    check_translates(model, recipe.model.kind)
    if start is not None:
        set_weights(model, start)
    return translation_trainer(
        model.to(device_context.device), data, recipe.training, recipe.batches, seeds, device_context
    )


@dataclass(frozen=True)
class ShortTraining:
    """A model after a short training."""

    model: Seq2Seq  # with the weights that decide: the average, where one is made
    seconds: float  # that its updates took
    tokens: int  # target tokens that it learned from


def train_briefly(
    recipe: Recipe[Any],
    data: PreparedTranslation,
    seed: int,
    device_context: DeviceContext,
    pairs: TokenizedDataset | None = None,
    half_way: Callable[[Seq2Seq], None] | None = None,
) -> ShortTraining:
    """Trains a fresh model as its recipe says, on all pairs or on these, without validations and checkpoints.

    Args:
        recipe: says how.
        data: its pieces and pairs.
        seed: of everything random.
        device_context: where.
        pairs: what is learned from, where that is not all.
        half_way: is shown the model that would be kept after half of the updates; that takes no time of the training.

    Raises:
        NotForThisModel: the model cannot translate.
        UserError: the training failed.
    """
    trainer = trainer_for(recipe, sizes_of(data), data.train if pairs is None else pairs, seed, device_context)
    clock = stopwatch(device_context)
    began, tokens = clock(), 0
    for i, update in enumerate(trainer.updates(recipe.training.updates), 1):
        tokens += update.tokens
        if half_way and i == recipe.training.updates // 2:
            paused = clock()
            with trainer.optimization.use_ema_weights():
                half_way(trainer.model)
            began += clock() - paused
    seconds = clock() - began
    set_weights(trainer.model, final_weights(trainer))
    return ShortTraining(trainer.model, seconds, tokens)


def sizes_of(data: PreparedTranslation) -> tuple[int, int]:
    """Sizes of the vocabularies of source and target."""
    return data.source_tokenizer.size, data.target_tokenizer.size


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights, by name."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def set_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Gives a model these weights."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name])


def final_weights(trainer: Trainer) -> dict[str, Tensor]:
    """The weights that would be kept now: the average, where one is made."""
    with trainer.optimization.use_ema_weights():
        return copy_weights(trainer.model)


def joined_texts(count: int, together: int, texts: int) -> list[list[int]]:
    """Rows of `count` sentences that make texts of so many sentences: at least `texts`, no row twice in one pass.

    The sentences are cut into texts again and again, in another order each time, so that texts of all lengths consist
    of the same sentences, each about as often.
    """
    generator, found = np.random.default_rng([1, together]), list[list[int]]()
    whole = count // together
    while len(found) < texts and whole:
        found += generator.permutation(count)[: whole * together].reshape(whole, together).tolist()
    return found


def unigram_loss(train: TokenizedDataset, held_out: TokenizedDataset, pieces: int) -> float:
    """The loss of one who knows how often each piece occurs, and nothing else, in nats per target token.

    Each piece is counted once more than it occurs.
    """

    def _counts(data: TokenizedDataset) -> np.ndarray:
        counted = np.bincount(np.concatenate(data.rows(np.arange(len(data)))[1]), minlength=pieces)
        counted[EOS] += len(data)
        return counted

    counted, told = _counts(train), _counts(held_out)
    shares = (counted + 1) / (counted + 1).sum()
    return float(-(told * np.log(shares)).sum() / told.sum())


def chosen_pairs(data: TokenizedDataset, rows: np.ndarray, swapped: bool = False) -> TokenizedDataset:
    """The pairs of these rows, in that order; source and target change places where they are swapped."""
    sources, targets = data.rows(rows)
    return TokenizedDataset.from_rows(targets, sources) if swapped else TokenizedDataset.from_rows(sources, targets)


def resized(settings: Section, kind: str, pieces: tuple[int, int], parameters: int) -> Section:
    """A model's settings with so many parameters: everything but its width stays.

    Raises:
        UserError: no width comes within 5 %.
    """
    return match_parameters(kind, translators(*pieces), parameters, non_width_settings(settings))


def flops_per_token(recipe: Recipe[Any], pieces: tuple[int, int], data: TokenizedDataset) -> float:
    """Floating-point operations of the matrix products that training spends on a target token, forward and backward.

    They are counted on a batch of middling place in the plan, on the form of the model in which no kernel hides what it
    does; work on padding counts, padding itself is no token.
    """
    model = build_model(recipe, *pieces).eval()
    kept, _ = data.within(recipe.batches.max_length)
    batches = make_batches(data.source_lengths[kept], data.target_lengths[kept], recipe.batches.tokens, 0, 0)
    rows = kept[batches[len(batches) // 2]]
    batch = collate(*data.rows(rows), rows)
    with unfused(), counted_flops() as flops:
        states = model(batch.source, batch.source_valid, batch.target_in)
        cross_entropy(states, model.projection.weight, batch.target_out, batch.target_valid)[0].backward()
    return flops.get_total_flops() / batch.tokens


def some_pairs(data: PreparedTranslation, count: int) -> tuple[list[str], list[str]]:
    """The first sources and references of the test set; of the validation set where there is none."""
    pairs = data.corpus.validation if data.corpus.test is None else data.corpus.test
    pairs = pairs.select(range(min(count, len(pairs))))
    return list(pairs["source"]), list(pairs["target"])


def greedy(model: Seq2Seq, data: PreparedTranslation, recipe: Recipe[Any], sources: Sequence[str]) -> list[str]:
    """Greedy translations, written as the recipe says, but for the beam."""
    decoding = recipe.decoding.model_copy(update={"beam": 1})
    translator = TextTranslator(model, data.source_tokenizer, data.target_tokenizer, decoding)
    return [translation.text for translation in translator.translate(sources)]


def counts_of(
    metric: str,
    translations: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    tokenizer: BleuTokenizer = "auto",
) -> list[list[int]]:
    """Statistics of sacreBLEU for each sentence, `bleu` or `chrf`; a corpus score is computed from their sums."""
    tokenization = choose_tokenization(references, tokenizer)
    counted = metrics(lowercase, (metric,), tokenization)[metric]._extract_corpus_statistics(
        list(translations), [list(references)]
    )
    return [[int(number) for number in sentence] for sentence in counted]


def corpus_score(metric: str, counts: Counts) -> float:
    """The corpus' score from its sentences' counts, in percent."""
    return float(scores_of(metrics()[metric], counts.sum(axis=0)[None])[0])


def resampled_scores(metric: str, counts: Counts, drawn: Draws) -> Float[np.ndarray, " resamples"]:
    """The corpus' score in each resample."""
    return scores_of(metrics()[metric], drawn @ counts)


def built_in(
    model: Section | Mapping[str, object],
    data: Mapping[str, object],
    training: Mapping[str, object],
    batches: BatchSettings,
) -> Recipe[Section]:
    """The recipe `compare`, English to German in 1,000 pieces, on one processor, greedy; with other settings.

    Args:
        model: its settings, or those that are changed.
        data: what is changed.
        training: likewise.
        batches: in the place of its own.
    """
    base = cast(Recipe[Section], read(shipped()["compare"]))
    return base.model_copy(
        update={
            "data": base.data.model_copy(update=data),
            "tokenizer": TokenizerSettings(kind="unigram", size=1_000),
            "batches": batches,
            "model": model if isinstance(model, Section) else base.model.model_copy(update=model),
            "training": base.training.model_copy(update=training),
            "decoding": DecodingSettings(beam=1),
            "device": DeviceSettings(kind="cpu", precision="fp32"),
        }
    )
