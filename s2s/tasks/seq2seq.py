"""What all tasks that write a target for each source have in common: model, loss, trainer, translator."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from s2s.data.batches import ParallelBatch, ParallelDataset, all_pairs_in_order, collate
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import EOS, UNK, Tokenizer
from s2s.decoding.generate import TextTranslator, max_output_lengths
from s2s.errors import Refuse, UserError
from s2s.inspection.seq2seq import Pair, check_fits, source_of
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.pairs import BatchSettings, TrainingSettings
from s2s.recipe.schema import AnyRecipe, DecodingSettings, SeedSettings
from s2s.tasks.base import LoadedModel
from s2s.training import trainer
from s2s.training.device import DeviceContext, derive_seed
from s2s.training.loss import cross_entropy
from s2s.training.trainer import Loss, Trainer


def build_model(recipe: AnyRecipe[Any], source_size: int, target_size: int) -> Seq2Seq:
    """A model as the recipe describes it, with the initial weights that its seed gives."""
    torch.default_generator.manual_seed(derive_seed(recipe.seeds.initialization))
    return module_of(recipe.model.kind).build(recipe.model, source_size, target_size)


def sequence_loss(smoothing: float) -> Loss[Seq2Seq, ParallelBatch]:
    """The cross-entropy of a batch's real tokens, summed; smoothing is in [0, 1), and the plain loss has none."""

    def loss(model: Seq2Seq, batch: ParallelBatch) -> tuple[Tensor, Tensor]:
        """The smoothed sum and the plain one, in nats."""
        states = model(batch.source, batch.source_valid, batch.target_in)
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
    """A trainer of a model, on the computer's device, that learns to translate from pairs as pieces.

    Raises:
        UserError: all pairs are too long, or an update smaller than a batch.
    """
    examples = ParallelDataset(data, batches, training.tokens_per_update)
    return Trainer(model, examples, sequence_loss(training.label_smoothing), training, seeds, device_context)


def mean_loss(model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext) -> float:
    """Cross-entropy without smoothing of all pairs, in nats per target token, dropout off."""
    return trainer.mean_loss(model, all_pairs_in_order(data, batches), sequence_loss(0.0), device_context)


def build_translator(
    run: LoadedModel[Any, Seq2Seq], nbest: int = 1, before_step: Callable[[], None] | None = None
) -> TextTranslator:
    """Text in, text out, as `decoding` in the recipe says; `before_step` may end a search, see `Writer`."""
    return TextTranslator(run.model, run.tokenizers[0], run.tokenizers[-1], run.recipe.decoding, nbest, before_step)


def pair_of(
    run: LoadedModel[Any, Seq2Seq], text: str, output: str | None = None, prefix: str = "", remark: str = ""
) -> Pair:
    """A text and what shall have been written for it, as a model reads them: its own output when None is given.

    Raises:
        UserError: the text is empty or too long.
    """
    if not text.strip():
        raise UserError("the sentence is empty", remedy="give one in quotes")
    one, into = run.tokenizers[0], run.tokenizers[-1]
    read = one.encode(prefix + text)
    written = translate_texts(build_translator(run), [prefix + text])[0] if output is None else into.encode(output)
    check_fits(run.model, read, written)
    batch = collate([read], [written], [0]).to(run.device_context.device)
    source = source_of(one, read, batch.source, batch.source_valid)
    return Pair(source, written, (prefix + text, into.decode(written)), into.tokens([*written, EOS]), remark=remark)


def translate_texts(translator: TextTranslator, lines: list[str], refuse: Refuse | None = None) -> list[list[int]]:
    """The pieces of each line's translation; empty lines and refused ones have none."""
    found = translator.translate_chunk(lines, refuse=refuse)
    return [list(each.candidates[0].hypothesis.tokens) if each.candidates else [] for each in found]


def check_prefixes(prefixes: Mapping[str, str], tokenizer: Tokenizer) -> None:
    """Refuses a prefix with unknown pieces, which the model could not tell from another, by its section in the recipe.

    A tokenizer that is learned from the corpora knows all of them; one of another run may not.
    """
    for section, prefix in prefixes.items():
        if UNK in tokenizer.encode(prefix):
            raise UserError(
                f"has pieces that the tokenizer does not know: {prefix!r}",
                where=f"{section}.prefix",
                remedy="take words that it knows, or leave out init_from, so that a tokenizer is made for them",
            )


class Lengths(Protocol):
    """Examples whose lengths are known: pieces of each source and of each target, `EOS` counted."""

    source_lengths: Int[np.ndarray, " examples"]
    target_lengths: Int[np.ndarray, " examples"]


def longest_source(lengths: Lengths, max_length: int) -> int:
    """Return the tokens of the longest source among pairs with no side longer than `max_length`, `EOS` not counted."""
    fits = np.maximum(lengths.source_lengths, lengths.target_lengths) <= max_length
    return int(lengths.source_lengths[fits].max(initial=1)) - 1


def unreachable_references(name: str, lengths: Lengths, model: Seq2Seq, decoding: DecodingSettings) -> str | None:
    """Return a warning about references that are longer than decoding allows; None where there are none.

    Args:
        name: What has the references, such as `test`.
        lengths: Of its pairs.
        model: Its decoder may have a limited number of positions.
        decoding: The recipe's section.
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
    """Return a warning about references with more tokens than allowed; None where there are none.

    Args:
        name: What has the references, such as `test`.
        targets: Tokens of each reference, `EOS` not counted.
        allowed: Tokens that decoding allows for each by its settings.
        model: Its decoder may have a limited number of positions.
        remedy: The setting that allows all references, with its value.
    """
    most, remedies = model.decoder.max_positions, [remedy] if (targets > allowed).any() else []
    if most is not None:
        # BOS is fed, too
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
    """Before anything is made: a test sentence beyond the positions that were learned would be told when all is done.

    Args:
        model: the untrained model.
        test: the lengths of the test set; asked for where the model's positions end somewhere.
        read_alone: no loss is taken of test targets, so that the decoder never comes to the ends of long ones.
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
    """Before anything is made: positions that were not learned would stop the run at its first validation."""
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
