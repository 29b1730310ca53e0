"""Scores of captions: text metrics with several references, and facts of scenes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Self

import numpy as np

from s2s.decoding.generate import Generator, LengthLimited, length_limited
from s2s.evaluation.inference import Share, wilson
from s2s.evaluation.metrics import Score, score_lines, scores
from s2s.evaluation.significance import Comparison, compare
from s2s.evaluation.tokenization import choose_tokenization, describe_tokenizer
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import BleuTokenizer
from s2s.tasks.base import Evaluation, EvaluationOptions, LoadedModel, check_case, check_comparable, check_tokenizers
from s2s.tasks.captioning.data import BUILT_IN, Captioned
from s2s.tasks.captioning.figures import looks_picture
from s2s.tasks.captioning.generation import Look, length_settings, looks, write
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.captioning.scenes import Facts, described, facts
from s2s.training.progress import ProgressBar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = ("bleu", "chrf", "cider", "exact")
_SAMPLES = 3


@dataclass(frozen=True)
class CaptionEvaluation(Evaluation):
    """Scores and captions of a run on a split.

    Attributes:
        length_penalty: Length penalty of the beam search.
        lowercase: True if scored without regard to case.
        own_case: True if `lowercase` is the default of the run; a model that writes only lower case is scored without
            regard to case.
        scores: Scores by name of the metric; a caption is exact if it equals one of its image's references.
        facts: Share of correct facts by kind, for the built-in corpus; None for other data.
        captions: Generated caption of each image.
        looks: Attention maps of some captions; empty if the model has no attention.
        length_limited: Number of captions that the length limit ended; None if there are none.
    """

    beam: int
    length_penalty: float
    lowercase: bool
    own_case: bool
    scores: dict[str, Score]
    facts: dict[str, Share] | None
    names: list[str]
    references: list[list[str]]
    captions: list[str]
    looks: list[Look]
    tokenizer: BleuTokenizer = field(default="13a", kw_only=True)
    length_limited: LengthLimited | None = field(default=None, kw_only=True)

    def notes(self) -> list[str]:
        return [*super().notes(), *([f"  {self.length_limited}"] if self.length_limited else [])]

    def __str__(self) -> str:
        case = "lower-cased" if self.lowercase else "cased"
        several = sum(map(len, self.references)) / max(1, len(self.references))
        lines = [
            f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {len(self.names):,} images, "
            f"{several:.1f} references each, beam {self.beam}, {case}",
        ]
        if note := describe_tokenizer(self.tokenizer, self.references):
            lines.append(f"  {note}")
        lines += score_lines(self.scores)
        if self.facts:
            shares = " · ".join(f"{name} {share.value:.2f} %" for name, share in self.facts.items())
            lines.append(f"  facts told rightly: {shares}")
        return "\n".join([*lines, *self.notes()])

    def headline_metrics(self) -> dict[str, float]:
        return {name: s.value for name, s in self.scores.items()}

    def samples(self) -> list[tuple[str, str]]:
        """Return the names of some images with their captions, spread over the split."""
        pairs = list(zip(self.names, self.captions, strict=True))
        return pairs[:: max(1, len(pairs) // _SAMPLES)][:_SAMPLES]

    @property
    def file(self) -> str:
        """File name in the run's folder; has a suffix if case was ignored by request."""
        return f"evaluation-{self.split}{'' if self.own_case else '-lowercase'}.json"

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        if self.looks:
            yield "attention", looks_picture(self.looks, "where the model looks for each word")

    @classmethod
    def compare(cls, evaluations: Sequence[Self]) -> list[Comparison]:
        """Compare captions by paired approximate randomization.

        Args:
            evaluations: Evaluations of the same images and references; the first is the baseline.

        Returns:
            One comparison for each evaluation and metric; the first has no p-value.

        Raises:
            UserError: The evaluations differ in images, references, case or tokenizer.
        """
        first = evaluations[0]
        check_comparable(evaluations, lambda each: (each.names, each.references))
        check_case([each.lowercase for each in evaluations])
        check_tokenizers([each.tokenizer for each in evaluations])
        tokenization = choose_tokenization(first.references, first.tokenizer)
        captions = {each.run: each.captions for each in evaluations}
        return compare(captions, first.references, first.lowercase, METRICS, tokenization)


def evaluate_images(
    run: LoadedModel[CaptionRecipe, Seq2Seq], part: Captioned, scoring: EvaluationOptions, progress_bar: ProgressBar
) -> CaptionEvaluation:
    """Caption images and score the captions.

    Args:
        progress_bar: Makes a progress bar.

    Returns:
        Scores, with the captions.
    """
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
    )


def measure_stated_facts(captions: Sequence[str], part: Captioned) -> dict[str, Share]:
    """Return the share of correct facts in captions of built-in scenes.

    Args:
        captions: Generated caption of each image.
        part: Images of the built-in corpus.

    Returns:
        Share in percent with a confidence interval, by kind of fact.
    """
    return {kind: wilson(sum(right), len(right)) for kind, right in facts_of(captions, part).items()}


def facts_of(captions: Sequence[str], part: Captioned) -> dict[str, list[bool]]:
    """Check each fact in captions of built-in scenes.

    Args:
        captions: Generated caption of each image.
        part: Images of the built-in corpus.

    Returns:
        True for each correct fact, by kind of fact.
    """
    told = [
        facts(scene, caption)
        for caption, (reference, *_) in zip(captions, part.captions, strict=True)
        if (scene := described(reference))
    ]
    return {field.name: [fact for each in told for fact in getattr(each, field.name)] for field in fields(Facts)}
