"""Whole trainings on the translation task, and what their test says."""

from dataclasses import asdict
from functools import partial

from s2s.experiments.contest import Cell, Contest, Experiment, Measured, each_run
from s2s.experiments.disciplines import evaluation_of
from s2s.experiments.quality.conclude import conclude
from s2s.experiments.source_use import source_use
from s2s.experiments.translating import counts_of, flops_per_token, sizes_of
from s2s.experiments.whole_runs import history, prepared, seconds_for
from s2s.models.contract import parameter_count
from s2s.run.loaded import load
from s2s.tasks.translation.task import build_model

_EXAMPLES = 5


def measure(contest: Contest, cell: Cell) -> Measured:
    """Trains a model, unless that is done, and takes its scores, its curve and its cost."""
    folder, tested = evaluation_of(contest, cell.model, cell.seed)
    contestant = contest.contestant(cell.model)
    recipe = contestant.recipe
    data = prepared(recipe)
    worth = source_use(load(folder).model, data.validation, recipe.batches, contest.computer)
    texts = list(zip(tested["sources"], tested["references"], tested["translations"], strict=True))
    return {
        **{key: tested[key] for key in ("split", "beam", "scores", "exact")},
        "counts": {
            metric: counts_of(metric, tested["translations"], tested["references"]) for metric in ("bleu", "chrf")
        },
        "examples": texts[:: max(1, len(texts) // _EXAMPLES)][:_EXAMPLES],
        **history(folder, {"losses": "loss", "bleus": "bleu"}),
        "source_use": asdict(worth) if worth else None,
        "rate": {"chosen": contestant.learning_rate, "tried": contestant.rates, "inside": contestant.inside},
        "parameters": parameter_count(build_model(recipe, *sizes_of(data))),
        "flops": flops_per_token(recipe, sizes_of(data), data.train),
    }


EXPERIMENT = Experiment(
    "quality", "How good are its translations?", partial(each_run, seconds=seconds_for), measure, conclude
)
