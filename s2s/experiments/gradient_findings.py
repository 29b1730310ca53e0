"""What the measured gradients say: the cells of the table, and what they predict."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from s2s.evaluation.inference import Estimate
from s2s.experiments.contest import Measured, Task
from s2s.experiments.gradient_decay import GOOD_FIT, brief, rank_correlation
from s2s.experiments.gradient_tables import FACTORS, OF, WHEN, brief_or_none, decays, factor_of, mean_of
from s2s.results import Finding, Result, Table

ROW = "vanishing and exploding gradients"
_MEMORY = "long-term dependencies"
# below, no rank correlation could be significant
_FEWEST = 4

METHOD = """Gradients are exact (backpropagation in float64 on the processor) and taken through the models' common \
interface. The decoder is fed {span} pieces of real sentences, joined end to end, token by token; the loss is −log p \
of the piece that follows. We take the norm of its gradient with respect to the vector of each token (input) and to \
all numbers that the decoder hands on after each token (state), over {texts} texts and {weights} initialisations for \
each seed, and again after a training of {updates} updates of {tokens} positions.

The factor per step is exp of the slope of a line through log ‖gradient‖ against distance, from distance 1 to \
the largest. At initialisation its interval is Student's over initialisations; after training over seeds, or over \
texts where there is one seed. Where the line explains less than 80 % of the variance (R²), the decay is not \
exponential, and the gradient left at the largest distance says more than the factor.

The Jacobian is that of one step of the state, ∂s′/∂s: spectral norm by power iteration with products of J and of its \
transpose, leading Lyapunov exponent from a direction that is carried along the text (Benettin et al. 1980), spectral \
radius from the eigenvalues. A state that grows with each token, such as a cache of keys and values, has none.

Heat-maps show ‖∂ score of the written piece / ∂ vector of the source piece‖ after training, whole, and with the \
gradient allowed back through the encoder's states alone (attention) or its summary alone (what a recurrent decoder \
starts from); the three differ in nothing else.

Pre-norm and post-norm are compared where a model knows both, in trainings of {deep} updates at the model's own \
learning rate, held constant after the warm-up."""

LIMITS = """Short trainings of small models: after more of it, factors may differ. Texts are longer than the sentences \
that were learned from. A gradient that arrives is not yet a dependency that is learned: see long-range. In a \
bidirectional encoder both ends of the source are near the summary."""


def findings(models: Sequence[str], measured: Mapping[Task, Measured]) -> list[Finding]:
    """One cell for each model that was measured at its initial weights."""
    found = []
    for model in models:
        before = decays(measured, model, "initial", "inputs")
        if not before:
            continue
        at = factor_of(before)
        after = _afterwards(decays(measured, model, "trained", "inputs"))
        found.append(
            Finding(
                row=ROW,
                model=model,
                value=brief(at.value) if at else None,
                low=brief_or_none(at.low) if at else None,
                high=brief_or_none(at.high) if at else None,
                unit="per step",
                quantity="factor of the gradient with respect to an input, per step of distance, at initialisation",
                verdict=verdict(at, before) + after,
                figure="input-gradients",
            )
        )
    return found


def verdict(at: Estimate | None, decays: Sequence[Mapping[str, Any]]) -> str:
    """What becomes of a gradient on its way, in words.

    Args:
        at: the factor per step.
        decays: of each set of weights.
    """
    span, reach = max(one["span"] for one in decays), max(one["reach"] for one in decays)
    if reach < span:
        return f"nothing arrives from more than {reach} steps back"
    left, fit = mean_of(decays, "left", geometric=True), mean_of(decays, "fit")
    if at is None or left is None or fit is None:
        return "too few distances with a gradient for a factor"
    if at.low is None or at.high is None:
        return f"factor {at.value:.3f}; too few initialisations for a verdict"
    if not _falls_by_a_factor(at, fit, span):
        how = "hardly changes" if 0.5 < left.value < 2 else "changes, but not by a factor per step"
        return f"{how}: distance {span} has {left.value:.2g} times what distance 1 has (R² {fit.value:.2f})"
    if at.high < 1:
        return f"vanishes: half is left after {math.log(0.5) / math.log(at.value):.1f} steps"
    if at.low > 1:
        return f"explodes: doubles every {math.log(2) / math.log(at.value):.1f} steps"
    return "neither vanishes nor explodes: 1 is within the interval"


def _falls_by_a_factor(at: Estimate, fit: Estimate, span: int) -> bool:
    """Whether a factor per step describes it: the line fits, and all steps together at least halve or double."""
    return fit.value >= GOOD_FIT and abs(math.log(at.value)) * (span - 1) >= math.log(2)


def _afterwards(decays: Sequence[Mapping[str, Any]]) -> str:
    at, fit, left = factor_of(decays), mean_of(decays, "fit"), mean_of(decays, "left", geometric=True)
    if at is None or fit is None or left is None or not left.value:
        return ""
    if _falls_by_a_factor(at, fit, max(one["span"] for one in decays)):
        return f"; after training {at.value:.3f} per step"
    return f"; after training {left.value:.2g} times"


def predicts(gradient_result: Result, long_range_result: Result) -> Table | None:
    """Whether what is left of a gradient says how far back a model learns to reach: Spearman's rank correlation.

    Args:
        gradient_result: of this experiment.
        long_range_result: of the long-range experiment, for its effective memory lengths.

    Returns:
        One row for each predictor; None where either has nothing to say.
    """
    memory = {f.model: f.value for f in long_range_result.findings if f.row == _MEMORY and f.value is not None}
    table = next((table for table in gradient_result.tables if table.name == FACTORS), None)
    if table is None or not memory:
        return None
    rows = []
    for column, when in ((c, w) for c in ("factor per step", "left at the largest distance / at 1") for w in WHEN):
        found = _column(table, column, WHEN[when])
        models = [model for model in found if model in memory]
        rows.append([f"{column}, {WHEN[when]}", len(models), *_correlated(models, found, memory)])
    return Table(
        name="predicts",
        title="Does the gradient of the inputs predict the effective memory length? Spearman's ρ over models",
        columns=["predictor", "models", "ρ", "p", "verdict"],
        rows=rows,
    )


def _column(table: Table, column: str, when: str) -> dict[str, float]:
    at: Callable[[str], int] = table.columns.index
    rows = [row for row in table.rows if row[at("when")] == when and row[at("with respect to")] == OF["inputs"]]
    values = {str(row[at("model")]): row[at(column)] for row in rows}
    return {model: float(value) for model, value in values.items() if isinstance(value, float | int)}


def _correlated(
    models: Sequence[str], found: Mapping[str, float], memory: Mapping[str, float]
) -> list[str | float | int | None]:
    if len(models) < _FEWEST:
        return [None, None, f"too few models: {len(models)}, at least {_FEWEST} are needed"]
    both = rank_correlation([found[model] for model in models], [memory[model] for model in models])
    if both is None:
        return [None, None, "no correlation: all models are equal in one of them"]
    words = "significant at 5 %" if both[1] < 0.05 else "no significant correlation"
    return [brief(both[0]), brief(both[1]), f"{words} over {len(models)} models (p = {both[1]:.2g})"]
