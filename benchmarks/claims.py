"""Write the tables of claims of README.md and docs/comparison.md, and the picture of both, from kept results.

`python -m benchmarks.comparison` does it, with all that it writes itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from string import Formatter

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from benchmarks.keeping import recipe_of
from benchmarks.results import compare_means, ladder_scores, ladder_updates
from s2s.comparison.claims import Decision, Pair, decide, describe_each, traits
from s2s.comparison.matching import settings_of
from s2s.comparison.plans import CLAIMS
from s2s.comparison.report.claims import LEGEND, WORDS, ClaimRow, NumberCell, claim_rows, device_in_words
from s2s.comparison.report.drawing import kept_comparison
from s2s.comparison.report.plots import GREY, GRID, INK, PALETTE
from s2s.comparison.report.table import group_by_name
from s2s.comparison.results import RESULT, Figure, Result, Summary, read_result
from s2s.evaluation.differences import LEVEL
from s2s.recipe.installed import module_of
from s2s.training.fonts import use_installed_fonts

_STEPS = 32
_BOTH = "LSTM {lstm}, Transformer {transformer}"
# Measured numbers of each claim in a few words, for README: text of a model's cell by its name, `NAME_note` its note.
_IN_SHORT = {
    "waits": f"sequential operations per token: {_BOTH}",
    "trains-faster": "LSTM with attention {lstm-attention}, Transformer {transformer} thousand tokens/s",
    "memory": "{transformer} MiB for 2,048 tokens; {transformer_note} with attention weights stored",
    "cache": f"bytes per token: {_BOTH}",
    "forgets": "trained on 32 symbols, an LSTM falls half way to chance only at {lstm} symbols",
    "learns-late": f"updates until learned: {_BOTH}",
    "vanishes": f"gradient left after {_STEPS} steps: RNN {{rnn_left}} %, LSTM {{lstm_left}} %",
    "copies": f"symbols copied: {_BOTH}",
    "recalls": f"pairs recalled (one is trivial): {_BOTH}",
    "bits": f"bits conveyed, at least: {_BOTH}",
    "tracks": f"symbols tracked: {_BOTH}",
    "any-length": "BLEU kept at 31 to 86 words: Transformer {transformer} %, LSTM with attention {lstm-attention} %",
    "order": "without positions, the loss rises by {transformer} nats",
    "translates-best": "BLEU: Transformer {transformer}, convolutions {conv}; Multi30k, 3,000 updates: Transformer "
    "{ladder_transformer}, LSTM with attention {ladder_lstm-attention}",
    "writes-cheaply": f"ms per token: RNN {{rnn}}, {_BOTH}",
    "scales": "doubling cuts the loss by {transformer} % (Transformer), {lstm-attention} % (LSTM with attention)",
    "transfers": "loss, at one rate: Transformer {transformer}, LSTM with attention {lstm-attention}, "
    "convolutions {conv}",
    "late-by-gradients": "RNN updates by gradient factor: {rnn} nearest 1, {rnn_note}",
    "generalizes": "right symbols at twice the length (%): sinusoidal positions {transformer}, {transformer_note}",
    "reaches-farther": "BLEU kept beyond (%): relative positions {transformer}, {transformer_note}",
}


_LADDER_CLAIM = CLAIMS["translates-best"]


@dataclass(frozen=True)
class KeptComparison:
    """A kept comparison with the claims that it decides."""

    folder: Path
    summary: Summary
    models: list[str]
    rows: Mapping[str, ClaimRow]

    @property
    def device(self) -> str:
        """Device in words."""
        return device_in_words(self.summary)

    @classmethod
    def of(cls, folder: Path) -> "KeptComparison":
        """Read a kept comparison."""
        summary, models, results = kept_comparison(folder)
        return cls(folder, summary, models, {row.claim.name: row for row in claim_rows(models, results)})


Machines = Mapping[str, Mapping[str, KeptComparison]]
"""Comparison that decides each claim on further devices, by device and claim."""


def _by_machine(folders: Sequence[Path]) -> tuple[list[KeptComparison], Machines]:
    """Return the comparisons on the device of the one with the most models, which is first, and those on others."""
    kept = sorted((KeptComparison.of(folder) for folder in folders), key=lambda each: -len(each.models))
    others: dict[str, dict[str, KeptComparison]] = {}
    for each in kept:
        if each.device != kept[0].device:
            own = others.setdefault(each.device, {})
            for name in each.rows:
                own.setdefault(name, each)
    return [each for each in kept if each.device == kept[0].device], others


def _decided(kept: Sequence[KeptComparison], machines: Machines) -> list[tuple[str, KeptComparison]]:
    """Return the claims with the comparisons whose numbers are shown."""
    shown = list[tuple[str, KeptComparison]]()
    for name in CLAIMS:
        elsewhere = [own[name] for own in machines.values() if name in own]
        first, *others = [each for each in kept if name in each.rows] or elsewhere[:1] or [None]
        if first:
            shown.append((name, first))
        if first and (first.rows[name].claim.verdict == "undecided" or _still_learning(first.rows[name])):
            shown += [(name, each) for each in others if each and each.rows[name].claim.verdict != "undecided"][:1]
    return shown


def _still_learning(row: ClaimRow) -> bool:
    """True if no model with a number had finished learning."""
    return all(cell.mark for cell in row.cells if cell.text not in ("", "–"))


def short_table(folders: Sequence[Path]) -> str:
    """Write the claims with one measured number in words and the verdict, for README."""
    first, machines = _by_machine(folders)
    heads = ["#", "claim", "measured", *_heads(first, machines, "holds here?")]
    rows = [f"|{'|'.join(heads)}|", "|---" * len(heads) + "|"]
    for name, kept in _decided(first, machines):
        row = kept.rows[name]
        texts = {cell.model: f"{cell.text}{cell.mark}" or cell.note for cell in row.cells}
        notes = {f"{cell.model}_note": cell.remark for cell in row.cells}
        if name == "vanishes":
            factors = {each.model: each.value for each in row.claim.numbers if each.value is not None}
            notes |= {f"{model}_left": f"{100 * factor**_STEPS:.2g}" for model, factor in factors.items()}
        if "(%)" in _IN_SHORT[name]:
            notes = {key: remark.replace(" %", "") for key, remark in notes.items()}
        if CLAIMS[name] is _LADDER_CLAIM:
            notes |= {f"ladder_{model}": text for model, text in _ladder_means(ladder_scores(), 1).items()}
        if not {field for _, field, _, _ in Formatter().parse(_IN_SHORT[name]) if field} <= texts.keys() | notes.keys():
            continue
        own = row.claim.verdict if kept in first else "–"
        others = (its[name].rows[name].claim.verdict if name in its else "–" for its in machines.values())
        verdicts = "|".join([own, *others])
        rows.append(f"|{row.number}|{row.claimed}|{_IN_SHORT[name].format(**texts, **notes)}|{verdicts}|")
    return "\n".join([*rows, ""])


def table(folders: Sequence[Path], place: str = "") -> str:
    """Write one table of the claims of several comparisons, with a column for each model, for docs/comparison.md.

    A list below the table has the sentence of each claim, because columns of long text make a table too wide for a
    page. A claim is shown as the comparison of the most models decides it. If that leaves it undecided, or none of the
    models had finished learning, a second row shows another comparison on the same device that decides it. Verdicts on
    another device have a column of their own.

    Args:
        folders: Folders of the comparisons.
        place: Path from the page to these folders.

    Returns:
        The table in Markdown, with a first line on the machine; then the sentences, and the commands behind them.
    """
    first, machines = _by_machine(folders)
    shown, models = _decided(first, machines), first[0].models
    own: dict[str, KeptComparison] = {}
    for name, each in shown:
        own.setdefault(name, each)
    # The verdict follows its claim, because a narrow window shows the first columns of a wide table.
    heads = ["claim, and what is measured", *_heads(first, machines, "holds here?")]
    heads += [f"`{model}`" for model in models]
    written = [
        f"Measured on {' and '.join([first[0].device, *machines])}. {LEGEND}",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
        *(_line(name, each, first, machines) for name, each in shown if CLAIMS[name].number <= _LADDER_CLAIM.number),
        _ladder_line(models, machines),
        *(_line(name, each, first, machines) for name, each in shown if CLAIMS[name].number > _LADDER_CLAIM.number),
        "",
        "What decides each claim:",
        "",
        *(line for name, each in own.items() for line in _reasons(name, each, first, machines, place)),
        _ladder_reason(),
        "",
        "Measured by:",
        "",
    ]
    used = [*first, *(each for its in machines.values() for each in its.values())]
    for each in {each.folder: each for each in used}.values():
        numbers = [
            CLAIMS[name].number
            for name in each.rows
            if (name, each) in shown or machines.get(each.device, {}).get(name) is each
        ]
        if numbers:
            written.append(f"- {_ranges(numbers)}: `{each.summary.command}`, {each.summary.measured_on([])}.")
            written += _measured_elsewhere(each, numbers)
    written.append(
        f"- {_LADDER_CLAIM.number} (the ladder): `s2s train recipes/multi30k_MODEL.yaml data.root=DIR seed=N`."
    )
    missing = [f"{text.number} ({text.experiment})" for name, text in CLAIMS.items() if name not in dict(shown)]
    if missing:
        written.append(f"- Not measured yet: {', '.join(missing)}.")
    return "\n".join([*written, ""])


def _measured_elsewhere(kept: KeptComparison, numbers: Sequence[int]) -> list[str]:
    """Write the machines of claims that were measured on another one than the comparison's."""
    found: dict[str, list[int]] = {}
    for row in kept.rows.values():
        if row.number in numbers and row.result.elsewhere(kept.summary):
            version = "" if row.result.codes else ", version of the code not recorded"
            found.setdefault(f"{' and '.join(row.result.machines)}{version}", []).append(row.number)
    return [f"- Of these, {_ranges(own)} on {where}." for where, own in found.items()]


def _ranges(numbers: Sequence[int]) -> str:
    """Join ascending numbers: `1–7, 12`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _heads(first: Sequence[KeptComparison], machines: Machines, question: str) -> list[str]:
    """Return the heads of the verdicts: the question, or that of each device if there are several."""
    devices = [first[0].device, *machines]
    return [question] if not machines else [f"{question.removesuffix(' here?')} on {device}?" for device in devices]


def _line(name: str, kept: KeptComparison, first: Sequence[KeptComparison], machines: Machines) -> str:
    row, models = kept.rows[name], first[0].models
    cells = {cell.model: cell for cell in row.cells}
    measured = f"{row.claim.measured} [{row.claim.unit}]" if row.claim.unit else row.claim.measured
    measured = f"{measured} {row.arrow}".rstrip()
    measured += "" if kept.models == models else f", {len(kept.models)} models"
    measured += "" if kept is first[0] or _corpus(kept) == _corpus(first[0]) else f", on {_corpus(kept)}"
    texts = [_cell(cells[model]) if model in cells else "–" for model in models]
    decided = [kept if kept in first else None, *(its.get(name) for its in machines.values())]
    words = [each.rows[name].word if each else "–" for each in decided]
    return f"| **{row.number} {row.claimed}**<br>{measured} | {' | '.join([*words, *texts])} |"


def _reasons(
    name: str, kept: KeptComparison, first: Sequence[KeptComparison], machines: Machines, place: str
) -> list[str]:
    """Return an item of a list for each comparison that decides a claim: verdict, link to the evidence, sentence."""
    own = {"": kept} if kept in first else {}
    others = [each for each in first if each is not kept and name in each.rows]
    own |= {f" on {_corpus(each)}": each for each in others}
    elsewhere = {f" on {device}": its[name] for device, its in machines.items() if name in its}
    items = []
    for where, each in (own | elsewhere).items():
        row = each.rows[name]
        evidence = f"[{row.word}]({place}{each.folder.name}/{row.result.experiment}/{RESULT})"
        changing = [choice for choice, stays in row.claim.stable.items() if not stays]
        exceptions = f" *Different with:* {group_by_name(changing, '; ')}." if changing else ""
        items.append(f"- **{row.number}** {evidence}{where}. {row.claim.sentence}{exceptions}")
    return items


def _ladder_decision() -> tuple[dict[str, list[float]], Decision]:
    """Decide whether the Transformer translates best, by the scores of each seed of the ladder."""
    scores = ladder_scores()
    pairs = compare_means(scores)
    tested = list[Pair]()
    for other in scores:
        difference, _ = pairs.compare("transformer", other)
        if difference:
            tested.append(Pair("transformer", other, difference.value, difference.p()))
    return scores, decide(tested)


def _ladder_line(models: Sequence[str], machines: Machines) -> str:
    """Write the row of the ladder's claim: means over seeds on Multi30k."""
    scores, decision = _ladder_decision()
    seeds = sorted({len(own) for own in scores.values()})
    measured = f"BLEU on the test set, lower-cased, within {ladder_updates():,} updates [BLEU] ↑"
    measured += f", on multi30k, {_span(seeds)} seeds"
    texts = _ladder_means(scores, 1)
    if decision.verdict != "undecided":
        pairs, best = compare_means(scores), max(scores, key=lambda model: mean(scores[model]))
        tied = [model for model in scores if model != best and (pairs.compare(best, model)[1] or 0.0) >= LEVEL]
        texts |= {model: f"**{texts[model]}**" for model in (best, *tied)}
    cells = [WORDS[decision.verdict], *("–" for _ in machines), *(texts.get(model, "–") for model in models)]
    return f"| **{_LADDER_CLAIM.number} {_LADDER_CLAIM.sentence}**<br>{measured} | {' | '.join(cells)} |"


def _ladder_reason() -> str:
    """Write the item of the list for the ladder's claim: verdict, link to the evidence, sentence."""
    scores, decision = _ladder_decision()
    pair, test = decision.pair, f"Welch's test, Holm's correction for {len(scores) - 1} pairs"
    ending = f"; {pair.behind} against {pair.ahead}: p = {decision.p:.2g} ({test})" if pair and decision.p else ""
    means = describe_each(_ladder_means(scores, 2))
    sentence = f"Within {ladder_updates():,} updates, mean BLEU over seeds is {means}{ending}."
    return f"- **{_LADDER_CLAIM.number}** [{WORDS[decision.verdict]}](ladder.md) on multi30k, the ladder. {sentence}"


def _ladder_means(scores: Mapping[str, list[float]], digits: int) -> dict[str, str]:
    return {model: f"{mean(own):.{digits}f}" for model, own in scores.items()}


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _corpus(kept: KeptComparison) -> str:
    """Return the name of the corpus of a comparison, without its owner on the hub."""
    return recipe_of(kept.folder)["data"]["corpus"].rpartition("/")[2]


def _cell(cell: NumberCell) -> str:
    remark = f" ({cell.remark})" if cell.text and cell.remark else cell.remark
    words = f"{cell.text}{cell.mark}{remark}"
    return words.replace(cell.text, f"**{cell.text}**", 1) if cell.best else words


def draw(folder: Path, picture: Path) -> None:
    """Draw BLEU kept against length, and sequential operations against length, of a kept comparison.

    Args:
        folder: Folder of the comparison.
        picture: PNG file to write.
    """
    summary, models, _ = kept_comparison(folder)
    read = [read_result(folder / name / RESULT) for name in ("bottleneck", "parallelism")]
    share, depth = (_figure(result, name) for result, name in zip(read, ("share", "depth"), strict=True))
    colours = {model: PALETTE[i % len(PALETTE)] for i, model in enumerate(models)}
    for each in summary.contenders:
        kind = str(each.settings["kind"])
        settings = settings_of(kind, {key: value for key, value in each.settings.items() if key != "kind"})
        if not traits(module_of(kind).build(settings, 8, 8)).cross_attention:
            colours[each.model] = GREY
    page = Canvas(figsize=(10, 3.9), layout="constrained", dpi=150)
    left, right = page.subplots(1, 2)
    learned = next(one.x[0] for one in share.series if one.reference)
    left.axvspan(0, float(learned), color=GRID, alpha=0.5, linewidth=0)
    left.set(xlabel="words of the source", ylim=(0, 104))
    left.set_title("BLEU kept, in % of a model's own on one sentence", loc="left", fontsize=10)
    left.text(float(learned) - 0.8, 2, "lengths trained on", ha="right", color=GREY, fontsize=9)
    left.text(float(learned) + 0.8, 2, "longer", color=GREY, fontsize=9)
    left.text(11, 12, "grey: without attention", color=GREY, fontsize=9)
    right.set(xlabel="tokens", yscale="log", xscale="log")
    right.set_title("operations that must wait for each other, one training step", loc="left", fontsize=10)
    right.set_xticks(depth.series[0].x, [f"{n:,.0f}" for n in depth.series[0].x])  # pyright: ignore[reportArgumentType]
    right.minorticks_off()
    for axes, figure in ((left, share), (right, depth)):
        _lines(axes, figure, colours)
    left.set_xlim(5, None)
    use_installed_fonts(page)
    page.savefig(picture, metadata={"Software": None})


def _figure(result: Result, name: str) -> Figure:
    return next(figure for figure in result.figures if figure.name == name)


def _lines(axes: Axes, figure: Figure, colours: Mapping[str, str]) -> None:
    """Draw the curves of all models, with their names at the right ends, moved apart where they would overlap."""
    ends = []
    for one in figure.series:
        if one.reference:
            continue
        points = [(x, y) for x, y in zip(one.x, one.y, strict=True) if y is not None]
        axes.plot(*zip(*points, strict=True), "o-", color=colours[one.model], markersize=4, linewidth=2)
        ends.append((points[-1], one.model))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
    low, high = axes.get_ylim()
    along = axes.transData.transform
    least = along((1, high))[1] - along((1, low))[1]
    last = -least
    for (x, y), model in sorted(ends, key=lambda end: end[0][1]):
        place = max(along((x, y))[1], last + least / 18)
        last = place
        offset = (place - along((x, y))[1]) * 72 / axes.figure.dpi
        axes.annotate(
            model,
            (x, y),
            (7, offset),
            textcoords="offset points",
            va="center",
            color=colours[model],
            fontsize=9,
            annotation_clip=False,
        )
