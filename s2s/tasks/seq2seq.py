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
    """Build the recipe's model for vocabularies of these sizes, initialized with the recipe's seed, on the CPU."""
    torch.default_generator.manual_seed(derive_seed(recipe.seeds.initialization))
    return module_of(recipe.model.kind).build(recipe.model, source_size, target_size)


class LossSettings(Protocol):
    """Settings of `sequence_loss`, in the section `training` of a recipe."""

    @property
    def label_smoothing(self) -> float:
        """Share of the probability that is spread over the vocabulary, in [0, 1)."""
        ...


def sequence_loss(training: LossSettings) -> Loss[Seq2Seq, ParallelBatch]:
    """Return the teacher-forced cross-entropy loss, with optional label smoothing.

    Args:
        training: Section `training` of the recipe.

    Returns:
        A function of a model and a batch that returns two sums over the target tokens without padding, in nats: the
        smoothed loss to minimize and the plain cross-entropy to report.
    """

    def loss(model: Seq2Seq, batch: ParallelBatch) -> tuple[Tensor, Tensor]:
        # Teacher forcing: the decoder reads BOS and the reference, and predicts the reference and EOS.
        states = model(batch.source, batch.source_valid, batch.target_in)  # (batch, target, width)
        # The loss takes states and the output projection, not logits: (batch, target, vocabulary) may be too large.
        weight, bias = model.projection.weight, model.projection.bias
        return cross_entropy(states, weight, batch.target_out, batch.target_valid, training.label_smoothing, bias)

    return loss


PLAIN_LOSS = sequence_loss(TrainingSettings(label_smoothing=0.0))
"""Cross-entropy without label smoothing, for validation and evaluation."""


def translation_trainer(
    model: Seq2Seq,
    data: TokenizedDataset,
    training: TrainingSettings,
    batches: BatchSettings,
    seeds: SeedSettings,
    device_context: DeviceContext,
) -> Trainer[Seq2Seq, ParallelBatch]:
    """Build a trainer for a model on pairs of tokenized texts.

    Raises:
        UserError: All pairs are too long, or a step has fewer tokens than a batch.
    """
    examples = ParallelDataset(data, batches, training.tokens_per_update)
    return Trainer(model, examples, sequence_loss(training), training, seeds, device_context)


def mean_loss(model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext) -> float:
    """Compute the cross-entropy in nats per target token, without smoothing and dropout."""
    return trainer.mean_loss(model, all_pairs_in_order(data, batches), PLAIN_LOSS, device_context)


def cross_attention_weights(
    model: Seq2Seq, source: list[int], target: list[int], device: torch.device
) -> Float[Tensor, "layer head target source"]:
    """Compute the cross-attention weights of a pair, by teacher forcing.

    Returns:
        Weights (layer, head, target, source), with `EOS` added on both sides; no layers if the model has no attention.
    """
    batch = collate([source], [target], [0]).to(device)
    with torch.no_grad():
        memory = model.encoder(batch.source, batch.source_valid)
        return model.decoder.cross_attention_weights(memory, batch.target_in)[0]


def build_translator(
    run: LoadedModel[PairRecipe, Seq2Seq], nbest: int = 1, before_step: Callable[[], None] | None = None
) -> TextTranslator:
    """Build a translator from text to text, with the beam search of the recipe's `decoding` section.

    Args:
        nbest: Number of hypotheses for each source.
        before_step: Called before each decoding step; may end the search, see `Generator`.
    """
    return TextTranslator(run.model, run.tokenizers[0], run.tokenizers[-1], run.recipe.decoding, nbest, before_step)


def translate_texts(translator: TextTranslator, lines: list[str], refuse: Refuse | None = None) -> list[list[int]]:
    """Translate lines into tokens.

    Args:
        refuse: Receives the error of each line that cannot be translated; None raises the first error.

    Returns:
        Tokens of each line's best translation; empty for empty and refused lines.
    """
    found = translator.translate_chunk(lines, refuse=refuse)
    return [list(each.candidates[0].hypothesis.tokens) if each.candidates else [] for each in found]


def check_fits(model: Seq2Seq, source: Sequence[int], target: Sequence[int], most: int | None = None) -> None:
    """Refuse a pair that exceeds a model's positions, or `most` tokens if the model has no limit."""
    for side, tokens, positions in (
        ("sentence", source, model.encoder.max_positions),
        ("translation", target, model.decoder.max_positions),
    ):
        longest = most if positions is None else positions
        if longest is not None and len(tokens) >= longest:
            limit = "tokens that are read" if positions is None else "positions of the model"
            what = f"a {side} of {len(tokens):,} tokens, and its end, are longer than the {longest:,} {limit}"
            raise UserError(what, remedy="shorten it")


def fitting_pairs(model: Seq2Seq, data: TokenizedDataset) -> TokenizedDataset:
    """Return the pairs that a model has positions for; references of a test set may be longer."""
    fits = np.ones(len(data), dtype=bool)
    for lengths, positions in (
        (data.source_lengths, model.encoder.max_positions),
        (data.target_lengths, model.decoder.max_positions),
    ):
        if positions is not None:
            fits &= lengths <= positions
    return data if fits.all() else TokenizedDataset.from_rows(*data.rows(np.flatnonzero(fits)))


def check_prefixes(prefixes: Mapping[str, str], tokenizer: Tokenizer) -> None:
    """Refuse prefixes with unknown tokens, which the model cannot tell apart.

    A tokenizer trained on the corpora has all tokens of the prefixes; the tokenizer of another run may lack some.

    Args:
        prefixes: Prefix by section of the recipe.
    """
    for section, prefix in prefixes.items():
        if UNK in tokenizer.encode(prefix):
            raise UserError(
                f"has tokens that the tokenizer does not know: {prefix!r}",
                where=f"{section}.prefix",
                remedy="write words that it knows, or leave out init_from, so that a tokenizer is trained for them",
            )


class Lengths(Protocol):
    """Tokenized pairs with their lengths in tokens, `EOS` included."""

    source_lengths: Int[np.ndarray, " examples"]
    target_lengths: Int[np.ndarray, " examples"]


def longest_source(lengths: Lengths, max_length: int) -> int:
    """Return the number of tokens of the longest source, `EOS` not counted, among pairs of up to `max_length` tokens.

    Example:
        >>> pairs = TokenizedDataset.from_rows([[5, 6, 7], [5]], [[8], [9, 9]])
        >>> longest_source(pairs, 10)
        3
    """
    fits = np.maximum(lengths.source_lengths, lengths.target_lengths) <= max_length
    return int(lengths.source_lengths[fits].max(initial=1)) - 1


def unreachable_references(name: str, lengths: Lengths, model: Seq2Seq, decoding: DecodingSettings) -> str | None:
    """Return a warning about the references of a split that are longer than decoding allows; None if there are none."""
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
    """Return a warning about references with more tokens than allowed, `EOS` not counted; None if there are none.

    Args:
        name: Name of the split, such as `test`.
        targets: Number of tokens of each reference.
        allowed: Number of tokens that the decoding settings allow for each reference.
        model: Model whose decoder may have a limited number of positions.
        remedy: Setting that allows all references, with its value.
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
        f"{count:,} of {len(targets):,} {name} references are longer than decoding allows, so they are out of reach: "
        f"set {' and '.join(remedies)} or higher"
    )


def check_test_lengths(model: Seq2Seq, test: Callable[[], Lengths], check_targets: bool = False) -> None:
    """Refuse test sentences that are longer than the model's positions.

    The check runs before training; otherwise the error would come after the training, at the test.

    Args:
        test: Returns the lengths of the test set; called only if the model has a limited number of positions.
        check_targets: True if the loss on test targets is computed, so that the decoder reads them.
    """
    parts = (model.encoder, model.decoder) if check_targets else (model.encoder,)
    if all(part.max_positions is None for part in parts):
        return
    lengths = test()
    for part, longest in zip(parts, (lengths.source_lengths, lengths.target_lengths), strict=False):
        if part.max_positions is not None and part.max_positions < (wanted := int(longest.max(initial=0))):
            raise UserError(
                f"the model has {part.max_positions} positions, but the longest test sentence has {wanted} tokens",
                where="model.max_positions",
                remedy=f"set model.max_positions={wanted} or higher, or split it; resume an existing run with "
                "another test set, or with none (null)",
            )


def check_lengths(batches: BatchSettings, model: Seq2Seq, train: Lengths, validation: Lengths, kind: str) -> None:
    """Refuse data that the model's positions or its decoder cannot represent.

    The check runs before training; otherwise the error would end the run at its first validation. A one-to-one decoder,
    which writes one token for each source token, needs pairs of equal length.

    Args:
        kind: Kind of the model, for messages.
    """
    for part, lengths in ((model.encoder, validation.source_lengths), (model.decoder, validation.target_lengths)):
        longest = max(int(lengths.max()), batches.max_length)
        if part.max_positions is not None and part.max_positions < longest:
            raise UserError(
                f"the model has {part.max_positions} positions, but batches.max_length is "
                f"{batches.max_length}, and the longest validation sentence has {lengths.max()} tokens",
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
                f"a model of kind {kind} generates one token for each source token, but {len(unequal):,} pairs of "
                f"{name} differ in length, the first with {sizes[0]} and {sizes[1]} tokens",
                where="model.kind",
                remedy="use a corpus with as many target words as source words, with tokenizer.kind: word and "
                "tokenizer.shared: false, or another model",
            )
