"""Diagnosis of captioning: of the data before training, and of trained models (`s2s inspect`, `s2s diagnose`)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int

from s2s.data import data_check as look
from s2s.data.data_check import report_tokens
from s2s.data.dataset import to_device
from s2s.data.scripts import is_unspaced, split_words, unit_name
from s2s.data.sources import Corpus, count_overlap, hashes
from s2s.data.sources import repeated as repeated_rows
from s2s.data.tokenized import RaggedArray, learned
from s2s.data.tokenizers import EOS, UNK, describe_changes
from s2s.decoding.generate import Generator
from s2s.evaluation.metrics import score
from s2s.evaluation.signs import Diagnostics, Finding, entropy, lengths, repeated, share_sign, unit_of
from s2s.evaluation.tokenization import choose_tokenization
from s2s.inspection.inspection import Inspection, InspectionRequest
from s2s.inspection.positions import even_grey
from s2s.inspection.seq2seq import Pair, inspection_of
from s2s.inspection.walk import Source
from s2s.inspection.words import patches
from s2s.models.base import Seq2Seq
from s2s.tasks.base import LoadedModel
from s2s.tasks.captioning.data import BUILT_IN, Captioned, CaptionSource, all_captions_in_order, as_read, positions_of
from s2s.tasks.captioning.evaluation import METRICS, facts_of
from s2s.tasks.captioning.generation import write
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.data_check import CorpusInspection, Split, conversions, some
from s2s.tasks.image_files import DAMAGED, Pixels, plain, read_all
from s2s.tasks.seq2seq import PLAIN_LOSS
from s2s.tasks.source_use import SourceUse
from s2s.tasks.symptoms import collapsed, search_errors, source_ignored, worst_texts
from s2s.training.progress import ProgressBar
from s2s.training.trainer import mean_loss

CaptionRun = LoadedModel[CaptionRecipe, Seq2Seq]

# Percentage of wrong facts of a kind that is a sign of a problem.
_WRONG_FACTS = 10.0


def inspected(recipe: CaptionRecipe) -> str:
    """Return a report on a recipe's images and captions: statistics and suspicious examples."""
    source, tokenizer = CaptionSource(recipe.data), recipe.tokenizer
    corpus = source.load()
    captions = {name: list(part.texts()) for name, part in corpus.splits().items()}
    found = inspect_captions(corpus, source, tokenizer.normalization, recipe.data.seed)
    cut = report_tokens(captions, lambda: learned(captions["train"], tokenizer), recipe.batches.max_length)
    return str(replace(found, cut=cut))


def inspect_captions(
    corpus: Corpus[Captioned], source: CaptionSource, normalization: str, seed: int
) -> CorpusInspection:
    """Check images and captions; the seed draws a sample of training images."""
    train = corpus.train
    drawn = [(train.names[row], train.captions[row][0]) for row in look.sample_rows(len(train), seed)]
    spots = [f"  {look.escape_invisible(name)}: {look.escape_invisible(caption)}" for name, caption in drawn]
    splits = {
        name: _split(name, part, corpus.row_numbers(name, len(part)), source, normalization)
        for name, part in corpus.splits().items()
    }
    in_train = {
        "images": count_overlap(corpus, source.keys),
        "captions": count_overlap(corpus, lambda part: part.texts()),
    }
    return CorpusInspection(splits, in_train, spots, note=corpus.note)


def _split(name: str, part: Captioned, numbers: Sequence[int], source: CaptionSource, normalization: str) -> Split:
    counts = np.array([len(several) for several in part.captions])
    unspaced = is_unspaced(part.texts())
    words = np.array([len(split_words(caption, unspaced)) for caption in part.texts()])
    again = [numbers[row] for row in repeated_rows(hashes(source.keys(part)))]
    dull = [numbers[row - 1] for row in plain(part.pixels)]
    changed, suspicious = describe_changes(part.texts(), normalization), dict[str, list[int]]()
    for row, several in zip(numbers, part.captions, strict=True):
        look.note_suspicious(suspicious, row, *several)
    rows = {
        "images": len(part),
        "captions": int(counts.sum()),
        "  fewest of an image": int(counts.min()),
        "  most of an image": int(counts.max()),
        f"{unit_name(unspaced)} of the shortest caption": int(words.min()),
        "  of the middle one": int(np.median(words)),
        "  of the longest": int(words.max()),
        "repeated captions": len(repeated_rows(hashes(part.texts()))),
        "repeated images": len(again),
        "images of a single colour": len(dull),
    }
    which, altered = f"images of {name}", f"the tokenizer changes {changed} ({name})"
    earlier = "an earlier one after scaling: the same image, or data.size is too small"
    advice = [
        *some(again, which, after=(f" equals {earlier}", f" equal {earlier}")),
        *some(dull, which, after=DAMAGED),
        *([f"{altered}: such captions can never be generated exactly"] if changed else []),
        *(f"captions of {words}" for words in conversions(suspicious, which)),
    ]
    return Split(rows, advice)


def inspect_inputs(run: CaptionRun, focus: InspectionRequest) -> Inspection:
    """Inspect one image or two, with generated captions (`s2s inspect`)."""
    if focus.inputs:
        pixels, names = read_all([Path(name) for name in focus.inputs], run.recipe.data), list(focus.inputs)
    else:
        example = focus.example
        pixels, names = example.pixels, [f"{example.names[0]}: {example.captions[0][0]}"]
    pairs = [_pair(run, image[None], name) for image, name in zip(pixels, names, strict=True)]
    return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, *inspection_of(run.model, pairs, focus))


def _pair(run: CaptionRun, pixels: Pixels, name: str) -> Pair:
    recipe, (tokenizer,), encoder = run.recipe, run.tokenizers, run.model.encoder
    (caption,) = write(recipe, Generator(run.model, tokenizer, recipe.decoding), pixels)
    written = list(caption.candidates[0].hypothesis.tokens) if caption.candidates else []
    read, valid = (to_device(each, run.device_context.device) for each in as_read(pixels, positions_of(recipe)))
    across = recipe.data.size // recipe.stem.size
    words = patches(across)
    with torch.no_grad():
        nothing = encoder.embedding(even_grey(read, recipe.data.mean))
    source = Source(read, valid, [word.text for word in words], words, np.asarray(pixels[0]), across)
    return Pair(source, written, (name, caption.text), tokenizer.tokens([*written, EOS]), nothing)


def symptoms(
    run: CaptionRun, part: Captioned, rows: Int[np.ndarray, " images"], progress_bar: ProgressBar
) -> Diagnostics:
    """Caption images, and return scores, signs of problems and the worst captions."""
    recipe, (tokenizer,) = run.recipe, run.tokenizers
    writer = Generator(run.model, tokenizer, recipe.decoding)
    with progress_bar("captioning", len(part)) as advance:
        written = write(recipe, writer, part.pixels, advance)
    outputs = [each.text for each in written]
    unspaced = is_unspaced(part.texts())
    references = []
    for output, several in zip(outputs, part.captions, strict=True):
        # The reference that equals the output, else the one of the nearest length.
        words = len(split_words(output, unspaced))
        distances = {each: abs(len(split_words(each, unspaced)) - words) for each in several}
        references.append(min(several, key=lambda each, output=output, d=distances: (each != output, d[each])))
    cut, positions = unit_of(references), positions_of(recipe)
    places = [f"image {row + 1}" for row in rows]
    tokens = RaggedArray.from_rows(tokenizer.encode_batch(list(part.texts())))
    every = tokens.rows(np.arange(len(tokens.lengths)))
    tokenization = choose_tokenization(part.captions, recipe.validation.bleu_tokenizer)
    found = score(outputs, part.captions, tokenizer.writes_lowercase, METRICS, tokenization)
    return Diagnostics(
        summary=f"{len(part):,} images: CIDEr-D {found['cider']:.2f}, BLEU {found['bleu']:.2f}, exact "
        f"{found['exact']:.2f} %",
        signs=[
            repeated(outputs, references, cut),
            *lengths(outputs, references, cut, sum(each.at_length_limit for each in written), "decoding.max_length"),
            collapsed([image.tobytes().hex() for image in part.pixels], outputs, references),
            _image_ignored(run, part),
            *(facts_wrong(outputs, part) if recipe.data.corpus == BUILT_IN else ()),
            share_sign(
                "unknown pieces",
                int((np.concatenate(every) == UNK).sum()),
                sum(map(len, every)),
                "tokens of the references are unknown, so that they can never be generated",
                1,
                "each spoils a caption",
                "tokenizer.byte_fallback=true, tokenizer.kind=unigram, or captions with these words (data.train)",
            ),
            search_errors(
                run,
                writer.beam,
                written,
                tokenizer.encode_batch(references),
                lambda some: as_read(part.pixels[some], positions),
            ),
        ],
        worst=worst_texts(part.names, outputs, part.captions, places, tokenizer.writes_lowercase),
        chance_loss=entropy(np.concatenate([*every, np.full(len(every), EOS)])),
    )


def _image_ignored(run: CaptionRun, part: Captioned) -> Finding:
    """Return the sign for a model that ignores images: each image is exchanged once."""
    others = np.roll(np.arange(len(part)), -1)
    kept = [i for i, j in enumerate(others) if not np.array_equal(part.pixels[i], part.pixels[j])]
    if not kept:
        return source_ignored(None, "image")
    right = part.select(np.array(kept))
    wrong = replace(right, pixels=part.pixels[others[kept]])
    tokens, losses = RaggedArray.from_rows(run.tokenizers[0].encode_batch(list(right.texts()))), []
    for each in (right, wrong):
        examples = all_captions_in_order(run.recipe, each, tokens, run.model.decoder.max_positions)
        losses.append(mean_loss(run.model, examples, PLAIN_LOSS, run.device_context))
    return source_ignored(SourceUse(losses[0], losses[1], len(kept)), "image")


def facts_wrong(outputs: Sequence[str], part: Captioned) -> list[Finding]:
    """Return a sign for each kind of fact in captions of built-in scenes."""
    return [
        share_sign(
            f"wrong {kind}",
            right.count(False),
            len(right),
            f"facts of the kind {kind} are wrong or missing",
            _WRONG_FACTS,
            "more than a tenth is more than occasional errors",
            "train for longer (training.updates); a smaller stem.size or a larger data.size shows more of each shape, "
            "data.channels=3 shows colours",
        )
        for kind, right in facts_of(outputs, part).items()
    ]
