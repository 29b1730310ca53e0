"""How good are the translations, and what did it take to learn them?"""

from collections.abc import Mapping

from s2s.experiments.contest import Contest, Experiment, Measured, Task
from s2s.experiments.quality_findings import conclude
from s2s.experiments.resampling import counts_of
from s2s.experiments.short_training import prepared
from s2s.experiments.translation import curve_of, evaluation_of, flops_per_token, sizes_of, trained
from s2s.experiments.whole_runs import cost_of, seconds_for
from s2s.models.contract import parameter_count
from s2s.results import Result
from s2s.run.loading import build_model

_EXAMPLES = 5


class Quality(Experiment):
    """Whole trainings on the translation task, and their test."""

    name = "quality"
    question = "How good are its translations?"
    rows = ("translation quality",)
    translates = True

    def tasks(self, contest: Contest) -> list[Task]:
        """One for each model and seed; the models in turn."""
        return [
            Task(each.name, seed=seed, seconds=seconds_for(each.recipe))
            for seed in contest.seeds
            for each in contest.contestants
        ]

    def measure(self, contest: Contest, task: Task) -> Measured:
        """Trains a model, unless that is done, and takes its scores, its curve and its cost.

        Raises:
            NotForThisModel: the model cannot translate.
            UserError: the training failed.
        """
        folder = trained(contest, task.model, task.seed or 0)
        recipe = contest.contestant(task.model).recipe
        found, curve, cost = evaluation_of(folder), curve_of(folder), cost_of(folder)
        data = prepared(recipe)
        texts = list(zip(found["sources"], found["references"], found["translations"], strict=True))
        return {
            "split": found["split"],
            "beam": found["beam"],
            "scores": found["scores"],
            "exact": found["exact"],
            "counts": {
                metric: counts_of(metric, found["translations"], found["references"]) for metric in ("bleu", "chrf")
            },
            "examples": texts[:: max(1, len(texts) // _EXAMPLES)][:_EXAMPLES],
            "updates": [point.update for point in curve],
            "tokens": [point.tokens for point in curve],
            "seconds": [round(point.seconds, 3) for point in curve],
            "losses": [point.loss for point in curve],
            "bleus": [point.bleu for point in curve],
            "parameters": parameter_count(build_model(recipe, *sizes_of(data))),
            "flops": flops_per_token(recipe, sizes_of(data), data.train),
            "run_seconds": cost.seconds,
            "cpu_seconds": cost.cpu_seconds,
        }

    def conclude(self, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
        """Scores over seeds, tests for each pair of models, curves and costs."""
        return conclude(self, contest, measured)


EXPERIMENT = Quality()
