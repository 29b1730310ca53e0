"""Train translators in full, and measure their test scores, learning curves and costs."""

from dataclasses import asdict
from functools import partial

from pydantic import TypeAdapter

from s2s.comparison.questions.quality.analyse import RUN, TranslationRun, analyse
from s2s.comparison.runs import learning_curve, prepared, validation_points
from s2s.comparison.spec import Comparison, Experiment, Trial, each_run
from s2s.comparison.tasks import evaluation_of
from s2s.comparison.translation import counts_of, flops_per_token, sizes_of
from s2s.evaluation.metrics import Score
from s2s.models.base import Seq2Seq, count_parameters
from s2s.run.inference import load
from s2s.tasks.seq2seq import build_model
from s2s.tasks.source_use import source_use
from s2s.tasks.translation.recipe import Recipe


def measure(comparison: Comparison, trial: Trial) -> TranslationRun:
    """Train a model, unless its run is finished, and evaluate it."""
    folder, tested = evaluation_of(comparison, trial.model, trial.seed)
    candidate = comparison.candidate(trial.model)
    recipe = candidate.translation
    data = prepared(recipe)
    model = load(folder).narrow(Recipe, Seq2Seq).model
    scored = [tested[key] for key in ("translations", "references", "lowercase", "tokenizer")]
    return TranslationRun(
        **asdict(learning_curve(folder, comparison.device_context)),
        bleus=[point.scores["bleu"] for point in validation_points(folder)],
        **{key: tested[key] for key in ("split", "beam", "exact", "sources", "references", "translations")},
        scores={name: Score(**score) for name, score in tested["scores"].items()},
        counts={metric: counts_of(metric, *scored) for metric in ("bleu", "chrf")},
        source_use=source_use(model, data.validation, recipe.batches, comparison.device_context),
        rate=candidate.choice(),
        parameters=count_parameters(build_model(recipe, *sizes_of(data))),
        flops=flops_per_token(recipe, sizes_of(data), data.train),
    )


EXPERIMENT = Experiment(
    "quality",
    "How good are its translations?",
    partial(each_run, part=RUN),
    measure,
    analyse,
    TypeAdapter(TranslationRun),
)
