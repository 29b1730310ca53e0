"""How well the models of `quality` translate each sentence, and how long those are."""

from dataclasses import dataclass

import numpy as np

from s2s.experiments.bottleneck.conclude import conclude
from s2s.experiments.contest import Cell, Cells, Conclusion, Contest, Experiment, Measured, Scale, each_run
from s2s.experiments.disciplines import evaluation_of
from s2s.experiments.translating import counts_of, sentence_scores


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    buckets: int  # of sources, by length


SIZES: dict[Scale, Sizes] = {"quick": Sizes(buckets=4), "standard": Sizes(buckets=5)}


class Bottleneck(Experiment):
    """Scores by the length of the source."""

    name = "bottleneck"
    question = "Does quality fall with the length of the source?"
    reads = "quality"

    def cells(self, contest: Contest) -> list[Cell]:
        """Every run; nothing is trained again."""
        return each_run(contest, lambda recipe: 1)

    def measure(self, contest: Contest, cell: Cell) -> Measured:
        """What sacreBLEU counts in each sentence, and its length."""
        _, tested = evaluation_of(contest, cell.model, cell.seed)
        translations, references = tested["translations"], tested["references"]
        chrf = sentence_scores("chrf", np.array(counts_of("chrf", translations, references)))
        pairs = zip(translations, references, strict=True)
        return {
            "words": [len(source.split()) for source in tested["sources"]],
            "counts": counts_of("bleu", translations, references),
            "chrf": [round(float(score), 3) for score in chrf],
            "exact": [int(translation.strip() == reference.strip()) for translation, reference in pairs],
        }

    def conclusion(self, contest: Contest, measured: Cells) -> Conclusion:
        """What each model loses with length."""
        return conclude(contest, measured, contest.sizes(SIZES).buckets)


EXPERIMENT = Bottleneck()
