"""Reversed sources help a translator without attention (Sutskever et al. 2014)."""

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
class ReverseSource(Translators, Reproduction[Quality]):
    """The same translator, trained to read its source forward or reversed."""

    name = "reverse-source"
    finding = "An LSTM without attention translates better when it reads its source in reverse."
    source = (
        "Sutskever, Vinyals & Le 2014, section 3.3: the perplexity falls from 5.8 to 4.7, and BLEU rises from 25.9 to "
        "30.6"
    )
    method = (
        "Unidirectional LSTMs of one layer and width 256, English to German on the built-in corpus with a fifth of its "
        "words; 20,000 sentences, 6,000 updates of 1,024 tokens at a rate of 0.002. Perplexity on 300 sentences, "
        "greedy BLEU of 300. Width and rate are the best of four combinations, compared on forward sources with half "
        "of the updates."
    )
    bands = (
        Band(
            key="perplexity",
            what="perplexity reversed / perplexity forward",
            published="0.81 (4.7/5.8)",
            high=0.95,
            valid_if=("learned",),
        ),
        Band(key="bleu", what="BLEU reversed minus BLEU forward", published="+4.7", low=1.0, valid_if=("learned",)),
        Band(key="learned", what="BLEU reversed", published="30.6", low=20.0, validity=True),
    )
    seconds = (2_400, 5_300)

    updates: int = 6_000
    tested: int = 300
    orders: ClassVar[tuple[str, str]] = ("forward", "reversed")

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial("lstm", order, seed) for seed in seeds for order in self.orders]

    def measure(self, trial: Trial) -> Quality:
        """Train a translator and measure its perplexity and BLEU."""
        return self.quality(trial)

    def options(self, trial: Trial) -> dict[str, object]:
        return super().options(trial) | {"bidirectional": False, "reverse_source": trial.part == "reversed"}

    def numbers(self, measured: Mapping[Trial, Quality]) -> Numbers:
        forward, reverse = (by_seed(measured, lambda m: m.perplexity, "lstm", order) for order in self.orders)
        plain, better = (by_seed(measured, lambda m: m.bleu, "lstm", order) for order in self.orders)
        return {
            "perplexity": paired(reverse, forward, truediv),
            "bleu": paired(better, plain, sub),
            "learned": better,
        }

    def figures(self, measured: Mapping[Trial, Quality]) -> list[Figure]:
        return [perplexity_figure(measured, "reading order", self.orders)]
