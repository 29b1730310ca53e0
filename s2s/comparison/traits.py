"""Parts of models that claims are about, and their description in words."""

from dataclasses import dataclass
from typing import Literal

# The values of `s2s.models.base.Recurrence`, a module that needs torch; reports must not.
Recurrence = Literal["none", "steps", "scan"]


@dataclass(frozen=True)
class Traits:
    """Parts of a model that claims are about.

    Attributes:
        recurrence: Computation of the encoder's states, see `s2s.models.base.Recurrence`.
        self_attention: True if encoder states attend to each other.
        cross_attention: True if the decoder attends to the encoder's states, instead of reading one vector.
        convolution: True if the encoder has convolutions.
        decoder_recurrence: Computation of the decoder's states.
    """

    recurrence: Recurrence
    self_attention: bool
    cross_attention: bool
    convolution: bool = False
    decoder_recurrence: Recurrence = "none"

    @property
    def is_transformer(self) -> bool:
        """True if self-attention takes the place of recurrence."""
        return self.self_attention and self.recurrence == self.decoder_recurrence == "none"

    @property
    def is_sequential(self) -> bool:
        """True if encoder or decoder computes step by step in training."""
        return "steps" in (self.recurrence, self.decoder_recurrence)

    @property
    def in_words(self) -> str:
        """Short description, such as `recurrent + attention`.

        Example:
            >>> Traits("scan", self_attention=False, cross_attention=False, decoder_recurrence="scan").in_words
            'scan'
        """
        words = {"none": "", "steps": "recurrent", "scan": "scan"}
        encoder, decoder = words[self.recurrence], words[self.decoder_recurrence]
        alike = encoder == decoder
        found = [
            encoder if alike or not encoder else f"{encoder} encoder",
            "convolution" * self.convolution,
            f"self-attention{'' if self.cross_attention else ' encoder'}" * self.self_attention,
            "attention" * (self.cross_attention and not self.self_attention),
            "" if alike or not decoder else f"{decoder} decoder",
        ]
        return " + ".join(filter(None, found)) or "no recurrence or attention"

    @classmethod
    def parse(cls, words: str) -> "Traits":
        """Return the traits that have this description; the inverse of `in_words`.

        Example:
            >>> Traits.parse("recurrent + attention").cross_attention
            True
        """
        parts = {*words.split(" + ")}
        return cls(
            _recurrence(parts, "encoder"),
            not parts.isdisjoint({"self-attention", "self-attention encoder"}),
            not parts.isdisjoint({"self-attention", "attention"}),
            "convolution" in parts,
            _recurrence(parts, "decoder"),
        )


def _recurrence(parts: set[str], side: str) -> Recurrence:
    if not parts.isdisjoint({"recurrent", f"recurrent {side}"}):
        return "steps"
    return "none" if parts.isdisjoint({"scan", f"scan {side}"}) else "scan"
