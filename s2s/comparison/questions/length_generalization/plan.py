"""A task for a decoder-only Transformer with one positional encoding."""

from dataclasses import dataclass

from s2s.comparison.matching import non_width_settings, settings_of
from s2s.comparison.questions.length_generalization.decoder_only import decoder_only
from s2s.comparison.spec import Candidate
from s2s.comparison.task_question import OPTIONS, TaskPlan
from s2s.models.base import Seq2Seq
from s2s.models.transformer import Positions
from s2s.recipe.installed import build_language_model, language_settings

# as in the reproduction `positions-length`, which has more layers
_SHAPE: dict[str, object] = {"decoder_layers": 2, "heads": 4, "max_positions": 256, "tie": True}


@dataclass(frozen=True, kw_only=True)
class PositionsPlan(TaskPlan):
    """A task with one positional encoding.

    Attributes:
        positions: Positional encoding of the model.
    """

    positions: Positions

    def part(self, width: int) -> str:
        return f"{self.task.name}-{self.positions}-{width}"

    def build(self, candidate: Candidate, width: int) -> Seq2Seq:
        """Build a newly initialized decoder-only model with the settings of a candidate."""
        shape: dict[str, object] = {"width": width, "feedforward": 2 * width, "decoder_positions": self.positions}
        options = non_width_settings(candidate.settings) | OPTIONS | _SHAPE | shape
        settings = settings_of(candidate.kind, options, language_settings)
        return decoder_only(build_language_model(settings, self.task.vocabulary_size))
