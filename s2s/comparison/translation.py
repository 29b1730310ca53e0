"""Translation models of questions: short trainings without checkpoints, translations, and scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from s2s.comparison.instruments import unfused
from s2s.comparison.matching import match_parameters, non_width_settings, translators
from s2s.comparison.runs import seeds_of, stopwatch
from s2s.comparison.spec import check_translates
from s2s.data.batches import collate, make_batches
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import BOS, EOS
from s2s.decoding.generate import TextTranslator
from s2s.evaluation.inference import Counts, Draws
from s2s.evaluation.metrics import metrics, scores_of
from s2s.evaluation.tokenization import choose_tokenization
from s2s.models.base import Seq2Seq
from s2s.recipe.reading import shipped
from s2s.recipe.schema import BleuTokenizer, DecodingSettings, DeviceSettings, Section, TokenizerSettings
from s2s.run.tasks import read
from s2s.tasks.seq2seq import build_model, translation_trainer
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import BatchSettings, Recipe
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
    """Build the trainer of a translation model, before its first step.

    Args:
        pieces: Sizes of the source and the target vocabulary.
        data: Training pairs.
        start: Initial weights by name; None initializes the model with the seed.

    Raises:
        NotForThisModel: The model cannot translate.
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
    """A model after a short training.

    Attributes:
        model: Model with its final weights, which are the EMA weights if the recipe has EMA.
        seconds: Training time without validations.
        tokens: Number of target tokens that it was trained on.
    """

    model: Seq2Seq
    seconds: float
    tokens: int


def train_briefly(
    recipe: Recipe[Any],
    data: PreparedTranslation,
    seed: int,
    device_context: DeviceContext,
    pairs: TokenizedDataset | None = None,
    half_way: Callable[[Seq2Seq], None] | None = None,
) -> ShortTraining:
    """Train a new model by its recipe, without validations and checkpoints.

    Args:
        pairs: Training pairs; None: all of `data`.
        half_way: Called with the model after half of the updates; its time is not counted.

    Raises:
        NotForThisModel: The model cannot translate.
        UserError: The training failed.
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
    """Return the sizes of the source and the target vocabulary."""
    return data.source_tokenizer.size, data.target_tokenizer.size


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Copy the weights, by name."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def set_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Set the weights of a model."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name])


def final_weights(trainer: Trainer) -> dict[str, Tensor]:
    """Copy the weights that a checkpoint would have now: the EMA weights, if there are any."""
    with trainer.optimization.use_ema_weights():
        return copy_weights(trainer.model)


def joined_texts(count: int, together: int, texts: int) -> list[list[int]]:
    """Return the rows of sentences that are joined into longer texts.

    The sentences are permuted again for each pass, so that texts of all lengths consist of the same sentences, each
    about as often.

    Args:
        count: Number of sentences.
        together: Number of sentences of a text.
        texts: Minimum number of texts.

    Returns:
        Rows of the sentences of each text; no row occurs twice in one pass.
    """
    generator, found = np.random.default_rng([1, together]), list[list[int]]()
    whole = count // together
    while len(found) < texts and whole:
        found += generator.permutation(count)[: whole * together].reshape(whole, together).tolist()
    return found


def unigram_loss(train: TokenizedDataset, held_out: TokenizedDataset, pieces: int) -> float:
    """Return the cross-entropy of a unigram model with add-one smoothing, in nats per target token.

    Args:
        pieces: Size of the target vocabulary.
    """

    def _counts(data: TokenizedDataset) -> np.ndarray:
        counted = np.bincount(np.concatenate(data.rows(np.arange(len(data)))[1]), minlength=pieces)
        counted[EOS] += len(data)
        return counted

    counted, told = _counts(train), _counts(held_out)
    shares = (counted + 1) / (counted + 1).sum()
    return float(-(told * np.log(shares)).sum() / told.sum())


def chosen_pairs(data: TokenizedDataset, rows: np.ndarray, swapped: bool = False) -> TokenizedDataset:
    """Select pairs by row; `swapped` exchanges source and target."""
    sources, targets = data.rows(rows)
    return TokenizedDataset.from_rows(targets, sources) if swapped else TokenizedDataset.from_rows(sources, targets)


def resized(settings: Section, kind: str, pieces: tuple[int, int], parameters: int) -> Section:
    """Return a model's settings with the width that gives it a number of parameters; see `match_parameters`."""
    return match_parameters(kind, translators(*pieces), parameters, non_width_settings(settings))


def flops_per_token(recipe: Recipe[Any], pieces: tuple[int, int], data: TokenizedDataset) -> float:
    """Count the floating-point operations of matrix products per target token, forward and backward.

    They are counted on the batch in the middle of an epoch, without fused kernels, whose operations cannot be counted.
    Operations on padding are included; padding is not counted as tokens.
    """
    model = build_model(recipe, *pieces).eval()
    kept, _ = data.within(recipe.batches.max_length)
    batches = make_batches(data.source_lengths[kept], data.target_lengths[kept], recipe.batches.tokens, 0, 0)
    rows = kept[batches[len(batches) // 2]]
    batch = collate(*data.rows(rows), rows)
    with unfused(), FlopCounterMode(display=False) as flops:
        states = model(batch.source, batch.source_valid, batch.target_in)
        cross_entropy(states, model.projection.weight, batch.target_out, batch.target_valid)[0].backward()
    return flops.get_total_flops() / batch.tokens


def has_cross_attention(model: Seq2Seq) -> bool:
    """Return True if the decoder attends to the encoder's states."""
    token = torch.full((1, 1), BOS)
    with torch.no_grad():
        memory = model.encoder(token, torch.ones_like(token, dtype=torch.bool))
        return model.decoder.cross_attention_weights(memory, token).shape[1] > 0


def first_pairs(data: PreparedTranslation, count: int) -> tuple[list[str], list[str]]:
    """Return the first sources and references of the test set, or of the validation set if there is no test set."""
    pairs = data.corpus.validation if data.corpus.test is None else data.corpus.test
    pairs = pairs.select(range(min(count, len(pairs))))
    return list(pairs["source"]), list(pairs["target"])


def greedy(model: Seq2Seq, data: PreparedTranslation, recipe: Recipe[Any], sources: Sequence[str]) -> list[str]:
    """Translate with greedy search, and the recipe's other decoding settings."""
    decoding = recipe.decoding.with_beam(1)
    translator = TextTranslator(model, data.source_tokenizer, data.target_tokenizer, decoding)
    return [translation.text for translation in translator.translate(sources)]


def counts_of(
    metric: str,
    translations: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    tokenizer: BleuTokenizer = "auto",
) -> list[list[int]]:
    """Return the sufficient statistics of each sentence; a corpus score is computed from their sums.

    Args:
        metric: `bleu` or `chrf`.
    """
    tokenization = choose_tokenization(references, tokenizer)
    counted = metrics(lowercase, (metric,), tokenization)[metric]._extract_corpus_statistics(
        list(translations), [list(references)]
    )
    return [[int(number) for number in sentence] for sentence in counted]


def corpus_score(metric: str, counts: Counts) -> float:
    """Compute the score of a corpus from its sentences' statistics, in percent."""
    return float(scores_of(metrics()[metric], counts.sum(axis=0)[None])[0])


def resampled_scores(metric: str, counts: Counts, drawn: Draws) -> Float[np.ndarray, " resamples"]:
    """Compute the score of a corpus in each bootstrap resample, in percent."""
    return scores_of(metrics()[metric], drawn @ counts)


def built_in(
    model: Section | Mapping[str, object],
    data: Mapping[str, object],
    training: Mapping[str, object],
    batches: BatchSettings,
) -> Recipe[Section]:
    """Return the recipe `compare` with changed settings: English to German, 1,000 tokens, on a CPU, greedy search.

    Args:
        model: Settings of a model, or changes of the recipe's.
        data: Changes of the `data` section.
        training: Changes of the `training` section.
        batches: The `batches` section.
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
