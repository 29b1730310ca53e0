"""Whole trainings on the translation task, and what their test says."""

from dataclasses import asdict
from functools import partial

from s2s.comparison.questions.quality.analyse import RUN, analyse
from s2s.comparison.runs import history, prepared
from s2s.comparison.spec import Comparison, Experiment, Measured, Trial, each_run
from s2s.comparison.tasks import evaluation_of
from s2s.comparison.translation import counts_of, flops_per_token, sizes_of
from s2s.models.base import Seq2Seq, count_parameters
from s2s.run.inference import load
from s2s.tasks.source_use import source_use
from s2s.tasks.translation.recipe import Recipe
from s2s.tasks.translation.task import build_model


def measure(comparison: Comparison, trial: Trial) -> Measured:
    """Trains a model, unless that is done, and takes its translations, its scores, its curve and its cost."""
    folder, tested = evaluation_of(comparison, trial.model, trial.seed)
    candidate = comparison.candidate(trial.model)
    recipe = candidate.translation
    data = prepared(recipe)
    worth = source_use(
        load(folder).narrow(Recipe, Seq2Seq).model, data.validation, recipe.batches, comparison.device_context
    )
    scored = [tested[key] for key in ("translations", "references", "lowercase", "tokenizer")]
    return {
        **{key: tested[key] for key in ("split", "beam", "scores", "exact", "sources", "references", "translations")},
        "counts": {metric: counts_of(metric, *scored) for metric in ("bleu", "chrf")},
        **history(folder, {"losses": "loss", "bleus": "bleu"}, comparison.device_context),
        "source_use": asdict(worth) if worth else None,
        "rate": candidate.choice(),
        "parameters": count_parameters(build_model(recipe, *sizes_of(data))),
        "flops": flops_per_token(recipe, sizes_of(data), data.train),
    }


EXPERIMENT = Experiment("quality", "How good are its translations?", partial(each_run, part=RUN), measure, analyse)
