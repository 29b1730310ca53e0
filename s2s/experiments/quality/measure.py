"""Whole trainings on the translation task, and what their test says."""

from s2s.experiments.contest import Cell, Contest, Experiment, Measured, each_run
from s2s.experiments.disciplines import evaluation_of
from s2s.experiments.quality.conclude import conclude
from s2s.experiments.translating import counts_of, flops_per_token, sizes_of
from s2s.experiments.whole_runs import cost_of, pauses, prepared, seconds_for
from s2s.models.contract import parameter_count
from s2s.tasks.translation.task import build_model

_EXAMPLES = 5


class Quality(Experiment):
    """Trains every model as its recipe says, and tests it."""

    name = "quality"
    question = "How good are its translations?"
    conclusion = staticmethod(conclude)

    def cells(self, contest: Contest) -> list[Cell]:
        """Every run."""
        return each_run(contest, seconds_for)

    def measure(self, contest: Contest, cell: Cell) -> Measured:
        """Trains a model, unless that is done, and takes its scores, its curve and its cost."""
        folder, tested = evaluation_of(contest, cell.model, cell.seed)
        recipe = contest.contestant(cell.model).recipe
        curve, cost, data = list(pauses(folder)), cost_of(folder), prepared(recipe)
        texts = list(zip(tested["sources"], tested["references"], tested["translations"], strict=True))
        return {
            "split": tested["split"],
            "beam": tested["beam"],
            "scores": tested["scores"],
            "exact": tested["exact"],
            "counts": {
                metric: counts_of(metric, tested["translations"], tested["references"]) for metric in ("bleu", "chrf")
            },
            "examples": texts[:: max(1, len(texts) // _EXAMPLES)][:_EXAMPLES],
            "updates": [pause.update for pause in curve],
            "tokens": [pause.tokens for pause in curve],
            "seconds": [round(pause.seconds, 3) for pause in curve],
            "losses": [pause.scores["loss"] for pause in curve],
            "bleus": [pause.scores["bleu"] for pause in curve],
            "parameters": parameter_count(build_model(recipe, *sizes_of(data))),
            "flops": flops_per_token(recipe, sizes_of(data), data.train),
            "run_seconds": cost.seconds,
            "cpu_seconds": cost.cpu_seconds,
        }


EXPERIMENT = Quality()
