"""Numbers of a comparison, computed a second time: from what the methods say and the literature, by other means.

Nothing of the product is imported here. Loops stand where the product has arrays, all cases are counted where it has a
formula, and what it wrote itself is scipy's.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
from scipy import stats

Interval = tuple[float, float, float]


def student(values: Sequence[float]) -> Interval:
    """The mean and the ends of Student's 95 % interval."""
    middle, count = math.fsum(values) / len(values), len(values)
    half = float(stats.t.ppf(0.975, count - 1)) * statistics.stdev(values) / math.sqrt(count)
    return middle, middle - half, middle + half


def median(values: Sequence[float]) -> Interval:
    """The median and Hettmansperger and Sheather's 95 % interval, for six to eight values."""
    x, count = sorted(values), len(values)
    # the coverage from the lowest to the highest value, and from the second on each side
    wide, narrow = 1 - 2 / 2**count, 1 - 2 * (1 + count) / 2**count
    share = (wide - 0.95) / (wide - narrow)
    inward = (count - 1) * share / (1 + (count - 2) * share)
    return statistics.median(x), x[0] + inward * (x[1] - x[0]), x[-1] - inward * (x[-1] - x[-2])


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Slope, height at 0 and R² of the line with the least squares, from the sums that make it."""
    count, total, height = len(x), math.fsum(x), math.fsum(y)
    square, joint = math.fsum(a * a for a in x), math.fsum(a * b for a, b in zip(x, y, strict=True))
    slope = (count * joint - total * height) / (count * square - total**2)
    start = (height - slope * total) / count
    missed = math.fsum((b - start - slope * a) ** 2 for a, b in zip(x, y, strict=True))
    spread = math.fsum((b - height / count) ** 2 for b in y)
    return slope, start, 1 - missed / spread if spread else 1.0


def exponent(n: Sequence[float], values: Sequence[float]) -> tuple[float, float, float, float]:
    """The b of values ~ n^b by `np.polyfit`, its R², by which share the furthest value is away, b of the last two."""
    x, y = np.log(n), np.log(values)
    slope, start = np.polyfit(x, y, 1)
    factors = np.asarray(values) / (math.exp(start) * np.asarray(n, dtype=float) ** slope)
    # by how many times, in either direction
    furthest = max(factors.max(), 1 / factors.min()) - 1
    return float(slope), float(np.corrcoef(x, y)[0, 1] ** 2), float(furthest), float((y[-1] - y[-2]) / (x[-1] - x[-2]))


def trend(rounds: Sequence[int], values: Sequence[float]) -> float:
    """Share of all orders of the values that go with the logarithm of the rounds begun as closely, up or down."""
    at = [math.log(1 + each - rounds[0]) for each in rounds]

    def along(order: Sequence[float]) -> float:
        return round(abs(sum(a * b for a, b in zip(at, order, strict=True)) - sum(at) * statistics.fmean(order)), 12)

    ways = [along(order) for order in permutations(values)]
    return sum(each >= ways[0] for each in ways) / len(ways)


def holm(p: Sequence[float]) -> list[float]:
    """Of the p-values that are no larger than one, each counts as often as there are ones that are no smaller."""
    ranked = sorted(range(len(p)), key=lambda i: p[i])
    return [
        min(1.0, max((len(p) - place) * p[i] for place, i in enumerate(ranked[: ranked.index(each) + 1])))
        for each in range(len(p))
    ]


def law_by_akaike(n: Sequence[float], counts: Sequence[float]) -> tuple[str, float]:
    """The law with the lowest Akaike criterion, and its rate; a law misses whole counts by a twelfth at least.

    A count that is no larger at the end does not grow.
    """
    logs, count = [math.log2(each) for each in n], len(n)
    slope, start, _ = line(n, counts)
    doubling, at_one, _ = line(logs, counts)
    power, scale, _ = line([math.log(each) for each in n], [math.log(each) for each in counts])
    level = statistics.fmean(counts)
    laws = {
        "constant": (0.0, [level] * count, 1),
        "logarithmic": (doubling, [at_one + doubling * each for each in logs], 2),
        "linear": (slope, [start + slope * each for each in n], 2),
        "power": (power, [math.exp(scale) * each**power for each in n], 2),
    }

    def akaike(name: str) -> float:
        _, fitted, free = laws[name]
        missed = statistics.fmean((a - b) ** 2 for a, b in zip(counts, fitted, strict=True))
        return count * math.log(max(missed, 1 / 12)) + 2 * free

    best = "constant" if counts[-1] <= counts[0] else min(laws, key=akaike)
    return best, laws[best][0]


def half_distance(distances: Sequence[float], right: Sequence[float], chance: Sequence[float]) -> float:
    """Where the way from the first share of right answers to chance is half gone, straight on a logarithmic axis."""
    gone = [
        (share - none) / (right[0] - chance[0]) if right[0] > chance[0] else 0.0
        for share, none in zip(right, chance, strict=True)
    ]
    first = next((i for i, left in enumerate(gone) if left <= 0.5), None)
    if first is None:
        return float(distances[-1])
    if first == 0:
        return float(distances[0])
    # the place on the axis where the line between two neighbours is at one half
    return float(2 ** np.interp(-0.5, [-gone[first - 1], -gone[first]], np.log2(distances[first - 1 : first + 1])))


# of five runs, both ends lie on the same side of the median in 2 of 32 cases
FEWEST = 6


def median_by_product_limit(ended: Sequence[float], waited: Sequence[float]) -> tuple[float | None, ...]:
    """Kaplan and Meier's median, with the ends of its 95 % interval: Greenwood's variance of log(−log S).

    Fewer than `FEWEST` runs have no interval.
    """
    found: list[float | None] = [None, None, None]
    left, variance = Fraction(1), Fraction(0)
    for time in sorted(set(ended)):
        risk = sum(each >= time for each in (*ended, *waited))
        died = sum(each == time for each in ended)
        left *= Fraction(risk - died, risk)
        if risk == died:
            shares = [0.0, 0.0, 0.0]
        else:
            variance += Fraction(died, risk * (risk - died))
            log = math.log(left)
            spread = float(stats.norm.ppf(0.975)) * math.sqrt(variance) / abs(log)
            shares = [float(left), float(left) ** math.exp(spread), float(left) ** math.exp(-spread)]
        found = [time if old is None and share <= 0.5 else old for old, share in zip(found, shares, strict=True)]
    return tuple(found if len(ended) + len(waited) >= FEWEST else [found[0], None, None])


def median_reach(reaches: Sequence[tuple[float, bool]], longest: float) -> list[float | None]:
    """The median of (distance, whether it was seen), with its ends; what is further than `longest` is not known."""
    ended, waited = ([far for far, seen in reaches if seen == which] for which in (True, False))
    found = [longest if end is None else min(longest, end) for end in median_by_product_limit(ended, waited)]
    return found if len(reaches) >= FEWEST else [found[0], None, None]


def log_rank_by_counting(first: Sequence[tuple[float, bool]], second: Sequence[tuple[float, bool]]) -> float:
    """Share of all ways to deal the runs out in which as many more or fewer ended than expected (Mantel 1966).

    Runs are (time, whether it ended); sums are whole numbers, so equal ones are equal.
    """
    runs = [*first, *second]
    times = sorted({time for time, ended in runs if ended})
    risks = [{i for i, (each, _) in enumerate(runs) if each >= time} for time in times]
    deaths = [{i for i, run in enumerate(runs) if run == (time, True)} for time in times]
    # everything times a number that all risk sets divide
    whole = math.lcm(*map(len, risks))

    def apart(chosen: set[int]) -> int:
        ended = sum(len(chosen & died) for died in deaths)
        expected = [
            len(died) * len(chosen & risk) * (whole // len(risk)) for died, risk in zip(deaths, risks, strict=True)
        ]
        return abs(ended * whole - sum(expected))

    seen = apart(set(range(len(first))))
    ways = [apart(set(each)) for each in combinations(range(len(runs)), len(first))]
    return sum(each >= seen for each in ways) / len(ways)


def cut_13a(text: str) -> list[str]:
    """Words and marks as `mteval-v13a.pl` tells them apart: Western text, marks within numbers kept."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for name, mark in (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")):
        text = text.replace(name, mark)
    text = re.sub(r"""([!"#$%&()*+/:;<=>?@\[\\\]^_`{|}~])""", r" \1 ", f" {text} ")
    # a full stop or comma stays only between two digits; a hyphen leaves a digit before it
    text = re.sub(r"(?<![0-9])([.,])", r" \1 ", text)
    text = re.sub(r"([.,])(?![0-9])", r" \1 ", text)
    return re.sub(r"(?<=[0-9])-", " - ", text).split()


def ngrams(words: Sequence[str]) -> Iterator[Counter]:
    """Of one word, of two, of three and of four."""
    for n in (1, 2, 3, 4):
        yield Counter(zip(*(words[i:] for i in range(n)), strict=False))


def bleu_counts(texts: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """By sentence: words written, words wanted; and for each n, n-grams that are right, and that were written."""
    rows = []
    for text, reference in zip(texts, references, strict=True):
        written, wanted = cut_13a(text), cut_13a(reference)
        row = [len(written), len(wanted)]
        for one, two in zip(ngrams(written), ngrams(wanted), strict=True):
            row += [sum(min(count, two[gram]) for gram, count in one.items()), sum(one.values())]
        rows.append(row)
    return np.array(rows)


def bleu(sums: np.ndarray) -> np.ndarray:
    """BLEU (Papineni et al. 2002) of each row of summed counts, in percent.

    Where no n-gram of a size is right, 1/2 of one is taken for it, the next time 1/4, and so on (Chen & Cherry 2014,
    method 3).
    """
    sums = np.atleast_2d(np.asarray(sums, dtype=float))
    logs, halvings = np.zeros(len(sums)), np.zeros(len(sums))
    for right, written in (sums[:, i : i + 2].T for i in range(2, 10, 2)):
        halvings += right == 0
        with np.errstate(divide="ignore"):
            logs += np.log(np.where(right == 0, 0.5**halvings, right) / written)
    return 100 * np.exp(logs / 4 + np.minimum(0, 1 - sums[:, 1] / sums[:, 0]))


def over_both(
    scores: Sequence[Sequence[float]], drawn: Sequence[np.ndarray], sentences: int
) -> tuple[float, float, float]:
    """The difference of two systems, its standard error and degrees of freedom, in doubt about seeds and sentences.

    How runs lie apart holds the architecture's spread over seeds and each run's luck with the sentences; how a mean of
    runs moves from one draw of sentences to another holds the sentences' own difficulty and that luck again. The luck
    is what moves runs of one system differently from each other: variances less covariances.

    Args:
        scores: of each system, its runs' scores.
        drawn: of each system, its runs' scores (rows) in the same draws of sentences (columns).
        sentences: how many there are.
    """
    over_seeds, luck, moved = [], 0.0, np.zeros(drawn[0].shape[1])
    for own, many, sign in zip(scores, drawn, (-1, 1), strict=True):
        together = np.cov(many)
        of_pairs = [together[i, j] for i, j in combinations(range(len(own)), 2)]
        luck += (np.mean(np.diag(together)) - np.mean(of_pairs)) / len(own)
        over_seeds.append(np.var(own, ddof=1) / len(own))
        moved += sign * many.mean(axis=0)
    seeds, of_sentences = sum(over_seeds), np.var(moved, ddof=1)
    total = max(seeds + of_sentences - luck, seeds, of_sentences)
    parts = [(each, len(own) - 1) for each, own in zip(over_seeds, scores, strict=True)]
    parts.append((total - seeds, sentences - 1))
    freedom = total**2 / sum(part**2 / free for part, free in parts)
    return float(np.mean(scores[1]) - np.mean(scores[0])), math.sqrt(total), freedom
