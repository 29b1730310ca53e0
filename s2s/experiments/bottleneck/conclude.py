"""What length costs translators."""

from dataclasses import replace

import numpy as np

from s2s.evaluation.inference import Draws
from s2s.experiments.contest import BySeed, Cells, Conclusion, Contest, Scale, by_model
from s2s.experiments.lengths import Fall, Score, conclusion, fall, length_axis
from s2s.experiments.presenting import Column, Interval, axis, figure, series
from s2s.experiments.translating import resampled_scores

# of sources, by length, at most
BUCKETS: dict[Scale, int] = {"quick": 4, "definitive": 5}
_BLEU = Score(
    row="fixed-size bottleneck",
    key="bleu",
    read="source",
    texts="sentences",
    name="BLEU",
    unit="BLEU",
    slope="chrF2++",
    difference="BLEU of the longest sources minus that of the shortest",
    # below five BLEU there is nothing to fall from
    weak=5,
    helpless="what cannot translate cannot get worse",
)


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """What each model loses with length, and how much more than another."""
    runs = by_model(contest, measured)
    if not runs:
        return Conclusion()
    falls = {model: _fall(own, contest.sizes(BUCKETS)) for model, own in runs.items()}
    # share of each bucket's translations that are the reference, in percent
    exact = {
        model: [
            100 * float(np.mean([run["exact"] for run in runs[model].values()], axis=0)[part].mean())
            for part in own.rows
        ]
        for model, own in falls.items()
    }
    columns = [
        Interval("BLEU", "score", 2),
        Column("exact (%)", lambda bucket: exact[bucket["model"]][bucket["place"]], 1),
    ]
    concluded = conclusion(falls, _BLEU, "Scores by the length of the source", columns)
    shown = figure(
        "exact",
        "Translations that are the reference, against the length of the source",
        (length_axis(_BLEU), axis("exact translations", "%")),
        [series(model, model, own.lengths, exact[model]) for model, own in falls.items()],
    )
    return replace(concluded, figures=[*concluded.figures, shown])


def _fall(runs: BySeed, count: int) -> Fall:
    own = list(runs.values())

    def bleu(part: np.ndarray, drawn: Draws) -> np.ndarray:
        """Mean over the runs."""
        return np.mean([resampled_scores("bleu", np.array(run["counts"])[part], drawn) for run in own], axis=0)

    return fall(runs, count, bleu, np.mean([run["chrf"] for run in own], axis=0))
