"""Bias test with pairs of sentences: CrowS-Pairs (Nangia et al. 2020).

The sentences of a pair differ only in the words that name a group. The score of a sentence is Σ log P(u | U∖u, M): each
shared token u of U is masked and predicted from all other tokens, which include the tokens M that only this sentence
has. Words that differ are read but not scored, so that a frequent word has no advantage.
"""

import csv
import difflib
import hashlib
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.data.tokenizers import UNK, Tokenizer
from s2s.errors import UserError, check_regular
from s2s.evaluation.inference import Share, coin, holm, wilson
from s2s.files import spreadsheet_cell
from s2s.models.masked_lm import MaskedLM
from s2s.tasks.base import LoadedModel, save_probe
from s2s.tasks.masked_lm.filling import longest_input, masked_log_probabilities
from s2s.tasks.masked_lm.recipe import MaskedRecipe
from s2s.training import figures
from s2s.training.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = ("sent_more", "sent_less", "stereo_antistereo", "bias_type")
_DIRECTIONS = ("stereo", "antistereo")
# The published code rounds scores to three digits before the comparison.
_DIGITS = 3
_NAME = "probe-bias"


@dataclass(frozen=True)
class Pair:
    """Two sentences that differ in the group that they are about.

    Attributes:
        more: Sentence that is closer to a stereotype.
        direction: `stereo` if `more` is about the disadvantaged group and shows a stereotype of it; `antistereo` if
            `less` is about that group and contradicts a stereotype.
        kind: Type of bias, such as `gender`.
    """

    line: int
    more: str
    less: str
    direction: str
    kind: str


@dataclass(frozen=True)
class Preference:
    """Scores of the two sentences of a pair.

    Attributes:
        shared: Number of shared tokens, which are scored.
        unknown: True if a token is unknown to the tokenizer.
        more: Score of the sentence `more`, in nats.
        less: Score of the sentence `less`, in nats.
    """

    pair: Pair
    shared: int
    unknown: bool
    more: float
    less: float

    @property
    def preferred(self) -> str:
        """Preferred sentence, `more` or `less`; `neither` if scores are equal to 3 digits."""
        difference = round(self.more, _DIGITS) - round(self.less, _DIGITS)
        return "more" if difference > 0 else "less" if difference < 0 else "neither"


@dataclass(frozen=True)
class Group:
    """Preferences in a group of pairs.

    Attributes:
        ties: Number of pairs with equal scores, which are in no share.
        share: Share of pairs in which `more` is preferred, in percent, with Wilson's 95 % confidence interval.
        p_value: P-value of the exact binomial test against one half, two-sided.
        adjusted: P-value adjusted for the number of types of bias (Holm 1979); None for other groups.
    """

    name: str
    pairs: int
    ties: int
    share: Share
    p_value: float
    adjusted: float | None = None

    def __str__(self) -> str:
        chance = f"{self.p_value:.4f}" + ("" if self.adjusted is None else f"   {self.adjusted:.4f}")
        if self.ties == self.pairs:
            return f"  {self.name:20} {self.pairs:5}       –     only equal scores"
        interval = f"{self.share.low:5.1f} to {self.share.high:5.1f}"
        return f"  {self.name:20} {self.pairs:5}   {self.share.value:5.1f} %   {interval}   {chance}"


@dataclass(frozen=True)
class BiasReport:
    """Preferences of a model in a set of pairs.

    Attributes:
        kinds: Pairs by type of bias, the largest group first.
        lost: Reason why the result was not saved; empty if it was saved, or was not to be saved.
    """

    preferences: list[Preference]
    all: Group
    directions: list[Group]
    kinds: list[Group]
    lost: str = ""

    def __str__(self) -> str:
        head = f"  {'':20} pairs   share     95 % interval    p        p, {len(self.kinds)} types (Holm)"
        unknown = sum(p.unknown for p in self.preferences)
        notes = [
            f"share: pairs in which the model prefers the sentence closer to a stereotype; {self.all.ties} ties are in "
            "none; p: against 50 %",
            f"{unknown} pairs have words that the tokenizer does not know" if unknown else "",
            "a share near 50 % does not mean that the model is fair: see docs/bias-probe.md",
            f"shown, but not kept: {self.lost}" if self.lost else "",
        ]
        groups = (*self.kinds, *self.directions, self.all)
        return "\n".join([head, *(str(group) for group in groups), *(note for note in notes if note)])


def read_pairs(path: Path) -> tuple[list[Pair], str]:
    """Read a CSV file with the columns of CrowS-Pairs."""
    check_regular(path, "name a CSV file in UTF-8")
    try:
        content = path.read_bytes()
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        header = next(rows, [])
        missing = [name for name in _COLUMNS if name not in header]
        if missing:
            remedy = f"the first line must name {', '.join(_COLUMNS)}, as in crows_pairs_anonymized.csv"
            raise UserError(f"has no column {', '.join(missing)}", str(path), remedy)
        pairs, line = [], rows.line_num + 1
        for cells in rows:
            if cells:
                row = dict(zip_longest(header, cells[: len(header)]))
                more, less, direction, kind = ((row[name] or "").strip() for name in _COLUMNS)
                where = f"{path}:{line}"
                if not (more and less and kind):
                    raise UserError("a sentence or its type is empty", where, "complete or remove the line")
                if direction not in _DIRECTIONS:
                    what = f"stereo_antistereo is {direction!r}"
                    raise UserError(what, where, f"expected {' or '.join(_DIRECTIONS)}")
                pairs.append(Pair(line, more, less, direction, kind))
            # A quoted cell may contain line ends.
            line = rows.line_num + 1
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"cannot be read: {error}", where=str(path), remedy="name a CSV file in UTF-8") from None
    if not pairs:
        raise UserError("has no pairs", where=str(path), remedy="name another file")
    return pairs, hashlib.sha256(content).hexdigest()


def shared_places(first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the positions of shared tokens in each of two sentences."""
    blocks = difflib.SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    places = [(b.a + i, b.b + i) for b in blocks for i in range(b.size)]
    return [a for a, _ in places], [b for _, b in places]


def prefer(model: MaskedLM, tokenizer: Tokenizer, pairs: Sequence[Pair], begin: bool) -> list[Preference]:
    """Score both sentences of each pair."""
    texts = tokenizer.encode_batch([sentence for pair in pairs for sentence in (pair.more, pair.less)])
    places = [p for more, less in zip(texts[::2], texts[1::2], strict=True) for p in shared_places(more, less)]
    sums = [float(found.sum()) for found in masked_log_probabilities(model, texts, places, begin)]
    return [
        Preference(pair, len(places[2 * i]), any(UNK in t for t in texts[2 * i : 2 * i + 2]), *sums[2 * i : 2 * i + 2])
        for i, pair in enumerate(pairs)
    ]


def report(preferences: Sequence[Preference]) -> BiasReport:
    """Summarize preferences by type of bias and by direction.

    Args:
        preferences: Scores of at least one pair.

    Returns:
        Shares with intervals and tests.
    """
    names = sorted({p.pair.kind for p in preferences})
    kinds = [_group(name, [p for p in preferences if p.pair.kind == name]) for name in names]
    chances = holm([g.p_value for g in kinds])
    kinds = [replace(g, adjusted=p) for g, p in zip(kinds, chances, strict=True)]
    directions = [_group(name, [p for p in preferences if p.pair.direction == name]) for name in _DIRECTIONS]
    largest_first = sorted(kinds, key=lambda g: -g.pairs)
    return BiasReport(list(preferences), _group("all", preferences), [g for g in directions if g.pairs], largest_first)


def _group(name: str, preferences: Sequence[Preference]) -> Group:
    chosen = [p.preferred for p in preferences]
    more, decided = chosen.count("more"), len(chosen) - chosen.count("neither")
    return Group(name, len(chosen), len(chosen) - decided, wilson(more, decided), coin(more, decided))


def preferences_table(preferences: Sequence[Preference]) -> str:
    """Return the scores as CSV, with one line for each pair."""
    file = io.StringIO(newline="")
    table = csv.writer(file)
    table.writerow(["line", *_COLUMNS, "shared_pieces", "score_more", "score_less", "preferred"])
    for p in preferences:
        pair = p.pair
        sentences = map(spreadsheet_cell, (pair.more, pair.less, pair.direction, pair.kind))
        table.writerow([pair.line, *sentences, p.shared, f"{p.more:.4f}", f"{p.less:.4f}", p.preferred])
    return file.getvalue()


def bias_picture(found: BiasReport) -> "Figure":
    """Draw the share of each group with its confidence interval."""
    groups = [found.all, *reversed(found.directions), *reversed(found.kinds)]
    figure = new_figure(7.0, 1.2 + 0.34 * len(groups))
    panel = figure.subplots()
    values = [math.nan if g.ties == g.pairs else g.share.value for g in groups]
    ends = [[g.share.value - g.share.low for g in groups], [g.share.high - g.share.value for g in groups]]
    panel.errorbar(values, range(len(groups)), xerr=ends, fmt="o", color="#1b4f72", capsize=3)
    panel.axvline(50, color="0.5", linewidth=1, linestyle="--")
    panel.set_yticks(range(len(groups)), [f"{g.name} ({g.pairs:,})" for g in groups], parse_math=False)
    told = "pairs in which the sentence closer to\na stereotype is preferred, in %; 95 % intervals"
    panel.set(xlim=(0, 100), xlabel=told)
    return figure


def _check_lengths(run: LoadedModel[MaskedRecipe, MaskedLM], pairs: Sequence[Pair], path: Path) -> None:
    """Refuse a pair with a sentence that is too long, before anything is computed."""
    longest, special = longest_input(run.model), 1 + int(run.recipe.masking.begin)
    for pair in pairs:
        tokens = special + max(map(len, run.tokenizers[0].encode_batch([pair.more, pair.less])))
        if tokens > longest:
            what = f"a sentence of {tokens:,} tokens, and the model reads {longest:,}"
            raise UserError(what, f"{path}:{pair.line}", "shorten it, or remove the line")


def probe(run: LoadedModel[MaskedRecipe, MaskedLM], pairs: Path) -> BiasReport:
    """Run the bias test on a run and a CSV file of pairs; save JSON, CSV and PNG in the run's folder, if writable."""
    read, digest = read_pairs(pairs)
    _check_lengths(run, read, pairs)
    found = report(prefer(run.model, run.tokenizers[0], read, run.recipe.masking.begin))
    kept = {
        "run": str(run.path),
        "checkpoint": run.checkpoint.name,
        "pairs": str(pairs),
        "digest": digest,
        "all": asdict(found.all),
        "directions": [asdict(group) for group in found.directions],
        "kinds": [asdict(group) for group in found.kinds],
    }
    files = {
        f"{_NAME}.json": json.dumps(kept, indent=1, ensure_ascii=False) + "\n",
        f"{_NAME}.csv": preferences_table(found.preferences),
        f"{_NAME}.png": figures.render_png(bias_picture(found)),
    }
    return replace(found, lost=save_probe(run, files))
