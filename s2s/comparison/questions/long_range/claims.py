"""Claims: recurrent networks forget what they read long ago, and learn long-term dependencies later than attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from s2s.comparison.claims import Decision, Pair, claim_numbers, decide, describe_each, predicate
from s2s.comparison.report.numbers import brief
from s2s.comparison.results import Claim
from s2s.comparison.traits import Traits
from s2s.evaluation.gates import Gate, failed
from s2s.evaluation.inference import Estimate

_SCANS = "scans counted as recurrent networks"


@dataclass(frozen=True)
class Reaches:
    """Distances over which the models recall a symbol.

    Attributes:
        distances: Distance at which accuracy has fallen half way to chance, by model.
        beyond: Models whose distance is a lower bound.
        gates: Validity checks by model.
        trained: Longest trained distance.
        right: Accuracy at the longest tested distance, in percent, by model.
        longest: That distance.
    """

    distances: Mapping[str, Estimate]
    beyond: Sequence[str]
    gates: Mapping[str, Sequence[Gate]]
    trained: int
    right: Mapping[str, Estimate]
    longest: int


def forgets(traits: Mapping[str, Traits], reaches: Reaches, variations: Mapping[str, Reaches]) -> Claim | None:
    """Decide whether recurrent networks without attention fail to recall beyond the trained distances.

    A network forgets if the interval of its distance lies below the longest trained distance, and does not if it lies
    above.

    Returns:
        The claim; None without a recurrent network without attention.
    """
    recurrent = _recurrent(traits, reaches.distances)
    if not recurrent:
        return None
    decision, trained = _decide_forgets(reaches, recurrent), reaches.trained
    sentence = f"Trained on distances up to {trained}, {_describe_recall(reaches, recurrent)}{decision.because}."
    right = {model: f"{reaches.right[model].value:.0f} %" for model in reaches.distances}
    sentence += f" Accuracy at distance {brief(reaches.longest)}: {describe_each(right)}."
    elsewhere = {name: (own, _recurrent(traits, own.distances)) for name, own in variations.items()}
    elsewhere[_SCANS] = reaches, _recurrent(traits, reaches.distances, scans=True)
    return Claim(
        name="forgets",
        measured=f"distance at which recall of the first symbol falls half way to chance, trained on up to {trained} "
        f"(accuracy at {brief(reaches.longest)})",
        unit="symbols",
        verdict=decision.verdict,
        sentence=sentence,
        numbers=claim_numbers(
            {model: reaches.distances.get(model) for model in traits},
            "high",
            {model: share.replace(" ", "\N{NO-BREAK SPACE}") for model, share in right.items()},
            at_least=reaches.beyond,
            gates=reaches.gates,
        ),
        test="95 % interval of the median distance",
        figure="recall-full",
        stable={
            name: _decide_forgets(own, models, needs_interval=False).verdict == decision.verdict
            for name, (own, models) in elsewhere.items()
            if {*models} >= {*recurrent} and (own is not reaches or models != recurrent)
        },
    )


def _describe_recall(reaches: Reaches, models: Sequence[str]) -> str:
    shown = {
        model: f"{'at least ' if model in reaches.beyond else ''}{brief(round(reaches.distances[model].value))}"
        for model in models
        if not failed(reaches.gates[model])
    }
    unfinished = [model for model in models if model not in shown]
    rest = f"; {predicate(unfinished, 'fails', 'fail')} a validity check" if shown and unfinished else ""
    if not shown:
        return "no recurrent model without attention passes the validity checks"
    if len(shown) > 1 and all(reaches.distances[model].value > reaches.trained for model in shown):
        least = min(shown, key=lambda model: reaches.distances[model].value)
        return (
            f"recall of the first symbol falls half way to chance at {shown[least].removeprefix('at least ')} or more "
            f"in every recurrent model without attention that passes the validity checks (shortest: {least}){rest}"
        )
    everywhere = all(distance.startswith("at least ") for distance in shown.values())
    shown = {model: distance.removeprefix("at least ") for model, distance in shown.items()} if everywhere else shown
    where = "not before" if everywhere else "at"
    return f"recall of the first symbol falls half way to chance {where} {describe_each(shown)}{rest}"


def _recurrent(traits: Mapping[str, Traits], measured: Mapping[str, object], scans: bool = False) -> list[str]:
    kinds = ("steps", "scan") if scans else ("steps",)
    return [model for model in measured if traits[model].recurrence in kinds and not traits[model].cross_attention]


def _decide_forgets(reaches: Reaches, models: Sequence[str], needs_interval: bool = True) -> Decision:
    # a variation has fewer seeds: without an interval, its median decides
    pairs = []
    for model in models:
        reach, closed = reaches.distances[model], failed(reaches.gates[model])
        low, high = (reach.value if end is None else end for end in (reach.low, reach.high))
        if closed:
            pairs.append(Pair("", model, 0.0, 1.0, reason=f"{model}: {closed[0].sentence}"))
        elif needs_interval and reach.low is None:
            pairs.append(Pair("", model, 0.0, 1.0, reason=f"{model}: too few seeds for an interval"))
        elif low <= reaches.trained <= high:
            reason = f"{model}: its interval contains {reaches.trained}"
            pairs.append(Pair("", model, 0.0, 1.0, reason=reason))
        else:
            pairs.append(Pair("", model, float(reaches.trained - reach.value), None))
    return decide(pairs)


@dataclass(frozen=True)
class SolutionTimes:
    """Updates until a task is solved.

    Attributes:
        medians: Medians over seeds by model.
        never: Models that do not solve the task with most seeds.
        tests: P-values of the log-rank test, raw and corrected, by pair of models.
        resolution: Updates between two validations.
    """

    medians: Mapping[str, Estimate]
    never: Sequence[str]
    tests: Mapping[tuple[str, str], tuple[float, float]]
    resolution: int


def learns_late(
    traits: Mapping[str, Traits], times: SolutionTimes, variations: Mapping[str, SolutionTimes], trained: int
) -> Claim | None:
    """Decide whether recurrent networks without attention need more updates than models with attention.

    Args:
        traits: Traits of the candidates.
        times: Updates until the first symbol is recalled.
        variations: Updates on other tasks, or at other learning rates.
        trained: Longest trained distance.

    Returns:
        The claim; None without a recurrent network without attention, or without a model with attention.
    """
    recurrent, scans = (_recurrent(traits, times.medians, scans) for scans in (False, True))
    attention = [m for m in times.medians if traits[m].cross_attention or traits[m].self_attention]
    if not recurrent or not attention:
        return None
    decision = _decide_late(times, attention, recurrent)
    shown = {
        model: "more than " * (model in times.never) + brief(median.value) for model, median in times.medians.items()
    }
    sentence = f"Recall over up to {trained} symbols is learned after "
    sentence += f"{describe_each({m: shown[m] for m in recurrent})} updates; with attention, after "
    sentence += describe_each({m: shown[m] for m in attention})
    if exceptions := [model for model in scans if model not in recurrent]:
        sentence += f"; with a scan, after {describe_each({m: shown[m] for m in exceptions})}"
    elsewhere = {
        name: (own, recurrent) for name, own in variations.items() if {*recurrent, *attention} <= {*own.medians}
    }
    if exceptions:
        elsewhere[_SCANS] = times, scans
    return Claim(
        name="learns-late",
        measured=f"updates until a whole model recalls the first symbol over up to {trained} others",
        unit="updates",
        verdict=decision.verdict,
        sentence=f"{sentence}{decision.because}.",
        numbers=claim_numbers({model: times.medians.get(model) for model in traits}, "low", at_least=times.never),
        p=decision.p,
        test="" if decision.p is None else "log-rank",
        figure="recall-full-solved",
        stable={
            name: _decide_late(own, attention, models).verdict == decision.verdict
            for name, (own, models) in elsewhere.items()
        },
    )


def _decide_late(times: SolutionTimes, attention: Sequence[str], recurrent: Sequence[str]) -> Decision:
    pairs = []
    for a, b in ((a, b) for a in attention for b in recurrent):
        p = next((times.tests[pair][0] for pair in ((a, b), (b, a)) if pair in times.tests), None)
        apart = times.medians[b].value - times.medians[a].value
        if p is None:
            pairs.append(Pair(a, b, 0.0, 1.0, reason=f"the learning rate of {a} or {b} is at an end of its grid"))
        elif abs(apart) <= times.resolution:
            reason = f"{a} and {b} differ by at most one validation interval, {times.resolution:,} updates"
            pairs.append(Pair(a, b, 0.0, 1.0, reason=reason))
        else:
            pairs.append(Pair(a, b, apart, p))
    return decide(pairs)
