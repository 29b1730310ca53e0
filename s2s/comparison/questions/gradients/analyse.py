"""Analyse factors per step of gradients by initialization, spectra of Jacobians, and normalization."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from s2s.comparison.claims import traits_of
from s2s.comparison.deep import DeepTraining
from s2s.comparison.paired_tests import listed, percent
from s2s.comparison.questions.gradients.claims import Initialisations, vanishes
from s2s.comparison.questions.gradients.decay import Curve, Decay, Decays, brief, geometric_mean, half_life
from s2s.comparison.questions.gradients.sweep import VALUES, WORDS, Kind
from s2s.comparison.reporting import Column, Interval, axis, figure, filled, series, table, verdict
from s2s.comparison.results import Figure, Heatmap, Series, Table, Verdict
from s2s.comparison.runs import LearningCurve
from s2s.comparison.spec import Analysis, Comparison, Trial, by_model
from s2s.evaluation.differences import welch
from s2s.evaluation.gates import Assessment, converged, failed
from s2s.evaluation.inference import Estimate, holm, mean

OWN, LEARNED = "own", "learned"
"""Parts of the trials at a candidate's own initialization, and after its training."""
SWEPT = "gradient-sweep"
_WHEN = {OWN: "initialisation", LEARNED: "after training"}
# of a figure: all distances up to the first, then so many
_NEAR, _FAR = 32, 32


@dataclass(frozen=True)
class JacobianSpectrum:
    """Spectrum of the recurrent Jacobian ∂s′/∂s, by text."""

    size: int  # numbers in the state
    norm: list[float | None]  # spectral norms
    radius: list[float | None] | None  # spectral radii; None for a matrix that is too large
    lyapunov: list[float | None]  # leading exponents in nats per step; None for minus infinity


@dataclass(frozen=True)
class Weights:
    """Gradients of one set of weights."""

    inputs: Decay  # with respect to inputs
    states: Decay | None  # with respect to states
    jacobian: JacobianSpectrum | None  # None for a state without a fixed size


@dataclass(frozen=True)
class Saliency:
    """Norms of the gradient of each target token's score with respect to source embeddings, by path."""

    source: list[str]
    target: list[str]
    paths: dict[str, list[list[float]]]


@dataclass(frozen=True)
class GradientRun:
    """Measurement at the candidate's own initialization, or after its training."""

    curves: dict[str, Curve]  # `inputs` and `source`, over all texts and sets of weights
    weights: list[Weights]
    knob: float | None = None  # own value of the parameter that the sweep varies
    maps: Saliency | None = None  # after training
    history: LearningCurve | None = None  # after training


@dataclass(frozen=True)
class SweepPoint:
    """Fits of the gradients with respect to inputs at one value of the sweep, by set of weights."""

    value: float
    fits: list[Decay]


@dataclass(frozen=True)
class Sweep:
    """Measurement at other initializations."""

    values: list[SweepPoint]


@dataclass(frozen=True)
class CandidateSweep:
    """Fits of a candidate at every value of the varied parameter of its initialization."""

    kind: Kind
    own: float  # value in the candidate's own initialization
    decays: dict[float, Decays]

    @property
    def words(self) -> str:
        """Name of the varied parameter, for figures and tables."""
        return WORDS[self.kind]


@dataclass(frozen=True)
class CandidateRuns:
    """Measurements of one candidate."""

    model: str
    runs: Mapping[str, Sequence[GradientRun]]  # by part and seed
    sweep: CandidateSweep | None

    def weights(self, part: str) -> list[Weights]:
        """Return all sets of weights of a part."""
        return [weights for run in self.runs[part] for weights in run.weights]

    def decays(self, part: str, states: bool = False) -> Decays | None:
        """Return the decay of the gradient with respect to inputs, or states; None if it was not measured."""
        fits = [each.states if states else each.inputs for each in self.weights(part)]
        known = [fit for fit in fits if fit is not None]
        return Decays(known) if known else None

    def maps(self) -> list[Saliency]:
        """Return the saliency maps, by seed."""
        return [run.maps for run in self.runs[LEARNED] if run.maps is not None]


def analyse(comparison: Comparison, measured: Mapping[Trial, GradientRun | Sweep | DeepTraining]) -> Analysis:
    """Analyse factors per step with their intervals, by initialization; spectra; and training with both norms."""
    gradients = {trial: each for trial, each in measured.items() if isinstance(each, GradientRun)}
    sweeps = {trial: each for trial, each in measured.items() if isinstance(each, Sweep)}
    deep: dict[str, dict[str, list[DeepTraining]]] = {model: {} for model in comparison.models}
    for trial, each in measured.items():
        if isinstance(each, DeepTraining):
            deep[trial.model].setdefault(trial.part, []).append(each)
    by_part = {part: by_model(comparison, gradients, part) for part in _WHEN}
    candidates = []
    for model in comparison.models:
        runs = {part: list(own.get(model, {}).values()) for part, own in by_part.items()}
        own = [run.knob for run in runs[OWN] if run.knob is not None]
        sweep = None
        for kind in VALUES:
            swept = by_model(comparison, sweeps, f"by-{kind}").get(model)
            if swept and own:
                points = [point for each in swept.values() for point in each.values]
                decays = {
                    value: Decays([fit for point in points if point.value == value for fit in point.fits])
                    for value in VALUES[kind]
                }
                sweep = CandidateSweep(kind, sum(own) / len(own), decays)
                break
        candidates.append(CandidateRuns(model, runs, sweep))
    return Analysis(
        findings=[_verdict(each) for each in candidates],
        figures=[*_sweep_figures(candidates), *_distance_figures(candidates), _maps(candidates), _deep_figure(deep)],
        tables=filled(
            _sweep_table(candidates),
            _factors(candidates),
            _jacobians(candidates),
            _paths(candidates),
            _normalization(deep),
        ),
        claims=[vanishes(traits_of(comparison), {each.model: own for each in candidates if (own := _by_start(each))})],
    )


def _by_start(candidate: CandidateRuns) -> Initialisations | None:
    own, sweep = candidate.decays(OWN), candidate.sweep
    if own is None:
        return None
    return Initialisations(own, sweep.words if sweep else "", sweep.decays if sweep else {})


def _verdict(candidate: CandidateRuns) -> Verdict | None:
    """Build the cell of a candidate at its initial weights, which has an outcome but no comparison with others.

    Its `variations` say which other initializations have the same outcome.
    """
    own, sweep = candidate.decays(OWN), candidate.sweep
    if own is None:
        return None
    factor, left, r2 = own.factor, own.left, own.r2
    facts: dict[str, float | str] = {"outcome": own.outcome or "undecided, too few initialisations"}
    if own.reach < own.span:
        facts["reach (steps)"] = own.reach
    value = None
    if factor is not None and own.is_exponential:
        steps = brief(abs(half_life(factor.value) or 0.0)) or 0.0
        facts["half-life (steps)" if factor.value < 1 else "doubling time (steps)"] = steps
        value = Estimate(brief(factor.value) or 0.0, brief(factor.low), brief(factor.high))
    elif left is not None and r2 is not None:
        facts[f"norm at distance {own.span} / norm at 1"] = brief(left.value) or 0.0
        facts["R²"] = round(r2.value, 2)
    facts |= _sweep_facts(sweep) | _trained_facts(candidate)
    variations = {}
    if sweep is not None and own.outcome is not None:
        variations = {
            f"{sweep.words} {v:g}": decays.outcome == own.outcome
            for v, decays in sweep.decays.items()
            if not math.isclose(v, sweep.own, rel_tol=1e-3) and decays.outcome is not None
        }
    quantity = "factor per step of the gradient with respect to an input, at initialisation"
    found = Assessment("" if own.outcome else "not measurable", facts=facts, variations=variations)
    picture = "input-gradients" if sweep is None else f"{SWEPT}-{sweep.kind}"
    return verdict("vanishing and exploding gradients", candidate.model, value, "per step", quantity, found, picture)


def _sweep_facts(sweep: CandidateSweep | None) -> dict[str, float | str]:
    """Return the factors at both ends of the sweep, and the value at which the factor is 1."""
    factors = {v: factor.value for v, d in sweep.decays.items() if (factor := d.factor) is not None} if sweep else {}
    if sweep is None or not factors:
        return {}
    neutral = neutral_value(factors)
    found: dict[str, float | str] = {
        f"factor at {sweep.words} {v:g}": round(factors[v], 2) for v in (min(factors), max(factors))
    }
    return found | {f"{sweep.words} with factor 1": "none" if neutral is None else float(f"{neutral:.2g}")}


def neutral_value(factors: Mapping[float, float]) -> float | None:
    """Return the value at which the factor per step crosses 1, by linear interpolation; None if it never does."""
    for (low, below), (high, above) in pairwise(sorted(factors.items())):
        if (below < 1) != (above < 1):
            return low + (high - low) * (1 - below) / (above - below)
    return None


def _trained_facts(candidate: CandidateRuns) -> dict[str, float | str]:
    """Return the factor after training, or the remaining share of the gradient if there is none."""
    decays = candidate.decays(LEARNED)
    if decays is None or decays.factor is None or decays.left is None:
        return {}
    found: dict[str, float | str] = {}
    if decays.reach < decays.span:
        found["reach after training (steps)"] = decays.reach
    elif decays.is_exponential:
        found["factor after training"] = round(decays.factor.value, 3)
    else:
        found[f"norm at distance {decays.span} / norm at 1, after training"] = float(f"{decays.left.value:.2g}")
    histories = [run.history for run in candidate.runs[LEARNED] if run.history is not None]
    gates = [converged(history.tokens, history.losses) for history in histories]
    if still := failed(gates):
        found["trainings not converged"] = f"{len(still)} of {len(gates)}"
    return found


def _average(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sweep_figures(candidates: Sequence[CandidateRuns]) -> Iterator[Figure]:
    for kind, words in WORDS.items():
        shown = []
        for each in candidates:
            if each.sweep is None or each.sweep.kind != kind:
                continue
            own, decays = each.decays(OWN), each.sweep.decays
            shown.append(series(each.model, each.model, list(decays), [decay.factor for decay in decays.values()]))
            at = None if own is None else own.factor
            shown.append(series(f"{each.model}, own initialisation", each.model, [each.sweep.own], [at]))
        ends = [min(VALUES[kind]), max(VALUES[kind])]
        if shown:
            shown.append(series("neither vanishing nor exploding", "", ends, [1.0, 1.0], reference=True))
        without = [each.model for each in candidates if each.model not in {line.model for line in shown}]
        title = f"Factor per step of the gradient against the {words}, at initialisation"
        note = "Gradients vanish below 1 and explode above. Intervals (95 %): Student's over initialisations."
        note += f" Models without this parameter: {listed(without)}." if without else ""
        yield figure(f"{SWEPT}-{kind}", title, (axis(words), axis("factor per step")), shown, note)


def _distance_figures(candidates: Sequence[CandidateRuns]) -> Iterator[Figure]:
    band = "Lines: medians over texts. Bands: the middle 95 % (at initialisation: of texts and initialisations)."
    inputs = (
        "input-gradients",
        "Gradient of the last token's loss with respect to earlier inputs",
        (axis("distance from the loss", "steps"), axis("‖∂L/∂x‖", log=True)),
        f"{band} A straight line means a constant factor per step. Zero gradients are not drawn.",
    )
    source = (
        "source-gradients",
        "Gradient of the encoder's summary with respect to source tokens",
        (axis("distance from the end", "steps"), axis("‖∂(w·summary)/∂x‖", log=True)),
        f"{band} w is a random direction. In a bidirectional encoder, both ends of the source are near the summary; in "
        "a mean over positions, all tokens are.",
    )
    for kind, (name, title, axes, caption) in {"inputs": inputs, "source": source}.items():
        for part, ending, when in ((OWN, "", "at initialisation"), (LEARNED, "-trained", "after training")):
            curves = {each.model: [run.curves[kind] for run in each.runs[part]] for each in candidates}
            shown = [_mean_curve(model, own) for model, own in curves.items() if own]
            yield figure(name + ending, f"{title}, {when}", axes, shown, caption)


def _mean_curve(model: str, curves: Sequence[Curve]) -> Series:
    """Draw the geometric mean over seeds; all near distances, and some of those beyond."""
    shortest = min((curve.distance for curve in curves), key=len)
    step = max(1, math.ceil((len(shortest) - _NEAR) / _FAR))
    drawn = [*range(min(_NEAR, len(shortest))), *range(_NEAR, len(shortest), step)]

    def _mean(values: Sequence[float | None]) -> float | None:
        known = [math.log(value) for value in values if value]
        return brief(math.exp(sum(known) / len(known))) if len(known) == len(values) else None

    found = []
    for i in drawn:
        value, low, high = (_mean([getattr(curve, name)[i] for curve in curves]) for name in ("median", "low", "high"))
        found.append(Estimate(value, low, high))  # pyright: ignore[reportArgumentType]
    return series(model, model, [shortest[i] for i in drawn], found)


def _maps(candidates: Sequence[CandidateRuns]) -> Figure:
    words = {"whole": "all paths", "attention": "attention only", "summary": "summary only"}
    maps: list[list[Heatmap]] = []
    for each in candidates:
        if not (own := each.maps()):
            continue
        first = own[0]
        largest = max((value for row in first.paths["whole"] for value in row), default=0.0)
        titles = words if len(first.paths) > 1 else {"whole": "all paths (no attention)"}
        maps.append(
            [
                Heatmap(
                    label=f"{each.model}: {titles[path]}",
                    model=each.model,
                    rows=first.target,
                    columns=first.source,
                    values=[[brief(100 * value / largest) for value in row] for row in norms],
                )
                for path, norms in first.paths.items()
                if largest
            ]
        )
    return Figure(
        name="paths",
        title="Gradient of each target token's score with respect to the source tokens, after training",
        kind="heatmaps",
        x=axis("source token"),
        y=axis("‖∂ score / ∂ source embedding‖, relative to the model's maximum", "%"),
        # models with several paths first, so that each starts a row
        heatmaps=[one for own in sorted(maps, key=len, reverse=True) for one in own],
        caption="Rows: target tokens of the reference. Columns: source tokens. One sentence, first seed. The gradient "
        "over all paths is the vector sum of the other two. In a map of zeros, the decoder does not use the path.",
    )


def _deep_figure(deep: Mapping[str, Mapping[str, Sequence[DeepTraining]]]) -> Figure:
    shown, runs = [], [run for parts in deep.values() for own in parts.values() for run in own]
    for model, parts in deep.items():
        for part, own in parts.items():
            losses = [mean(values) for values in zip(*(run.losses for run in own), strict=True)]
            label = f"{model}, {part.replace('-warmup-', '-norm, warm-up ')}"
            shown.append(series(label, part, own[0].updates, losses))
    if runs:
        ends, unigrams = [0.0, max(run.updates[-1] for run in runs)], runs[-1].unigrams
        shown.append(series("unigram distribution", "", ends, [unigrams] * 2, reference=True))
    return figure(
        "norm",
        "Validation loss with pre-norm and post-norm, with and without warm-up",
        (axis("updates"), axis("validation loss", "nats per token")),
        shown,
        "Means over seeds. Intervals (95 %): Student's.",
    )


def _sweep_table(candidates: Sequence[CandidateRuns]) -> Table:
    rows = [
        (each.model, each.sweep.words, value, each.sweep.own, decays)
        for each in candidates
        if each.sweep is not None
        for value, decays in each.sweep.decays.items()
    ]
    columns = [
        *("model", "parameter", "value"),
        Column("own value", lambda row: row[3], brief),
        Interval("factor per step", lambda row: row[4].factor, brief),
        Column("R²", lambda row: row[4].r2 and row[4].r2.value, brief),
        Column("outcome", lambda row: row[4].outcome),
        Column("sets of weights", lambda row: len(row[4])),
    ]
    return table(SWEPT, "Factor per step of the gradient, by initialisation", columns, rows)


def _factors(candidates: Sequence[CandidateRuns]) -> Table:
    rows = [
        (each.model, when, "state" if states else "input", decays)
        for each in candidates
        for part, when in _WHEN.items()
        for states in (False, True)
        if (decays := each.decays(part, states)) is not None
    ]
    columns = [
        *("model", "when", "with respect to"),
        Interval("factor per step", lambda row: row[3].factor, brief),
        Column("half-life (steps)", lambda row: row[3].factor and half_life(row[3].factor.value), brief),
        Column("R²", lambda row: row[3].r2 and row[3].r2.value, brief),
        Column("norm at the largest distance / norm at 1", lambda row: row[3].left and row[3].left.value, brief),
        Column("reach (steps)", lambda row: row[3].reach),
        Column("largest distance (steps)", lambda row: row[3].fits[0].span),
        Column("sets of weights", lambda row: len(row[3])),
    ]
    return table("gradient-factors", "Factor per step of the gradient", columns, rows)


def _jacobians(candidates: Sequence[CandidateRuns]) -> Table:
    rows = []
    for each in candidates:
        for part, when in _WHEN.items():
            spectra = [weights.jacobian for weights in each.weights(part) if weights.jacobian is not None]
            if not spectra:
                if each.weights(part):
                    rows.append((each.model, when, "no fixed-size state", None, None, None, None, None))
                continue
            # a missing exponent is minus infinity, and so is the mean
            missing = any(value is None for one in spectra for value in one.lyapunov)
            growth = [] if missing else [value for one in spectra if (value := _average(one.lyapunov)) is not None]
            states = each.decays(part, states=True)
            fitted = None if states is None else states.factor
            rows.append(
                (
                    *(each.model, when, spectra[0].size),
                    _average([_average(one.norm) for one in spectra]),
                    max(value for one in spectra for value in one.norm if value is not None),
                    _average([_average(one.radius or []) for one in spectra]),
                    geometric_mean(growth) if growth else Estimate(0.0, None, None),
                    fitted and fitted.value,
                )
            )
    columns = [
        *("model", "when", "size of the state"),
        Column("spectral norm, mean", lambda row: row[3], brief),
        Column("spectral norm, largest", lambda row: row[4], brief),
        Column("spectral radius, mean", lambda row: row[5], brief),
        Interval("exp(λ) per step", lambda row: row[6], brief),
        Column("fitted factor (state)", lambda row: row[7], brief),
    ]
    title = (
        "Recurrent Jacobian ∂s′/∂s: spectral norm (upper bound of the factor per step), spectral radius, and Lyapunov "
        "exponent λ (factor per step in the long run)"
    )
    return table("jacobian", title, columns, rows)


def _paths(candidates: Sequence[CandidateRuns]) -> Table:
    rows = []
    for each in candidates:
        shares = []
        for maps in each.maps():
            if "attention" in maps.paths:
                attention, summary = (sum(map(sum, maps.paths[name])) for name in ("attention", "summary"))
                if attention + summary > 0:
                    shares.append(100 * attention / (attention + summary))
        if shares:
            rows.append((each.model, percent(shares), len(shares)))
    columns = [
        "model",
        Interval("through attention (%)", lambda row: row[1], brief),
        Column("seeds", lambda row: row[2]),
    ]
    title = "Share of the gradient with respect to the source that passes through attention, after training"
    return table("paths", title, columns, rows)


def _normalization(deep: Mapping[str, Mapping[str, Sequence[DeepTraining]]]) -> Table:
    """Return the cost of training without warm-up, for each kind of normalization."""
    found = []
    for model, parts in deep.items():
        losses: dict[str, dict[int, list[float]]] = {}
        for part, runs in parts.items():
            norm, _, warmup = part.partition("-warmup-")
            losses.setdefault(norm, {})[int(warmup)] = [run.loss for run in runs]
        for norm, by_warmup in losses.items():
            warmup, without = max(by_warmup), by_warmup.get(0, [])
            found.append((model, norm, warmup, by_warmup[warmup], without, welch(by_warmup[warmup], without)))
    p_values = iter(holm([cost.p() for *_, cost in found if cost is not None]))
    rows = [
        (
            *names,
            len(warm),
            mean(without) if without else None,
            mean(warm),
            cost,
            None if cost is None else next(p_values),
        )
        for *names, warm, without, cost in found
    ]
    columns = [
        *("model", "norm", "warm-up (updates)", "seeds"),
        Interval("loss without warm-up (nats)", lambda row: row[4], brief),
        Interval("loss with warm-up (nats)", lambda row: row[5], brief),
        Interval("cost of no warm-up (nats)", lambda row: row[6], brief),
        Column("p (Holm)", lambda row: row[7], brief),
    ]
    title = "Cost of no warm-up with pre-norm and post-norm, six encoder and six decoder layers"
    return table("norm", title, columns, rows)
