"""Scores of captions: text metrics with several references, and facts of scenes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from s2s.decoding.generate import Generator, length_limited
from s2s.errors import counted
from s2s.evaluation.inference import Share, wilson
from s2s.evaluation.metrics import scores
from s2s.evaluation.tokenization import choose_tokenization
from s2s.models.base import Seq2Seq
from s2s.tasks.base import EvaluationOptions, LoadedModel
from s2s.tasks.captioning.data import BUILT_IN, Captioned
from s2s.tasks.captioning.figures import looks_picture
from s2s.tasks.captioning.generation import Look, length_settings, looks, write
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.captioning.scenes import Facts, described, facts
from s2s.tasks.text_generation import GenerationEvaluation
from s2s.training.progress import ProgressBar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = ("bleu", "chrf", "cider", "exact")
_SAMPLES = 3


@dataclass(frozen=True, repr=False)
class CaptionEvaluation(GenerationEvaluation):
    """Scores and captions of a run on a split; a caption is exact if it equals one of its image's references.

    Attributes:
        facts: Share of correct facts by kind, for the built-in corpus; None for other data.
        captions: Generated caption of each image.
        looks: Attention maps of some captions; empty if the model has no attention.
    """

    facts: dict[str, Share] | None
    names: list[str]
    captions: list[str]
    looks: list[Look]

    @property
    def inputs(self) -> list[str]:
        return self.names

    @property
    def outputs(self) -> list[str]:
        return self.captions

    def __str__(self) -> str:
        several = sum(map(len, self.references)) / max(1, len(self.references))
        lines = self.score_table(f"{counted(len(self.names), 'image')}, {several:.1f} references each")
        if self.facts:
            shares = " · ".join(f"{name} {share.value:.2f} %" for name, share in self.facts.items())
            lines.append(f"  correct facts: {shares}")
        return "\n".join([*lines, *self.notes()])

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        if self.looks:
            yield "attention", looks_picture(self.looks, "attention of each word to the image")


def evaluate_images(
    run: LoadedModel[CaptionRecipe, Seq2Seq], part: Captioned, scoring: EvaluationOptions, progress_bar: ProgressBar
) -> CaptionEvaluation:
    """Caption images and score the captions."""
    recipe, (tokenizer,) = run.recipe, run.tokenizers
    writer = Generator(run.model, tokenizer, recipe.decoding)
    with progress_bar("captioning", len(part)) as advance:
        written = write(recipe, writer, part.pixels, advance)
    captions = [each.text for each in written]
    lowercase = scoring.lowercase or tokenizer.writes_lowercase
    tokenization = choose_tokenization(part.captions, scoring.tokenizer or recipe.validation.bleu_tokenizer)
    some = np.arange(0, len(part), max(1, len(part) // _SAMPLES))[:_SAMPLES]
    shown = part.select(some)
    return CaptionEvaluation(
        run=str(run.path),
        checkpoint=run.checkpoint.name,
        split=scoring.name,
        beam=recipe.decoding.beam,
        length_penalty=recipe.decoding.length_penalty,
        lowercase=lowercase,
        own_case=lowercase == tokenizer.writes_lowercase,
        scores=scores(captions, part.captions, lowercase, METRICS, tokenization),
        facts=measure_stated_facts(captions, part) if recipe.data.corpus == BUILT_IN else None,
        names=list(part.names),
        references=[list(several) for several in part.captions],
        captions=captions,
        looks=looks(recipe, run.model, tokenizer, shown.pixels, [written[i] for i in some], shown.names),
        tokenizer=tokenization.tokenizer,
        length_limited=length_limited(written, length_settings(run.model)),
        sampling_seed=recipe.decoding.sampling_seed,
    )


def measure_stated_facts(captions: Sequence[str], part: Captioned) -> dict[str, Share]:
    """Return the share of correct facts in captions of built-in scenes, in percent, by kind of fact."""
    return {kind: wilson(sum(right), len(right)) for kind, right in facts_of(captions, part).items()}


def facts_of(captions: Sequence[str], part: Captioned) -> dict[str, list[bool]]:
    """Check each fact in captions of built-in scenes: True for each correct fact, by kind of fact."""
    checked = [
        facts(scene, caption)
        for caption, (reference, *_) in zip(captions, part.captions, strict=True)
        if (scene := described(reference))
    ]
    return {field.name: [fact for each in checked for fact in getattr(each, field.name)] for field in fields(Facts)}
