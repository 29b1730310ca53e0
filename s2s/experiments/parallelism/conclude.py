"""How much could be done at once, how much of that threads give, and who is faster."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from s2s.evaluation.gates import Judgement
from s2s.evaluation.inference import Estimate, growth
from s2s.experiments.contest import Cells, Conclusion, Contest
from s2s.experiments.parallelism.figures import count_figures, law, tables, time_figures
from s2s.experiments.parallelism.seen import TYPICAL, Models, Seen, brent, races
from s2s.experiments.presenting import filled, finding
from s2s.experiments.rounds import Race, at_best, by_round, counted_standing, over_rounds
from s2s.experiments.verdicts import in_words
from s2s.experiments.workload import UNFUSED
from s2s.results import Finding


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """What could be done at once, what threads give, what grows how, and who is faster."""
    models = {}
    for model in contest.models:
        counts = next((own for cell, own in measured.items() if (cell.model, cell.part) == (model, "work")), None)
        models[model] = Seen(counts, by_round(measured, model))
    ranked = races(models)
    cells = [(_sequential(model, models), _parallel(model, models), _speed(model, models, ranked)) for model in models]
    return Conclusion(
        findings=[cell for of_model in cells for cell in of_model],
        figures=[*count_figures(models), *time_figures(models)],
        tables=filled(*tables(models, ranked)),
        seeds=[contest.seeds[0]],
    )


def _counts(models: Models, what: str, key: str, n: int | None = None) -> dict[str, float]:
    """A count of all models at a length, or at the longest."""
    found = {model: seen.counted(UNFUSED.name, what, key) for model, seen in models.items()}
    return {model: own[n or max(own)] for model, own in found.items() if own and (n or max(own)) in own}


def _sequential(model: str, models: Models) -> Finding | None:
    depths = models[model].counted(UNFUSED.name, "training", "depth")
    if not depths:
        return None
    longest = max(depths)
    quantity = f"longest chain of dependent operations, forward and backward, at n = {longest:,}"
    laws = [law(models[model].counted(UNFUSED.name, what, "depth")) for what in ("training", "generating")]

    def shortness(what: str, n: int | None = None) -> dict[str, float]:
        # how many layers were best for quality is not the question: chains that do not grow are all as the shortest
        depths = _counts(models, what, "depth", n)
        level = {name for name in depths if _level(models[name], what)}
        shortest = min((depths[name] for name in level), default=0.0)
        return {name: 1 / (shortest if name in level else depth) for name, depth in depths.items()}

    # all other lengths are one choice: where chains keep their order, each of them says so again
    shorter = [shortness("training", n) for n in depths if n != longest]
    forms = {"forward pass alone": shortness("forward", longest), "in generation": shortness("generating")}
    verdict = f"{laws[0]} in training; {laws[1]} in generation"
    variations = {"other lengths": shorter} | {name: [figures] for name, figures in forms.items()}
    said = counted_standing(model, verdict, shortness("training", longest), variations)
    return finding("sequential steps", model, depths[longest], "operations", quantity, said, "depth")


def _level(seen: Seen, what: str) -> bool:
    """Whether a chain does not grow with length; of fewer than three lengths nobody knows."""
    depths = seen.counted(UNFUSED.name, what, "depth")
    return len(depths) > 2 and growth(list(depths), list(depths.values())).law == "constant"


def _parallel(model: str, models: Models) -> Finding | None:
    own = models[model].parallelism()
    if not own:
        return None
    shortest, longest = min(own), max(own)
    parts = [f"{own[longest] / own[shortest]:.3g} times as much as at n = {shortest}"]
    parts += [_gain_in_words(models[model], place) for place in models[model].places[1:]]
    quantity = f"work over span in training on one pair of n = {longest:,}: FLOPs that could be done at once"
    verdict = "; ".join(filter(None, parts))
    # more work on the same span is no merit, so nobody is better
    return finding("parallel computation", model, own[longest], "", quantity, verdict, "work-span")


def _gain_in_words(seen: Seen, place: str) -> str:
    gains, parallelism = seen.gains(place), seen.parallelism()
    both = [n for n in gains if n in parallelism and gains[n]]
    if not both:
        return ""
    steady, n = seen.steady(place), max(both)
    if not steady.passed:
        return f"what {place} gain is not measurable: the machine changed: {steady.sentence}"
    low, high = brent(parallelism[n], seen.processors(place))
    times = {n: over_rounds(list(own.values())) for n, own in sorted(gains.items()) if own}
    return (
        f"{place} made it {in_words(times[n], 2)} times as fast as one thread at n = {n:,}, Brent's bounds are "
        f"{low:.2f} and {high:.2f}; {from_where(times)}"
    )


def from_where(gains: Mapping[int, Estimate]) -> str:
    """From which length on more processors help, and what they do at the shortest length.

    They help from where on all intervals, of each length and of all longer ones, lie above 1.

    Args:
        gains: how many times as fast, by length, rising.
    """
    first = f"{in_words(next(iter(gains.values())), 2)} times at n = {next(iter(gains)):,}"
    if len(gains) == 1:
        return first
    helped = list(takewhile(lambda n: (gains[n].low or 0.0) > 1, reversed(list(gains))))
    if len(helped) == len(gains):
        return f"{first}, faster at every length"
    return f"{first}, faster from n = {helped[-1]:,} on" if helped else f"{first}, not surely faster at the longest"


def _speed(model: str, models: Models, races: Mapping[str, Race]) -> Finding | None:
    race, *_ = [*races.values(), None]
    if race is None or not race.speeds.get(model):
        return None
    said, (ranked, *others) = race.judged(model), races
    quantity = f"target tokens a second, forward and backward, at {ranked}, as many tokens in every batch"
    quantity += at_best(list(race.references[model]))
    idle = _idle(model, models, race)
    said = idle or replace(said, variations=race.kept(model, {name: races[name] for name in others}))
    return finding("training speed", model, race.speed(model), "tokens/s", quantity, said, "time-tokens")


def _idle(model: str, models: Models, race: Race) -> Judgement | None:
    """That nothing is said where the model, or the one that it is compared with, leaves its device without work."""
    for name in filter(None, (model, race.best_other(model))):
        gate = models[name].busy(race.places[name], TYPICAL)
        if gate and not gate.passed:
            said = f"{race.places[name]} waits for {name}'s operations to be launched: {gate.sentence}"
            return Judgement("not measurable", f"not measurable: {said}")
    return None
