"""Analyse work, span, speed-up by threads, and training speed."""

from collections.abc import Mapping
from dataclasses import replace

from s2s.comparison.questions.parallelism.figures import count_figures, law, tables, time_figures
from s2s.comparison.questions.parallelism.seen import TYPICAL, Models, Seen, benchmarks, brent
from s2s.comparison.reporting import filled, verdict
from s2s.comparison.results import Verdict
from s2s.comparison.spec import Analysis, Comparison, Trials
from s2s.comparison.speed_benchmark import SpeedBenchmark, assess_count, at_best, by_round, over_rounds
from s2s.comparison.workload import UNFUSED
from s2s.evaluation.gates import Assessment
from s2s.evaluation.inference import growth


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Compare sequential steps, parallelism and training speed."""
    models = {}
    for model in comparison.models:
        counts = next((own for trial, own in measured.items() if (trial.model, trial.part) == (model, "work")), None)
        models[model] = Seen(counts, by_round(measured, model))
    ranked = benchmarks(models)
    verdicts = [
        (_sequential(model, models), _parallel(model, models), _speed(model, models, ranked)) for model in models
    ]
    return Analysis(
        findings=[each for of_model in verdicts for each in of_model],
        figures=[*count_figures(models), *time_figures(models)],
        tables=filled(*tables(models, ranked)),
        seeds=[comparison.seeds[0]],
    )


def _counts(models: Models, what: str, key: str, n: int | None = None) -> dict[str, float]:
    """A count of all models at a length, or at the longest."""
    found = {model: seen.counted(UNFUSED.name, what, key) for model, seen in models.items()}
    return {model: own[n or max(own)] for model, own in found.items() if own and (n or max(own)) in own}


def _sequential(model: str, models: Models) -> Verdict | None:
    depths = models[model].counted(UNFUSED.name, "training", "depth")
    if not depths:
        return None
    longest = max(depths)
    quantity = f"longest chain of dependent operations, forward and backward, at n = {longest:,}"

    def shortness(what: str, n: int | None = None) -> dict[str, float]:
        # how many layers were best for quality is not the question: chains that do not grow are all as the shortest
        depths = _counts(models, what, "depth", n)
        level = {name for name in depths if _level(models[name], what)}
        shortest = min((depths[name] for name in level), default=0.0)
        return {name: 1 / (shortest if name in level else depth) for name, depth in depths.items()}

    # all other lengths are one choice: where chains keep their order, each of them says so again
    shorter = [shortness("training", n) for n in depths if n != longest]
    forms = {"forward pass alone": shortness("forward", longest), "in generation": shortness("generating")}
    variations = {"other lengths": shorter} | {name: [figures] for name, figures in forms.items()}
    whats = {"chain in training": "training", "chain in generation": "generating"}
    laws = {name: law(models[model].counted(UNFUSED.name, what, "depth")) for name, what in whats.items()}
    found = replace(assess_count(model, shortness("training", longest), variations), facts=laws)
    return verdict("sequential steps", model, depths[longest], "operations", quantity, found, "depth")


def _level(seen: Seen, what: str) -> bool:
    """Return True if a chain does not grow with length; False below three lengths."""
    depths = seen.counted(UNFUSED.name, what, "depth")
    return len(depths) > 2 and growth(list(depths), list(depths.values())).law == "constant"


def _parallel(model: str, models: Models) -> Verdict | None:
    seen = models[model]
    own = seen.parallelism()
    if not own:
        return None
    shortest, longest = min(own), max(own)
    facts: dict[str, float | str] = {
        f"times as much as at n = {shortest}": float(f"{own[longest] / own[shortest]:.3g}")
    }
    reasons = []
    for place in seen.places[1:]:
        gains = seen.gains(place)
        both = [n for n in gains if n in own and gains[n]]
        if not both:
            continue
        if not seen.steady(place).passed:
            reasons.append(f"{place}: {seen.steady(place).sentence}")
            continue
        n = max(both)
        gain, bounds = over_rounds(list(gains[n].values())), brent(own[n], seen.processors(place))
        facts[f"{place}, times as fast as one thread at n = {n:,}"] = round(gain.value, 2)
        facts[f"{place}, Brent's bounds"] = f"{bounds[0]:.2f} to {bounds[1]:.2f}"
    quantity = f"work over span in training on one pair of n = {longest:,}: FLOPs that could be done at once"
    # more work on the same span is no merit, so nobody is better
    found = Assessment("", reasons=tuple(reasons), facts=facts)
    return verdict("parallel computation", model, own[longest], "", quantity, found, "work-span")


def _speed(model: str, models: Models, benchmarks: Mapping[str, SpeedBenchmark]) -> Verdict | None:
    benchmark, *_ = [*benchmarks.values(), None]
    if benchmark is None or not benchmark.speeds.get(model):
        return None
    found, (ranked, *others) = benchmark.assess(model), benchmarks
    quantity = f"target tokens a second, forward and backward, at {ranked}, as many tokens in every batch"
    quantity += at_best(list(benchmark.references[model]))
    # nothing is said where the model, or the one that it is compared with, leaves its device without work
    checks = {
        name: models[name].busy(benchmark.places[name], TYPICAL)
        for name in (model, benchmark.best_other(model))
        if name
    }
    idle = [f"{name}: {check.sentence}" for name, check in checks.items() if check and not check.passed]
    if idle:
        found = Assessment("not measurable", found.rival, reasons=tuple(idle))
    else:
        found = replace(found, variations=benchmark.robustness(model, {name: benchmarks[name] for name in others}))
    return verdict("training speed", model, benchmark.speed(model), "tokens/s", quantity, found, "time-tokens")
