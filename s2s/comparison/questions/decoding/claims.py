"""Claim: a recurrent network generates a token at less cost than a Transformer."""

from collections.abc import Mapping

from s2s.comparison.claims import Decision, claim_numbers, compare_with_rival, decide, speed_pair
from s2s.comparison.report.numbers import number
from s2s.comparison.results import Claim
from s2s.comparison.speed_benchmark import TYPICAL, SpeedBenchmark
from s2s.comparison.traits import Traits
from s2s.evaluation.inference import Estimate


def writes_cheaply(
    traits: Mapping[str, Traits], benchmarks: Mapping[str, SpeedBenchmark], costs: Mapping[str, Estimate]
) -> Claim | None:
    """Decide whether recurrent networks generate a token in less time than Transformers.

    Args:
        traits: Traits of the candidates.
        benchmarks: The benchmark that decides, then variations.
        costs: Milliseconds of an output token by model.

    Returns:
        The claim; None without a timed model that has a recurrent decoder, or without a timed Transformer.
    """
    transformers = [model for model in costs if traits[model].is_transformer]
    recurrent = [model for model in costs if traits[model].decoder_recurrence != "none"]
    if not transformers or not recurrent:
        return None

    def _decide(benchmark: SpeedBenchmark) -> Decision:
        return decide([speed_pair(benchmark, a, b) for a in recurrent for b in transformers])

    deciding, *others = benchmarks
    decision = _decide(benchmarks[deciding])
    shown = {model: f"{model} ({number(cost.value, 3)} ms)" for model, cost in costs.items()}
    clauses = [
        compare_with_rival(
            [speed_pair(benchmarks[deciding], model, rival) for model in costs if model not in transformers],
            shown,
            shown[rival],
            ("takes", "take"),
            ("less time", "more time"),
        )
        for rival in transformers
    ]
    sentence = f"On this machine, per token, {'; '.join(clauses)}"
    return Claim(
        name="writes-cheaply",
        measured=f"time per output token, one sentence of {TYPICAL} tokens",
        unit="ms",
        verdict=decision.verdict,
        sentence=f"{sentence}{decision.because}.",
        numbers=claim_numbers({model: costs.get(model) for model in traits}, "low"),
        p=decision.p,
        test="" if decision.p is None else "paired test over rounds",
        figure="by-target",
        stable={
            name: _decide(benchmarks[name]).verdict == decision.verdict
            for name in others
            if {*transformers, *recurrent} <= benchmarks[name].speeds.keys()
        },
    )
