"""How well the models of `quality` translate each sentence, and how long those are."""

import numpy as np

from s2s.experiments.bottleneck.conclude import conclude
from s2s.experiments.contest import Cell, Contest, Experiment, Measured, each_run
from s2s.experiments.disciplines import evaluation_of
from s2s.experiments.translating import counts_of, sentence_scores


def measure(contest: Contest, cell: Cell) -> Measured:
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


EXPERIMENT = Experiment(
    "bottleneck",
    "Does quality fall with the length of the source?",
    each_run,
    measure,
    conclude,
    reads="quality",
)
