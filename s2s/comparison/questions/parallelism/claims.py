"""Claims: recurrent networks wait for each token, and Transformers train faster."""

from collections.abc import Mapping

from s2s.comparison.claims import Answer, Pair, claim_numbers, compare_with_rival, decide, speed_pair
from s2s.comparison.paired_tests import listed
from s2s.comparison.results import Claim
from s2s.comparison.speed_benchmark import TYPICAL, SpeedBenchmark
from s2s.comparison.traits import Traits
from s2s.evaluation.gates import Gate
from s2s.evaluation.inference import Estimate, Growth, growth

Depths = Mapping[str, Mapping[int, int]]
"""Longest chain of dependent operations by model and length."""


def waits(traits: Mapping[str, Traits], depths: Mapping[str, Depths]) -> Claim | None:
    """Decide whether tokens lengthen the chain of dependent operations in recurrent networks, but not in Transformers.

    Args:
        traits: Traits of the candidates.
        depths: Chains by what is counted: `training`, `forward` or `generating`.

    Returns:
        The claim; None without a model that computes step by step, or without a Transformer.
    """
    laws = _laws(depths["training"])
    recurrent = [model for model in laws if traits[model].is_sequential]
    transformers = [model for model in laws if traits[model].is_transformer]
    if not recurrent or not transformers:
        return None
    verdict = _verdict_of_waits(laws, recurrent, transformers)
    added = {model: _steps_per_token(law) for model, law in laws.items()}
    scans = {model: f"{law.rate:.3g} per doubling" for model, law in laws.items() if law.law == "logarithmic"}
    powers = {model: str(law) for model, law in laws.items() if law.law == "power"}
    variations = {"forward pass alone": _laws(depths["forward"]), "generation": _laws(depths["generating"])}
    return Claim(
        name="waits",
        measured="operations that a token adds to the longest chain of a training step",
        unit="operations",
        verdict=verdict,
        sentence=_describe_waiting(laws),
        numbers=claim_numbers({model: added.get(model) for model in traits}, "low", scans | powers),
        figure="depth",
        stable={
            name: _verdict_of_waits(others, recurrent, transformers) == verdict
            for name, others in variations.items()
            if {*recurrent, *transformers} <= others.keys()
        },
    )


def _describe_waiting(laws: Mapping[str, Growth]) -> str:
    when = {
        "linear": "with each token",
        "power": "as a power of the length",
        "logarithmic": "with each doubling of the length",
        "constant": "not at all",
    }
    groups = {law: [model for model, own in laws.items() if own.law == law] for law in when}
    clauses = [f"{how} ({', '.join(groups[law])})" for law, how in when.items() if groups[law]]
    return f"In a training step, the longest chain of dependent operations grows {listed(clauses)}."


def _laws(depths: Depths) -> dict[str, Growth]:
    return {model: growth(list(own), list(own.values())) for model, own in depths.items() if len(own) > 2}


def _steps_per_token(law: Growth) -> float | None:
    return {"linear": law.rate, "constant": 0.0}.get(law.law)


def _verdict_of_waits(laws: Mapping[str, Growth], recurrent: list[str], transformers: list[str]) -> Answer:
    grows = [Pair(model, "", 1.0 if laws[model].law in ("linear", "power") else -1.0, None) for model in recurrent]
    level = [Pair(model, "", 1.0 if laws[model].law == "constant" else -1.0, None) for model in transformers]
    return decide([*grows, *level]).verdict


def trains_faster(
    traits: Mapping[str, Traits], benchmarks: Mapping[str, SpeedBenchmark], busy: Mapping[str, Gate | None]
) -> Claim | None:
    """Decide whether Transformers train on more tokens per second than networks that compute step by step.

    Args:
        traits: Traits of the candidates.
        benchmarks: The benchmark that decides, then variations.
        busy: Check that a model keeps its device busy; None if it was not measured.

    Returns:
        The claim; None without a timed model that computes step by step, or without a timed Transformer.
    """
    benchmark = next(iter(benchmarks.values()), None)
    if benchmark is None:
        return None
    transformers = [model for model in benchmark.speeds if traits[model].is_transformer]
    recurrent = [model for model in benchmark.speeds if traits[model].is_sequential]
    if not transformers or not recurrent:
        return None
    idle = {model: check.sentence for model, check in busy.items() if check and not check.passed}

    def _pairs(of: SpeedBenchmark) -> list[Pair]:
        return [speed_pair(of, a, b) for a in transformers for b in recurrent]

    def _checked(pair: Pair) -> Pair:
        reasons = [f"{model}: {idle[model]}" for model in (pair.ahead, pair.behind) if model in idle]
        return Pair(pair.ahead, pair.behind, 0.0, 1.0, reason="; ".join(reasons)) if reasons else pair

    decision = decide([_checked(pair) for pair in _pairs(benchmark)])
    speeds = {model: benchmark.speed(model) for model in benchmark.speeds}
    clauses = [
        compare_with_rival(
            [_checked(speed_pair(benchmark, model, rival)) for model in speeds if model not in transformers],
            {},
            rival,
            ("trains", "train"),
            ("faster", "slower"),
        )
        for rival in transformers
    ]
    sentence = f"On this machine, at {TYPICAL} tokens, {'; '.join(clauses)}{decision.because}."
    _, *others = benchmarks
    return Claim(
        name="trains-faster",
        measured=f"training speed, sentences of {TYPICAL} tokens",
        unit="thousand tokens/s",
        verdict=decision.verdict,
        sentence=sentence,
        numbers=claim_numbers({m: _thousands(speeds[m]) if m in speeds else None for m in traits}, "high"),
        p=decision.p,
        test="" if decision.p is None else "paired test over rounds",
        figure="time-tokens",
        stable={
            name: decide(_pairs(benchmarks[name])).verdict == decision.verdict
            for name in others
            if {*transformers, *recurrent} <= benchmarks[name].speeds.keys()
        },
    )


def _thousands(speed: Estimate) -> Estimate:
    low, high = (None if end is None else end / 1000 for end in (speed.low, speed.high))
    return Estimate(speed.value / 1000, low, high)
