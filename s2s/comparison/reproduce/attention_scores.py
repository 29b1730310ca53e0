"""Content-based and location-based attention (Luong et al. 2015)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import sub, truediv
from typing import ClassVar

from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, paired
from s2s.comparison.reproduce.translators import Quality, Translators, perplexity_figure
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial


@dataclass(frozen=True)
class AttentionScores(Translators, Reproduction[Quality]):
    """The same translator with three attention scores."""

    name = "attention-scores"
    finding = "Content-based attention has a lower perplexity than location-based attention."
    source = (
        "Luong, Pham & Manning 2015, table 4, global attention: perplexity and BLEU (before replacing unknown words) "
        "6.4 and 18.1 with location, 6.1 and 18.6 with dot, 6.1 and 17.3 with general"
    )
    method = (
        "Unidirectional LSTMs with attention, one layer of width 128 on each side, that read the source in reverse and "
        "use input feeding, as published; English to German on the built-in corpus with a fifth of "
        "its words; 20,000 sentences, 3,000 updates of 1,024 tokens at a rate of 0.002 (publication: four layers of "
        "1,000, WMT'14, 50,000 words). Perplexity on 300 sentences, greedy BLEU of 300."
    )
    bands = (
        Band(
            key="dot",
            what="perplexity of location / perplexity of dot",
            published="1.05 (6.4/6.1)",
            low=1.02,
            valid_if=("learned",),
        ),
        Band(
            key="general",
            what="perplexity of location / perplexity of general",
            published="1.05 (6.4/6.1)",
            low=1.02,
            valid_if=("learned",),
        ),
        Band(key="bleu", what="BLEU of dot minus BLEU of location", published="+0.5", low=0.2, valid_if=("learned",)),
        Band(key="learned", what="BLEU of dot", published="18.6", low=15.0, validity=True),
    )
    seconds = (1_000, 3_000)

    width: int = 128
    updates: int = 3_000
    tested: int = 300
    scores: ClassVar[tuple[str, str, str]] = ("dot", "general", "location")

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial("lstm-attention", score, seed) for seed in seeds for score in self.scores]

    def measure(self, trial: Trial) -> Quality:
        """Train a translator and measure its perplexity and BLEU."""
        return self.quality(trial)

    def options(self, trial: Trial) -> dict[str, object]:
        layout = {"bidirectional": False, "reverse_source": True, "input_feeding": True}
        return super().options(trial) | layout | {"attention": trial.part}

    def numbers(self, measured: Mapping[Trial, Quality]) -> Numbers:
        dot, general, location = (
            by_seed(measured, lambda m: m.perplexity, "lstm-attention", score) for score in self.scores
        )
        better, _, worse = (by_seed(measured, lambda m: m.bleu, "lstm-attention", score) for score in self.scores)
        return {
            "dot": paired(location, dot, truediv),
            "general": paired(location, general, truediv),
            "bleu": paired(better, worse, sub),
            "learned": better,
        }

    def figures(self, measured: Mapping[Trial, Quality]) -> list[Figure]:
        return [perplexity_figure(measured, "attention score", self.scores)]
