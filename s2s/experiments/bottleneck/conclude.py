"""What length costs translators."""

import numpy as np

from s2s.evaluation.inference import Draws
from s2s.experiments.contest import BySeed, Cells, Conclusion, Contest, by_model
from s2s.experiments.lengths import Fall, Score, buckets_table, cell, differences_table, fall, lines_of
from s2s.experiments.presenting import Column, Interval, axis, figure, series
from s2s.experiments.translating import resampled_scores

# below five BLEU there is nothing to fall from
_BLEU = Score(
    "BLEU",
    "BLEU",
    "chrF2++",
    "BLEU of the longest sources minus that of the shortest",
    5,
    "what cannot translate cannot get worse",
)


def conclude(contest: Contest, measured: Cells, count: int) -> Conclusion:
    """What each model loses with length, and how much more than another, in so many buckets at most."""
    runs = by_model(contest, measured)
    if not runs:
        return Conclusion()
    falls = {model: _fall(own, count) for model, own in runs.items()}
    exact = {model: _exact(runs[model], own) for model, own in falls.items()}
    length, bleu = axis("words of the source, mean of its bucket"), lines_of(falls)
    figures = [
        figure(
            "bleu",
            "BLEU against the length of the source",
            (length, axis("BLEU", "%")),
            bleu,
            "Buckets have equally many sentences. Intervals (95 %): sentences drawn with replacement.",
        ),
        figure(
            "exact",
            "Translations that are the reference, against the length of the source",
            (length, axis("exact translations", "%")),
            [series(each.label, each.model, each.x, exact[each.model]) for each in bleu],
        ),
    ]
    columns = [
        Interval("BLEU", "score", 2),
        Column("exact (%)", lambda bucket: exact[bucket["model"]][bucket["place"]], 1),
    ]
    title = "Scores by the length of the source"
    return Conclusion(
        [cell("fixed-size bottleneck", model, falls, _BLEU, "bleu") for model in falls],
        figures,
        [buckets_table(title, "sentences", columns, falls), differences_table(falls, _BLEU)],
    )


def _fall(runs: BySeed, count: int) -> Fall:
    own = list(runs.values())

    def bleu(part: np.ndarray, drawn: Draws) -> np.ndarray:
        """Mean over the runs."""
        counts = [np.array(run["counts"])[part] for run in own]
        return np.mean([resampled_scores("bleu", each, drawn) for each in counts], axis=0)

    return fall(own[0]["words"], len(own), count, bleu, np.mean([run["chrf"] for run in own], axis=0))


def _exact(runs: BySeed, own: Fall) -> list[float]:
    """Share of each bucket's translations that are the reference, in percent."""
    exact = np.mean([run["exact"] for run in runs.values()], axis=0)
    return [100 * float(exact[part].mean()) for part in own.rows]
