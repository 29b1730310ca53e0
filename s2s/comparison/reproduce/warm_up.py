"""Post-norm Transformers need a learning-rate warm-up, pre-norm ones do not (Xiong et al. 2020)."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import sub

from s2s.comparison.deep import DeepTraining, DeepTrainings
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, paired
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial


@dataclass(frozen=True)
class WarmUp(DeepTrainings, Reproduction[DeepTraining]):
    """Six encoder and six decoder layers, with and without warm-up."""

    name = "warm-up"
    finding = "A post-norm Transformer fails without warm-up and learns with it; a pre-norm one needs none."
    source = (
        "Xiong et al. 2020, figure 2 (IWSLT14 German–English, Adam at 0.001): post-norm BLEU 8.45 without warm-up and "
        "about 34 with it, pre-norm about 34 without. There, the rate decays with the inverse square root in all "
        "trainings; 500 updates of warm-up give 2.77 BLEU, where 200 are enough here"
    )
    method = (
        "A Transformer with six encoder and six decoder layers of width 64, English to German on the built-in corpus. "
        "600 updates of 512 tokens, a tenth of the publication's training, so the score is the validation loss in nats "
        "per token instead of BLEU. Adam (0.9, 0.98) with a constant rate of 0.001 after 0 or 200 updates of warm-up "
        "(a decay from the first update on would be a lower rate), gradient clipping at 100."
    )
    setting = "with a constant rate after the warm-up (published: inverse square root)"
    bands = (
        Band(
            key="cost",
            what="loss without warm-up minus loss with it, post-norm (nats)",
            published="BLEU 8.45 instead of about 34",
            low=0.7,
        ),
        Band(
            key="before",
            what="loss without warm-up minus loss with it, pre-norm (nats)",
            published="about 34 BLEU either way",
            high=0.3,
        ),
    )
    seconds = (350, 960)

    def numbers(self, measured: Mapping[Trial, DeepTraining]) -> Numbers:
        found = {}
        for key, norm in (("cost", "post"), ("before", "pre")):
            without, with_warmup = (
                by_seed(measured, lambda run: run.loss, "transformer", f"{norm}-warmup-{warmup}")
                for warmup in (0, self.warmup)
            )
            found[key] = paired(without, with_warmup, sub)
        return found

    def figures(self, measured: Mapping[Trial, DeepTraining]) -> list[Figure]:
        shown = [
            series(
                f"{trial.part.replace('-warmup-', '-norm, warm-up ')}, seed {trial.seed}",
                trial.part,
                run.updates,
                run.losses,
            )
            for trial, run in measured.items()
        ]
        for run in list(measured.values())[:1]:
            ends = [0.0, float(self.updates)]
            shown.append(series("unigram distribution", "", ends, [run.unigrams] * 2, reference=True))
        axes = (axis("updates"), axis("validation loss", "nats per token"))
        return [figure("losses", "Validation loss with and without warm-up, post-norm and pre-norm", axes, shown)]
