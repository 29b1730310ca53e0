"""Diagnosis of translation: data check, word alignments of trained models, and the overfitting check."""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from s2s.data.mixing import describe_mixture
from s2s.data.pair_check import blocks, inspect, render
from s2s.data.pairs import with_prefix, without_prefix
from s2s.data.sources import Corpus
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import EOS, Tokenizer
from s2s.decoding.generate import MAX_SOURCE_LENGTH, TextTranslator
from s2s.errors import Refuse, UserError
from s2s.evaluation.metrics import exact_share
from s2s.inspection.inspection import AttentionMaps
from s2s.inspection.words import Word, links, pharaoh, words_of
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import TrainRecipe
from s2s.tasks.base import LoadedModel, PrintFn
from s2s.tasks.seq2seq import (
    build_model,
    build_translator,
    check_fits,
    cross_attention_weights,
    mean_loss,
    translate_texts,
    translation_trainer,
)
from s2s.tasks.translation.prepared import (
    OWN,
    TranslationSource,
    dataset_summary,
    filtered,
    join_short_pairs,
    prepare,
    read_extra_corpora,
)
from s2s.tasks.translation.recipe import Recipe
from s2s.tasks.translation.task import TASK
from s2s.training.device import select_device
from s2s.training.divergence import is_diverged
from s2s.training.precision import check_precision

if TYPE_CHECKING:
    import datasets


def inspected(recipe: Recipe) -> str:
    """Return a report on a recipe's corpora: statistics and suspicious examples, with a section for each corpus."""
    data, corpus = recipe.data, TranslationSource(recipe.data).load()
    normalization = recipe.tokenizer.of("target").normalization
    # Prefixes are removed, because the checks concern the texts.
    parts = {name: without_prefix(part, data.prefix) for name, part in corpus.splits().items()}
    plain: Corpus["datasets.Dataset"] = replace(corpus, **parts)
    found = inspect(plain, data, normalization)
    more = []
    if data.join > 1:
        kept, _ = filtered(data, corpus.train)
        joined = dataset_summary(join_short_pairs(kept, data), len(kept)) if len(kept) else "there are no pairs to join"
        more.append(["joined pairs (data.join)", f"  {joined}"])
    others = read_extra_corpora(data, corpus)
    for name, each in others.items():
        alone: Corpus["datasets.Dataset"] = Corpus(each.read, None, None)  # type: ignore[arg-type]
        other = inspect(alone, data.more[name], normalization)
        head, *rest = blocks(other)
        held_out = ["pairs in the validation or test set", f"  {each.held_out:,} pairs: left out"]
        more += [[f"── data.more.{name}", *head], *rest, held_out]
        found.advice.extend(f"{name}: {words}" for words in other.advice)
    if others:
        sizes = [found.filter_report.kept, *(len(each.kept) for each in others.values())]
        more.append(["── together", *describe_mixture([OWN, *others], sizes, data.mixing, data.weights)])
    return render(found, more)


def attention_between(run: LoadedModel[TrainRecipe, Seq2Seq], source: list[int], target: list[int]) -> AttentionMaps:
    """Compute the cross-attention weights of a pair of token lists without `EOS`, with names of the tokens.

    Returns:
        Attention of each layer and head; no layers if the model has no attention.
    """
    weights = cross_attention_weights(run.model, source, target, run.device_context.device).cpu().double().numpy()
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
    given, before = None if targets is None else iter(targets), 0
    unequal = UserError(
        "has not as many lines as --input", "--reference", "name a file with a line for each input line"
    )
    for chunk in chunks:
        lines = [with_prefix(run.recipe.data.prefix, line) for line in chunk]
        if given is None:
            written = translate_texts(translator, lines, lambda row, error, before=before: refuse(before + row, error))
        else:
            texts = list(islice(given, len(lines)))
            if len(texts) < len(lines):
                raise unequal
            written = into.encode_batch(texts)
        for row, (line, read, tokens) in enumerate(zip(chunk, source.encode_batch(lines), written, strict=True)):
            if not read or not tokens:
                yield ""
                continue
            try:
                check_fits(run.model, read, tokens, MAX_SOURCE_LENGTH)
            except UserError as error:
                refuse(before + row, error)
                yield ""
                continue
            weights = cross_attention_weights(run.model, read, tokens, run.device_context.device)
            if not len(weights):
                what = f"a model of kind {run.recipe.model.kind} has no attention"
                raise UserError(what, where=str(run.path), remedy="name another run")
            if layer >= len(weights):
                raise UserError(f"there is no layer {layer}", "--layer", f"choose 0 to {len(weights) - 1}")
            looked = weights[layer].mean(dim=0).cpu().double().numpy()
            words = after_prefix(source, words_of(source, read, True), line), words_of(into, tokens, True)
            yield pharaoh(links(looked, *words))
        before += len(chunk)
    if given is not None and next(given, None) is not None:
        raise unequal


def after_prefix(tokenizer: Tokenizer, words: list[Word], line: str) -> list[Word]:
    """Return the last words, as many as the line without its prefix has.

    A prefix without a space at its end forms one word with the first word of the line.
    """
    return words[len(words) - len(words_of(tokenizer, tokenizer.encode(line), True)) :]


_PAIRS = 16
_UPDATES = 800
_OVERFIT_SHARE = 90  # Percentage of exact translations: 1 of 16 may be wrong.


def overfit(recipe: Recipe, print_fn: PrintFn) -> None:
    """Sanity check: overfit 16 training pairs of medium length (`s2s train --overfit`).

    The recipe applies, except for label smoothing, weight averaging and the learning-rate schedule after warm-up, which
    would prevent overfitting. Dropout is on in training and off in evaluation. Nothing is saved.

    Raises:
        UserError: The model did not overfit: model, learning rate and data do not fit each other.
    """
    TASK.check(recipe)
    device_context = select_device(recipe.device)
    prepared = prepare(recipe, None, print_fn)
    source, target = prepared.source_tokenizer, prepared.target_tokenizer
    model = build_model(recipe, source.size, target.size).to(device_context.device)
    lengths = np.maximum(prepared.train.source_lengths, prepared.train.target_lengths)
    order = np.argsort(lengths, kind="stable")
    first = max(0, (len(order) - _PAIRS) // 2)
    chosen = order[first : first + _PAIRS]
    data, longest = TokenizedDataset.from_rows(*prepared.train.rows(chosen)), int(lengths[chosen].max())
    batches = recipe.batches.model_copy(update={"tokens": longest * len(chosen), "max_length": longest})
    changes = {"updates": _UPDATES, "schedule": "constant", "label_smoothing": 0.0, "ema": None, "average_last": None}
    changes |= {"warmup": min(recipe.training.warmup, _UPDATES // 20), "tokens_per_update": None}
    training = recipe.training.model_copy(update=changes)
    trainer = translation_trainer(model, data, training, batches, recipe.seeds, device_context)
    check_precision(trainer)
    started = time.perf_counter()
    before = mean_loss(model, data, batches, device_context)
    print_fn(f"{len(chosen)} pairs, loss {before:.2f} before training")
    texts = prepared.corpus.train.select(chosen)
    # References as the tokenizer can represent them.
    references = [target.decode(target.encode(text)) for text in texts["target"]]
    translator = TextTranslator(model, source, target, recipe.decoding.with_beam(1))
    loss, exact = math.nan, 0.0
    while exact < _OVERFIT_SHARE and trainer.update < _UPDATES:
        for _ in trainer.updates(trainer.update + _UPDATES // 8):
            pass
        loss = mean_loss(model, data, batches, device_context)
        model.eval()
        exact = exact_share([t.text for t in translator.translate(texts["source"])], references)
        print_fn(f"update {trainer.update}: loss {loss:.3f}, {exact:.0f} % of the translations exact")
    if exact >= _OVERFIT_SHARE:
        print_fn(
            f"overfitted after {trainer.update} updates, {time.perf_counter() - started:.0f} s: the model can learn"
        )
        return
    if sign := is_diverged(model, loss, max(before, math.log(target.size))):
        raise UserError(
            f"the training diverged: {sign}",
            where=f"{trainer.update} updates",
            remedy="lower training.learning_rate, lengthen training.warmup, or set training.clip",
        )
    raise UserError(
        f"the model did not overfit {len(chosen)} pairs in {trainer.update} updates: {exact:.0f} % are exact",
        remedy="raise training.learning_rate or the model's width, lower its dropout, and look at the pairs with "
        "`s2s data check`",
    )
