"""Where a trained model looks while it writes: as weights of one pair, and as alignments of many."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from s2s.data.batches import collate
from s2s.data.pairs import with_prefix
from s2s.data.tokenizers import EOS, Tokenizer
from s2s.decoding.generate import MAX_SOURCE_LENGTH
from s2s.errors import Refuse, UserError
from s2s.inspection.alignment import links, pharaoh
from s2s.inspection.inspection import AttentionMaps
from s2s.inspection.seq2seq import check_fits
from s2s.inspection.words import Word, words_of
from s2s.models.base import Seq2Seq
from s2s.tasks.base import LoadedModel
from s2s.tasks.line_translation import refuse_later
from s2s.tasks.seq2seq import translate_texts
from s2s.tasks.translation.evaluation import build_translator
from s2s.tasks.translation.recipe import Recipe


def weights_between(
    model: Seq2Seq, source: list[int], target: list[int], device: torch.device
) -> Float[Tensor, "layer head target source"]:
    """Where a model looks while it writes the pieces of a target, its end included."""
    batch = collate([source], [target], [0]).to(device)
    with torch.no_grad():
        memory = model.encoder(batch.source, batch.source_valid)
        return model.decoder.attention_weights(memory, batch.target_in)[0]


def attention_between(run: LoadedModel[Any, Seq2Seq], source: list[int], target: list[int]) -> AttentionMaps:
    """Where a trained model looks, in each layer and head, while it writes the pieces of a target; no layers without
    attention.
    """
    weights = weights_between(run.model, source, target, run.device_context.device).cpu().double().numpy()
    rows, columns = run.tokenizers[-1].tokens([*target, EOS]), run.tokenizers[0].tokens([*source, EOS])
    return AttentionMaps("cross", weights, rows, columns)


def align_lines(
    run: LoadedModel[Recipe, Seq2Seq],
    chunks: Iterable[list[str]],
    refuse: Refuse,
    targets: Iterable[str] | None = None,
    layer: int = -1,
) -> Iterator[str]:
    """Alignments of lines with their translations, those given or else the model's own; see `links`.

    Words are what white space parts; where spaces do not separate words, they are characters. The heads of a layer are
    averaged, of the last one when negative. A line that is too long is given to `refuse`, and its alignment is empty.

    Raises:
        UserError: the model has no attention or no such layer, or targets are not as many as lines.
    """
    source, into, translator = run.tokenizers[0], run.tokenizers[-1], build_translator(run)
    prefix = run.recipe.data.prefix
    given, before = iter(targets) if targets is not None else None, 0
    for chunk in chunks:
        later, before = partial(refuse_later, refuse, before), before + len(chunk)
        lines = [with_prefix(prefix, line) for line in chunk]
        if given is None:
            written = translate_texts(translator, lines, later)
        else:
            texts = list(islice(given, len(lines)))
            if len(texts) < len(lines):
                raise _unequal()
            written = into.encode_batch(texts)
        for row, (line, read, tokens) in enumerate(zip(chunk, source.encode_batch(lines), written, strict=True)):
            if not read or not tokens:
                yield ""
                continue
            try:
                check_fits(run.model, read, tokens, MAX_SOURCE_LENGTH)
            except UserError as error:
                later(row, error)
                yield ""
                continue
            weights = weights_between(run.model, read, tokens, run.device_context.device)
            _check_layer(run, len(weights), layer)
            looked = weights[layer].mean(dim=0).cpu().double().numpy()
            words = after_prefix(source, words_of(source, read, True), line), words_of(into, tokens, True)
            yield pharaoh(links(looked, *words))
    if given is not None and next(given, None) is not None:
        raise _unequal()


def after_prefix(tokenizer: Tokenizer, words: list[Word], line: str) -> list[Word]:
    """The words of a line, among those of it with the prefix that it was read with.

    A prefix without a space at its end is of one word with the first of the line.
    """
    return words[len(words) - len(words_of(tokenizer, tokenizer.encode(line), True)) :]


def _check_layer(run: LoadedModel[Recipe, Seq2Seq], layers: int, layer: int) -> None:
    if not layers:
        raise UserError(
            f"a model of kind {run.recipe.model.kind} has no attention", where=str(run.path), remedy="name another run"
        )
    if layer >= layers:
        raise UserError(f"there is no layer {layer}", "--layer", f"0 to {layers - 1} are there")


def _unequal() -> UserError:
    return UserError("has not as many lines as --input", "--reference", "name two files that are line by line the same")
