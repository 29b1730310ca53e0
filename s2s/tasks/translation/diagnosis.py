"""Diagnosis of translation: of the corpora before training, and word alignments of trained models."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from s2s.data.mixing import describe_mixture as told_shares
from s2s.data.pair_check import blocks, inspect, render
from s2s.data.pairs import with_prefix, without_prefix
from s2s.data.sources import Corpus
from s2s.data.tokenizers import EOS, Tokenizer
from s2s.decoding.generate import MAX_SOURCE_LENGTH
from s2s.errors import Refuse, UserError
from s2s.inspection.inspection import AttentionMaps
from s2s.inspection.words import Word, links, pharaoh, words_of
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import TrainRecipe
from s2s.tasks.base import LoadedModel
from s2s.tasks.line_translation import refuse_later
from s2s.tasks.seq2seq import attention_weights, build_translator, check_fits, translate_texts
from s2s.tasks.translation.prepared import (
    OWN,
    TranslationSource,
    dataset_summary,
    filtered,
    join_short_pairs,
    read_extra_corpora,
)
from s2s.tasks.translation.recipe import Recipe

if TYPE_CHECKING:
    import datasets


def inspected(recipe: Recipe) -> str:
    """Return a report on a recipe's corpora: statistics and suspicious examples.

    Returns:
        The report as text, with a section for each additional corpus.
    """
    data, corpus = recipe.data, TranslationSource(recipe.data).load()
    normalization = recipe.tokenizer.of("target").normalization
    # Prefixes are removed, because the checks concern the texts.
    held = (part and without_prefix(part, data.prefix) for part in (corpus.validation, corpus.test))
    plain: Corpus["datasets.Dataset"] = Corpus(without_prefix(corpus.train, data.prefix), *held)  # type: ignore[arg-type]
    found = inspect(plain, data, normalization)
    more = []
    if data.join > 1:
        kept, _ = filtered(data, corpus.train)
        joined = dataset_summary(join_short_pairs(kept, data), len(kept)) if len(kept) else "nothing is left to join"
        more.append(["what data.join does", f"  {joined}"])
    others = read_extra_corpora(data, corpus)
    sizes = [found.filter_report.kept, *(len(each.kept) for each in others.values())]
    for name, each in others.items():
        alone: Corpus["datasets.Dataset"] = Corpus(each.read, None, None)  # type: ignore[arg-type]
        beside = inspect(alone, data.more[name], normalization)
        head, *rest = blocks(beside)
        left = ["what stands in validation or test", f"  {each.held_out:,} pairs: left out"]
        more += [[f"── data.more.{name}", *head], *rest, left]
        found.advice.extend(f"{name}: {words}" for words in beside.advice)
    if others:
        more.append(["── together", *told_shares([OWN, *others], sizes, data.mixing, data.weights)])
    return render(found, more)


def attention_between(run: LoadedModel[TrainRecipe, Seq2Seq], source: list[int], target: list[int]) -> AttentionMaps:
    """Compute the cross-attention weights of a pair, with names of the tokens.

    Args:
        source: Source tokens, without `EOS`.
        target: Target tokens, without `EOS`.

    Returns:
        Attention of each layer and head; no layers if the model has no attention.
    """
    weights = attention_weights(run.model, source, target, run.device_context.device).cpu().double().numpy()
    rows, columns = run.tokenizers[-1].tokens([*target, EOS]), run.tokenizers[0].tokens([*source, EOS])
    return AttentionMaps("cross", weights, rows, columns)


def align_lines(
    run: LoadedModel[Recipe, Seq2Seq],
    chunks: Iterable[list[str]],
    refuse: Refuse,
    targets: Iterable[str] | None = None,
    layer: int = -1,
) -> Iterator[str]:
    """Align the words of lines with the words of their translations; see `links`.

    Words are separated by white space; in scripts without spaces, each character is a word. The weights of a layer are
    averaged over its heads.

    Args:
        chunks: Source lines that are translated together.
        refuse: Receives the error of each line that is too long; its alignment is empty.
        targets: Given translations; None generates the model's own.
        layer: Layer of the decoder, from 0; negative numbers count from the last.

    Yields:
        One line of links for each source line, in Pharaoh format (`0-0 1-2`).

    Raises:
        UserError: The model has no attention or no such layer, or the numbers of lines and targets differ.
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
            weights = attention_weights(run.model, read, tokens, run.device_context.device)
            _check_layer(run, len(weights), layer)
            looked = weights[layer].mean(dim=0).cpu().double().numpy()
            words = after_prefix(source, words_of(source, read, True), line), words_of(into, tokens, True)
            yield pharaoh(links(looked, *words))
    if given is not None and next(given, None) is not None:
        raise _unequal()


def after_prefix(tokenizer: Tokenizer, words: list[Word], line: str) -> list[Word]:
    """Return the words of a line without the words of its prefix.

    A prefix without a space at its end forms one word with the first word of the line.

    Args:
        words: Words of the prefix and the line.

    Returns:
        The last words, as many as the line has.
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
