"""Normalisation after the sum needs a warm-up, normalisation before the block does not (Xiong et al. 2020)."""

from dataclasses import dataclass

from s2s.comparison.deep import DeepTrainings
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, pairs
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trials


@dataclass(frozen=True)
class WarmUp(DeepTrainings, Reproduction):
    """Six and six layers, with the rate at once or after a warm-up."""

    name = "warm-up"
    finding = "A Transformer with normalisation after the sum fails without a warm-up, and learns with one."
    source = (
        "Xiong et al. 2020, figure 2 (IWSLT14 German–English, Adam at 0.001): after the sum BLEU 8.45 without warm-up, "
        "about 34 with; before the block about 34 without (that a warm-up is needed after the sum and not before is in "
        "the abstract; the numbers are not verified)"
    )
    bands = (
        Band(
            key="cost",
            what="by how much the loss is higher without warm-up, normalised after the sum (nats)",
            published="BLEU 8.45 instead of about 34",
            low=0.7,
        ),
        Band(
            key="before",
            what="the same, normalised before each block (nats)",
            published="about 34 either way",
            high=0.3,
        ),
    )
    seconds = (350, 960)

    def numbers(self, measured: Trials) -> Numbers:
        """Cost of training without warm-up."""
        found = {}
        for key, norm in (("cost", "post"), ("before", "pre")):
            parts = [("transformer", f"{norm}-warmup-{warmup}") for warmup in (0, self.warmup)]
            found[key] = [without - with_it for without, with_it in pairs(measured, "loss", *parts)]
        return found

    def figures(self, measured: Trials) -> list[Figure]:
        """Learning curves."""
        shown = [
            series(f"{trial.part.replace('-', ' ')}, seed {trial.seed}", trial.part, run["updates"], run["losses"])
            for trial, run in measured.items()
        ]
        for run in list(measured.values())[:1]:
            ends = [0.0, float(self.updates)]
            shown.append(series("frequencies of pieces alone", "", ends, [run["unigrams"]] * 2, reference=True))
        axes = (axis("updates"), axis("validation loss", "nats per token"))
        return [figure("losses", "Learning with and without warm-up, normalised after the sum and before", axes, shown)]
