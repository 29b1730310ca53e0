"""Model, loss, trainer and translator of sequence-to-sequence tasks.

Read `sequence_loss` first: teacher forcing in four lines. The checks at the end compare lengths of data with the
positions of the model before training starts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from s2s.data.batches import ParallelBatch, ParallelDataset, all_pairs_in_order, collate
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.decoding.generate import TextTranslator, max_output_lengths
from s2s.errors import Refuse, UserError
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.pairs import BatchSettings, PairRecipe, TrainingSettings
from s2s.recipe.schema import DecodingSettings, SeedSettings, TrainRecipe
from s2s.tasks.base import LoadedModel
from s2s.training import trainer
from s2s.training.device import DeviceContext, derive_seed
from s2s.training.loss import cross_entropy
from s2s.training.trainer import Loss, Trainer


def build_model(recipe: TrainRecipe, source_size: int, target_size: int) -> Seq2Seq:
    """Build the recipe's model, initialized with the recipe's seed.

    Args:
        source_size: Size of the source vocabulary.
        target_size: Size of the target vocabulary.

    Returns:
        The model, on the CPU.
    """
    torch.default_generator.manual_seed(derive_seed(recipe.seeds.initialization))
    return module_of(recipe.model.kind).build(recipe.model, source_size, target_size)


def sequence_loss(smoothing: float) -> Loss[Seq2Seq, ParallelBatch]:
    """Return the teacher-forced cross-entropy loss, with optional label smoothing.

    Args:
        smoothing: Label smoothing, in [0, 1).

    Returns:
        A function of a model and a batch that returns two sums over the target tokens without padding, in nats: the
        smoothed loss to minimize and the plain cross-entropy to report.
    """

    def loss(model: Seq2Seq, batch: ParallelBatch) -> tuple[Tensor, Tensor]:
        """Return the smoothed sum and the plain sum, in nats."""
        # Teacher forcing: the decoder reads BOS and the reference, and predicts the reference and EOS.
        states = model(batch.source, batch.source_valid, batch.target_in)  # (batch, target, width)
        # The loss takes states and the output projection, not logits: (batch, target, vocabulary) may be too large.
        weight, bias = model.projection.weight, model.projection.bias
        return cross_entropy(states, weight, batch.target_out, batch.target_valid, smoothing, bias)

    return loss


def translation_trainer(
    model: Seq2Seq,
    data: TokenizedDataset,
    training: TrainingSettings,
    batches: BatchSettings,
    seeds: SeedSettings,
    device_context: DeviceContext,
) -> Trainer[Seq2Seq, ParallelBatch]:
    """Build a trainer for a model on pairs of tokenized texts.

    Args:
        data: Tokenized training pairs.
        training: Optimizer, learning-rate schedule and label smoothing.
        batches: Batch size and maximum length, in tokens.
        seeds: Seeds of data order and dropout.

    Returns:
        A trainer before its first optimizer step.

    Raises:
        UserError: All pairs are too long, or a step has fewer tokens than a batch.
    """
    examples = ParallelDataset(data, batches, training.tokens_per_update)
    return Trainer(model, examples, sequence_loss(training.label_smoothing), training, seeds, device_context)


def mean_loss(model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext) -> float:
    """Compute the cross-entropy per target token, without smoothing and dropout.

    Args:
        batches: Batch size in tokens.

    Returns:
        Mean cross-entropy over all target tokens, in nats.
    """
    return trainer.mean_loss(model, all_pairs_in_order(data, batches), sequence_loss(0.0), device_context)


def attention_weights(
    model: Seq2Seq, source: list[int], target: list[int], device: torch.device
) -> Float[Tensor, "layer head target source"]:
    """Compute the cross-attention weights of a pair, by teacher forcing.

    Args:
        source: Source tokens, without `EOS`.
        target: Target tokens, without `EOS`.

    Returns:
        Weights (layer, head, target, source), with `EOS` on both sides; no layers if the model has no attention.
    """
    batch = collate([source], [target], [0]).to(device)
    with torch.no_grad():
        memory = model.encoder(batch.source, batch.source_valid)
        return model.decoder.attention_weights(memory, batch.target_in)[0]


def build_translator(
    run: LoadedModel[PairRecipe, Seq2Seq], nbest: int = 1, before_step: Callable[[], None] | None = None
) -> TextTranslator:
    """Build a translator from text to text, by the recipe's `decoding` section.

    Args:
        nbest: Number of hypotheses for each source.
        before_step: Called before each decoding step; may end the search, see `Generator`.

    Returns:
        A translator with beam search.
    """
    return TextTranslator(run.model, run.tokenizers[0], run.tokenizers[-1], run.recipe.decoding, nbest, before_step)


def translate_texts(translator: TextTranslator, lines: list[str], refuse: Refuse | None = None) -> list[list[int]]:
    """Translate lines into tokens.

    Args:
        translator: Translator of a trained model.
        refuse: Receives the error of each line that cannot be translated; None raises the first error.

    Returns:
        Tokens of each line's best translation; empty for empty and refused lines.
    """
    found = translator.translate_chunk(lines, refuse=refuse)
    return [list(each.candidates[0].hypothesis.tokens) if each.candidates else [] for each in found]


def check_fits(model: Seq2Seq, source: Sequence[int], target: Sequence[int], most: int | None = None) -> None:
    """Refuse a pair that exceeds a model's positions.

    Args:
        most: Maximum length if the model has no limit; None: no limit.

    Raises:
        UserError: A side is too long.
    """
    for side, tokens, longest in (
        ("sentence", source, model.encoder.max_positions),
        ("translation", target, model.decoder.max_positions),
    ):
        if longest is None and most is not None and len(tokens) >= most:
            raise UserError(
                f"a {side} of {len(tokens):,} pieces is longer than the {most:,} that are read", remedy="shorten it"
            )
        if longest is not None and len(tokens) >= longest:
            raise UserError(
                f"a {side} of {len(tokens)} pieces is longer than the {longest} positions that the model has",
                remedy="shorten it",
            )


def check_prefixes(prefixes: Mapping[str, str], tokenizer: Tokenizer) -> None:
    """Refuse prefixes with unknown tokens, which the model cannot tell apart.

    A tokenizer trained on the corpora has all tokens of the prefixes; the tokenizer of another run may lack some.

    Args:
        prefixes: Prefix by section of the recipe.

    Raises:
        UserError: A prefix has an unknown token.
    """
    for section, prefix in prefixes.items():
        if UNK in tokenizer.encode(prefix):
            raise UserError(
                f"has pieces that the tokenizer does not know: {prefix!r}",
                where=f"{section}.prefix",
                remedy="take words that it knows, or leave out init_from, so that a tokenizer is made for them",
            )


class Lengths(Protocol):
    """Tokenized pairs with known lengths.

    Attributes:
        source_lengths: Number of tokens of each source, `EOS` included.
        target_lengths: Number of tokens of each target, `EOS` included.
    """

    source_lengths: Int[np.ndarray, " examples"]
    target_lengths: Int[np.ndarray, " examples"]


def longest_source(lengths: Lengths, max_length: int) -> int:
    """Return the length of the longest source among the pairs that fit.

    Args:
        max_length: Maximum number of tokens of source and target, `EOS` included.

    Returns:
        Number of tokens, `EOS` not counted.

    Example:
        >>> pairs = TokenizedDataset.from_rows([[5, 6, 7], [5]], [[8], [9, 9]])
        >>> longest_source(pairs, 10)
        3
    """
    fits = np.maximum(lengths.source_lengths, lengths.target_lengths) <= max_length
    return int(lengths.source_lengths[fits].max(initial=1)) - 1


def unreachable_references(name: str, lengths: Lengths, model: Seq2Seq, decoding: DecodingSettings) -> str | None:
    """Return a warning about references that are longer than decoding allows.

    Args:
        name: Name of the split, such as `test`.
        lengths: Lengths of the split's pairs.
        model: Model whose decoder may have a limited number of positions.
        decoding: The recipe's `decoding` section.

    Returns:
        The warning; None if all references can be generated.
    """
    if model.decoder.is_one_to_one:
        return None
    sources, targets = lengths.source_lengths - 1, lengths.target_lengths - 1
    allowed = max_output_lengths(sources, decoding)
    extra = int((targets - allowed).max(initial=0)) + decoding.max_extra
    return too_long_for_decoding(name, targets, allowed, model, f"decoding.max_extra={extra}")


def too_long_for_decoding(
    name: str,
    targets: Int[np.ndarray, " references"],
    allowed: Int[np.ndarray, " references"],
    model: Seq2Seq,
    remedy: str,
) -> str | None:
    """Return a warning about references with more tokens than allowed.

    Args:
        name: Name of the split, such as `test`.
        targets: Number of tokens of each reference, `EOS` not counted.
        allowed: Number of tokens that the decoding settings allow for each reference.
        model: Model whose decoder may have a limited number of positions.
        remedy: Setting that allows all references, with its value.

    Returns:
        The warning; None if all references can be generated.
    """
    most, remedies = model.decoder.max_positions, [remedy] if (targets > allowed).any() else []
    if most is not None:
        # The decoder reads BOS, too, which takes one position.
        allowed = np.minimum(allowed, most - 1)
        longest = int(targets.max(initial=0))
        remedies += [f"model.max_positions={longest + 1}"] if longest >= most else []
    count = int((targets > allowed).sum())
    if not count:
        return None
    return (
        f"{count:,} of {len(targets):,} {name} references are longer than decoding allows, so they cannot be written: "
        f"set {' and '.join(remedies)} or higher"
    )


def check_test_lengths(model: Seq2Seq, test: Callable[[], Lengths], read_alone: bool = True) -> None:
    """Refuse test sentences that are longer than the model's positions.

    The check runs before training; otherwise the error would come after the training, at the test.

    Args:
        test: Returns the lengths of the test set; called only if the model has a limited number of positions.
        read_alone: True if no loss is computed on test targets, so that long targets never reach the decoder.

    Raises:
        UserError: A test sentence is too long.
    """
    parts = (model.encoder,) if read_alone else (model.encoder, model.decoder)
    if all(part.max_positions is None for part in parts):
        return
    lengths = test()
    for part, longest in zip(parts, (lengths.source_lengths, lengths.target_lengths), strict=False):
        if part.max_positions is not None and part.max_positions < (wanted := int(longest.max(initial=0))):
            raise UserError(
                f"the model knows {part.max_positions} positions, but the longest test sentence has {wanted} pieces",
                where="model.max_positions",
                remedy=f"set model.max_positions={wanted} or higher, or split the sentence; a run that was begun goes "
                "on with another test set, or with none (null)",
            )


def check_lengths(batches: BatchSettings, model: Seq2Seq, train: Lengths, validation: Lengths, kind: str) -> None:
    """Refuse data that the model's positions or its decoder cannot represent.

    The check runs before training; otherwise the error would end the run at its first validation. A one-to-one decoder,
    which writes one token for each source token, needs pairs of equal length.

    Args:
        batches: Batch settings with `max_length`.
        train: Lengths of the training pairs.
        validation: Lengths of the validation pairs.
        kind: Kind of the model, for messages.

    Raises:
        UserError: A length is too large, or a one-to-one model has pairs of unequal length.
    """
    for part, lengths in (
        (model.encoder, validation.source_lengths),
        (model.decoder, validation.target_lengths),
    ):
        longest = max(int(lengths.max()), batches.max_length)
        if part.max_positions is not None and part.max_positions < longest:
            raise UserError(
                f"the model knows {part.max_positions} positions, but batches.max_length is "
                f"{batches.max_length}, and the longest validation sentence has {lengths.max()} pieces",
                where="model.max_positions",
                remedy=f"set model.max_positions={longest} or higher",
            )
    if not model.decoder.is_one_to_one:
        return
    for name, part in (("train", train), ("validation", validation)):
        unequal = np.flatnonzero(part.source_lengths != part.target_lengths)
        if len(unequal):
            sizes = part.source_lengths[unequal[0]] - 1, part.target_lengths[unequal[0]] - 1
            raise UserError(
                f"a model of kind {kind} writes one piece for each that it reads, but "
                f"{len(unequal):,} pairs of {name} differ in length, the first with {sizes[0]} and {sizes[1]}",
                where="model.kind",
                remedy="give a corpus of equally many words a side, with tokenizer.kind: word and "
                "tokenizer.shared: false, or take another model",
            )
