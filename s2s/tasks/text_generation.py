"""Tasks that generate text: their evaluation, and log-probabilities for the self-tests of `s2s diagnose`."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from jaxtyping import Float
from torch import Tensor

from s2s.data.batches import ParallelBatch
from s2s.decoding.generate import LengthLimited
from s2s.errors import UserError
from s2s.evaluation.metrics import Score, score_lines
from s2s.evaluation.tokenization import Tokenization, choose_tokenization, describe_tokenizer
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import BleuTokenizer
from s2s.tasks.base import Evaluation, check_comparable, check_tokenizers

if TYPE_CHECKING:
    from s2s.evaluation.significance import Comparison, GroupComparison

_SAMPLES = 3


class TextGeneration:
    """Methods of all tasks that generate one target text for each source."""

    perplexity: ClassVar[bool] = True

    def log_probs(self, model: Seq2Seq, batch: ParallelBatch) -> Float[Tensor, "pieces vocabulary"]:
        """Return the log-probabilities (target tokens without padding, vocabulary), by teacher forcing."""
        logits = model.logits(batch.source, batch.source_valid, batch.target_in)
        return logits.log_softmax(-1)[batch.target_valid]

    def incremental_log_probs(self, model: Seq2Seq, batch: ParallelBatch) -> Float[Tensor, "pieces vocabulary"]:
        """Return the log-probabilities of `log_probs`, with one token fed per step."""
        from s2s.tasks.source_use import decode_stepwise

        return model.projection(decode_stepwise(model, batch)).log_softmax(-1)[batch.target_valid]


def describe_search(beam: int, sampling_seed: int | None) -> str:
    """Return how texts were generated, for a headline.

    Args:
        beam: Beam size of a beam search.
        sampling_seed: Seed of the sampling; None for a beam search.

    Example:
        >>> describe_search(5, None), describe_search(5, 1)
        ('beam 5', 'sampled with seed 1')
    """
    return f"beam {beam}" if sampling_seed is None else f"sampled with seed {sampling_seed}"


@dataclass(frozen=True, repr=False)
class GenerationEvaluation(Evaluation):
    """Scores of generated texts against their references.

    Attributes:
        length_penalty: Length penalty of the beam search.
        lowercase: True if scored without regard to case.
        own_case: True if `lowercase` is the default of the run. A model that writes only lower case is scored without
            regard to case, because it cannot match cased references.
        scores: Scores by name of the metric.
        references: One reference for each text, or a list of references.
        tokenizer: sacreBLEU tokenizer for BLEU and TER.
        length_limited: Number of texts that the length limit ended; None if there are none.
        sampling_seed: Seed of the sampling; None for a beam search.
    """

    beam: int
    length_penalty: float
    lowercase: bool
    own_case: bool
    scores: dict[str, Score]
    references: list[str] | list[list[str]]
    tokenizer: BleuTokenizer = field(default="13a", kw_only=True)
    length_limited: LengthLimited | None = field(default=None, kw_only=True)
    sampling_seed: int | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def inputs(self) -> list[str]:
        """Sources, or names of the images."""

    @property
    @abstractmethod
    def outputs(self) -> list[str]:
        """Generated texts."""

    def notes(self) -> list[str]:
        return [*super().notes(), *([f"  {self.length_limited}"] if self.length_limited else [])]

    def headline_metrics(self) -> dict[str, float]:
        return {name: score.value for name, score in self.scores.items()}

    def score_table(self, inputs: str) -> list[str]:
        """Return the headline and the scores as lines.

        Args:
            inputs: Number and kind of the inputs, such as `20 sentences`.
        """
        case = "lower-cased" if self.lowercase else "cased"
        search = describe_search(self.beam, self.sampling_seed)
        head = f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {inputs}, {search}, {case}"
        note = describe_tokenizer(self.tokenizer, self.references)
        return [head, *([f"  {note}"] if note else []), *score_lines(self.scores)]

    def samples(self) -> list[tuple[str, str]]:
        """Return some different inputs with their outputs, spread over the split."""
        pairs = list(dict(zip(self.inputs, self.outputs, strict=True)).items())
        return pairs[:: max(1, len(pairs) // _SAMPLES)][:_SAMPLES]

    @property
    def file(self) -> str:
        """File name in the run's folder; has a suffix if case was ignored by request."""
        return f"evaluation-{self.split}{'' if self.own_case else '-lowercase'}.json"

    @classmethod
    def compare(cls, evaluations: Sequence[Self]) -> "list[Comparison]":
        """Compare generated texts by paired approximate randomization.

        Args:
            evaluations: Evaluations of the same inputs and references; the first is the baseline.

        Returns:
            One comparison for each evaluation and metric; the first has no p-value.

        Raises:
            UserError: The evaluations differ in inputs, references, case or tokenizer.
        """
        from s2s.evaluation.significance import compare

        first, tokenization = evaluations[0], cls._check_comparable(evaluations)
        texts = {each.run: each.outputs for each in evaluations}
        return compare(texts, first.references, first.lowercase, [*first.scores], tokenization, first.inputs)

    @classmethod
    def compare_groups(cls, groups: Mapping[str, Sequence[Self]]) -> "list[GroupComparison]":
        """Compare groups of seeds by a hierarchical bootstrap over seeds and inputs; see `compare`."""
        from s2s.evaluation.significance import compare_text_groups

        evaluations = [each for runs in groups.values() for each in runs]
        first, tokenization = evaluations[0], cls._check_comparable(evaluations)
        texts = {name: [each.outputs for each in runs] for name, runs in groups.items()}
        return compare_text_groups(
            texts, first.references, first.lowercase, [*first.scores], tokenization, first.inputs
        )

    @classmethod
    def _check_comparable(cls, evaluations: Sequence[Self]) -> Tokenization:
        first = evaluations[0]
        check_comparable(evaluations, lambda each: (each.inputs, each.references))
        if len({each.lowercase for each in evaluations}) > 1:
            what = "some runs generate only lower case and are scored without regard to case, others are not"
            raise UserError(what, remedy="score all runs without regard to case: --lowercase")
        check_tokenizers([each.tokenizer for each in evaluations])
        return choose_tokenization(first.references, first.tokenizer)
