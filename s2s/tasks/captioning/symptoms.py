"""Signs of problems in generated captions, in the use of images and in the search."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from s2s.data.scripts import is_unspaced, split_words
from s2s.data.tokenized import RaggedArray
from s2s.data.tokenizers import EOS, UNK
from s2s.decoding.generate import Generator
from s2s.evaluation.metrics import score
from s2s.evaluation.signs import Diagnostics, Finding, entropy, lengths, repeated, share_sign, unit_of
from s2s.evaluation.tokenization import choose_tokenization
from s2s.models.base import Seq2Seq
from s2s.tasks.base import LoadedModel
from s2s.tasks.captioning.data import BUILT_IN, Captioned, all_captions_in_order, as_read, positions_of
from s2s.tasks.captioning.evaluation import METRICS, facts_of
from s2s.tasks.captioning.generation import write
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.seq2seq import sequence_loss
from s2s.tasks.source_use import SourceUse
from s2s.tasks.symptoms import cut_off, search_errors, source_ignored, worst_texts
from s2s.tasks.text_generation import collapsed
from s2s.training.progress import ProgressBar
from s2s.training.trainer import mean_loss

# More than a tenth of wrong facts of a kind is a sign of a problem.
_WRONG_FACTS = 10.0


def symptoms(
    run: LoadedModel[CaptionRecipe, Seq2Seq],
    part: Captioned,
    rows: Int[np.ndarray, " images"],
    progress_bar: ProgressBar,
) -> Diagnostics:
    """Caption images, and return signs of problems.

    Args:
        run: Trained model.
        part: Images with references.
        rows: Row of each image in its split, from 0.
        progress_bar: Makes a progress bar.

    Returns:
        Scores, signs and the worst captions.
    """
    recipe, (tokenizer,) = run.recipe, run.tokenizers
    writer = Generator(run.model, tokenizer, recipe.decoding)
    with progress_bar("captioning", len(part)) as advance:
        written = write(recipe, writer, part.pixels, advance)
    outputs = [each.text for each in written]
    unspaced = is_unspaced(part.texts())
    references = [_nearest(output, several, unspaced) for output, several in zip(outputs, part.captions, strict=True)]
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
            *lengths(outputs, references, cut, cut_off(written), "decoding.max_length"),
            collapsed([image.tobytes().hex() for image in part.pixels], outputs, references),
            _image_ignored(run, part),
            *(facts_wrong(outputs, part) if recipe.data.corpus == BUILT_IN else ()),
            _unknown(np.concatenate(every)),
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


def _nearest(output: str, several: Sequence[str], unspaced: bool) -> str:
    """Return a reference that equals the output, else the one of the nearest length."""
    words = len(split_words(output, unspaced))
    return min(several, key=lambda each: (each != output, abs(len(split_words(each, unspaced)) - words)))


def _image_ignored(run: LoadedModel[CaptionRecipe, Seq2Seq], part: Captioned) -> Finding:
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
        losses.append(mean_loss(run.model, examples, sequence_loss(0.0), run.device_context))
    return source_ignored(SourceUse(losses[0], losses[1], len(kept)), "image")


def facts_wrong(outputs: Sequence[str], part: Captioned) -> list[Finding]:
    """Return the signs for wrong facts in captions of built-in scenes.

    Args:
        outputs: Generated caption of each image.
        part: Images of the built-in corpus.

    Returns:
        One finding for each kind of fact.
    """
    return [
        share_sign(
            f"wrong {kind}",
            right.count(False),
            len(right),
            f"facts of the kind {kind} are told wrongly or not at all",
            _WRONG_FACTS,
            "a tenth is more than slips",
            "train for longer (training.updates); a smaller stem.size or a larger data.size shows more of each shape, "
            "data.channels=3 shows colours",
        )
        for kind, right in facts_of(outputs, part).items()
    ]


def _unknown(tokens: np.ndarray) -> Finding:
    return share_sign(
        "unknown pieces",
        int((tokens == UNK).sum()),
        len(tokens),
        "pieces of the references are unknown, so that they can never be written",
        1,
        "each spoils a caption",
        "tokenizer.byte_fallback=true, tokenizer.kind=unigram, or training captions with these words (data.train)",
    )
