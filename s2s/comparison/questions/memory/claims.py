"""Claims: attention needs memory that grows with n², and a Transformer's cache grows in generation."""

from collections.abc import Mapping
from dataclasses import dataclass

from s2s.comparison.claims import Answer, Pair, claim_numbers, decide, describe_each
from s2s.comparison.paired_tests import listed
from s2s.comparison.report.numbers import brief
from s2s.comparison.results import Claim
from s2s.comparison.traits import Traits
from s2s.evaluation.inference import Slope, growth

SQUARE = 1.5
"""Least exponent that counts as growth with the square of the length: half way between n and n²."""


@dataclass(frozen=True)
class TrainingPeak:
    """Peak memory in training at the greatest length, and its exponent."""

    n: int
    mib: float
    slope: Slope


def needs_square(
    traits: Mapping[str, Traits], built: Mapping[str, TrainingPeak], explicit: Mapping[str, TrainingPeak]
) -> Claim | None:
    """Decide whether the memory of models with self-attention grows with the square of the length in training.

    Args:
        traits: Traits of the candidates.
        built: Peaks of the models as they are built.
        explicit: Peaks with all attention weights stored, of models that have attention.

    Returns:
        The claim; None without a model that has self-attention.
    """
    attention = [model for model in built if traits[model].self_attention]
    if not attention:
        return None
    kept = {model: explicit[model] for model in attention if model in explicit}
    verdict = _square(built, attention)
    as_built = _powers({model: built[model] for model in attention})
    if kept and verdict == "no":
        sentence = f"With attention weights stored, memory grows as {_powers(kept)}; "
        sentence += f"the fused kernel used here, the default, does not store them: {as_built}."
    else:
        sentence = f"Memory grows as {as_built}."
    longest = max(peak.n for peak in built.values())
    return Claim(
        name="memory",
        measured=f"peak memory of a training step of {longest:,} tokens (with all attention weights stored)",
        unit="MiB",
        verdict=verdict,
        sentence=sentence,
        numbers=claim_numbers(
            {model: built[model].mib if model in built else None for model in traits},
            "low",
            {model: f"{peak.mib:.3g}" for model, peak in explicit.items()},
        ),
        figure="training-memory",
        stable={"all attention weights stored": _square(kept, list(kept)) == verdict} if kept else {},
    )


def _square(peaks: Mapping[str, TrainingPeak], models: list[str]) -> Answer:
    return decide([Pair(model, "", peaks[model].slope.exponent - SQUARE, None) for model in models]).verdict


def _powers(peaks: Mapping[str, TrainingPeak]) -> str:
    """Exponents and memory, with the names of the models if there are several."""
    laws = {model: f"n^{peak.slope.exponent:.2f} ({brief(peak.mib, 3)} MiB)" for model, peak in peaks.items()}
    return listed([f"{law} in {model}" if laws.keys() - {model} else law for model, law in laws.items()])


def cache_grows(traits: Mapping[str, Traits], states: Mapping[str, Mapping[int, int]]) -> Claim | None:
    """Decide whether generated tokens enlarge a Transformer's decoder state, but not a recurrent one.

    Args:
        traits: Traits of the candidates.
        states: Bytes of the decoder's state by number of generated tokens.

    Returns:
        The claim; None without a Transformer, or without a recurrent decoder.
    """
    known = {model: growth(list(own), list(own.values())) for model, own in states.items() if len(own) > 2}
    added = {
        model: law.rate if law.law == "linear" else 0.0
        for model, law in known.items()
        if law.law in ("linear", "constant")
    }
    transformers = [model for model in added if traits[model].is_transformer]
    recurrent = [model for model in added if traits[model].decoder_recurrence != "none"]
    if not transformers or not recurrent:
        return None
    grows = [Pair(model, "", added[model] or -1.0, None) for model in transformers]
    level = [Pair("", model, -1.0 if added[model] else 1.0, None) for model in recurrent]
    decision = decide([*grows, *level])
    shown = {model: f"{brief(each)} bytes" for model, each in added.items()}
    return Claim(
        name="cache",
        measured="memory that a generated token adds",
        unit="bytes",
        verdict=decision.verdict,
        sentence=f"Each generated token adds {describe_each(shown)}.",
        numbers=claim_numbers({model: added.get(model) for model in traits}, "low"),
        figure="decoding-state",
    )
