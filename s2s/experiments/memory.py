"""How memory grows with length: in training, in reading and writing without gradients, and from token to token."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch

from s2s.experiments.allocation import bytes_of, free_bytes, peak_bytes
from s2s.experiments.contest import Contest, Contestant, Experiment, Measured, Scale, Task
from s2s.experiments.growth import Slope, growth, long_slope
from s2s.experiments.workload import (
    AS_BUILT,
    VOCABULARY,
    Form,
    Texts,
    attention_forms,
    backward,
    built,
    fitting,
    launched,
    out_of_memory,
    states_of,
    texts,
)
from s2s.models.contract import Seq2Seq
from s2s.results import Axis, Figure, Finding, Result, Series, Table

_MIB = 2**20
# exponents are fitted from this share of the greatest length on: before it, weights and layers weigh more than length
_FITTED_FROM = 0.25
# the source of a state that is looked at after ever more tokens
_SOURCE = 32


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        lengths: of source and target.
        rows: pairs at once.
        written: tokens after which the decoder's state is looked at.
    """

    lengths: tuple[int, ...]
    rows: int
    written: tuple[int, ...]


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes((64, 128, 256, 512, 768, 1024, 2048), 1, (16, 32, 64, 128, 256, 512)),
    "standard": Sizes((64, 128, 256, 512, 768, 1024, 1536, 2048, 3072), 1, (16, 32, 64, 128, 256, 512, 1024)),
}
# there the lengths go on to where memory ends
SIZES["standard on a GPU"] = replace(
    SIZES["standard"], lengths=tuple(n for k in range(6, 16) for n in (2**k, 3 * 2 ** (k - 1)))
)


class Memory(Experiment):
    """Peak memory against length, and what a decoder keeps from token to token."""

    name = "memory"
    question = "How does memory grow with length?"
    rows = ("memory",)
    alone = True

    def tasks(self, contest: Contest) -> list[Task]:
        """One for each model."""
        return [Task(model, seconds=15) for model in contest.models]

    def measure(self, contest: Contest, task: Task) -> Measured:
        """Peaks in bytes for each form and length; bytes of the state after ever more tokens."""
        contestant = contest.contestant(task.model)
        sizes = contest.sizes(SIZES)
        found: Measured = {"peaks": [], "states": [], "notes": []}
        longest, device = max(sizes.lengths), contest.computer.device
        own = built(contest, contestant, Form(), longest, device)
        _peaks(found, own, Form(), sizes, device)
        for form in attention_forms(contestant.settings):
            model = built(contest, contestant, form, longest, device)
            if launched(model, sizes.lengths[0], form) == launched(own, sizes.lengths[0], Form()):
                found["notes"].append({"form": form.name, "n": sizes.lengths[0], "why": "it is the model as built"})
            else:
                _peaks(found, model, form, sizes, device)
        found["states"] = _states(contest, contestant, sizes)
        return found

    def conclude(self, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
        """Exponents, and what the longest text takes."""
        sizes = contest.sizes(SIZES)
        found = {task.model: its for task, its in measured.items()}
        found = {model: found[model] for model in contest.models if model in found}
        cells = [_cell(model, its) for model, its in found.items()]
        tables = [_exponent_table(found), _peak_table(found), _state_table(found), _notes_table(found)]
        return Result(
            experiment=self.name,
            question=self.question,
            method=_METHOD.format(vocabulary=VOCABULARY, rows=sizes.rows, source=_SOURCE, share=_FITTED_FROM),
            limits=_LIMITS,
            models=contest.models,
            seeds=[contest.seeds[0]],
            findings=[cell for cell in cells if cell is not None],
            figures=_figures(found),
            tables=[table for table in tables if table.rows],
        )


def _peaks(found: Measured, model: Seq2Seq, form: Form, sizes: Sizes, device: torch.device) -> None:
    """All lengths of one form, to the longest, or to where memory runs out."""
    for n in sizes.lengths:
        if not fitting(model, (n,)):
            found["notes"].append({"form": form.name, "n": n, "why": "the model reads no texts of this length"})
            return
        if _too_much(found, form, n, device):
            found["notes"].append({"form": form.name, "n": n, "why": "it could take more than half of the free memory"})
            return
        pairs = texts(sizes.rows, n, n, device)
        works: dict[str, Callable[[], object]] = {
            "training": partial(_train, model, pairs, form),
            "inference": partial(_infer, model, pairs, form),
        }
        try:
            # a table of positions is made once, and gradients are made by the first backward pass
            works["inference"]()
            if n == sizes.lengths[0]:
                works["training"]()
            for what, work in works.items():
                peak = peak_bytes(work, device)
                found["peaks"].append({"form": form.name, "what": what, "n": n, "bytes": peak})
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            found["notes"].append({"form": form.name, "n": n, "why": "memory ran out"})
            return


def _too_much(found: Measured, form: Form, n: int, device: torch.device) -> bool:
    """Whether memory that grows with the square of the length from here on would take half of what is free.

    A GPU's allocator says so when it has no more; a processor's would take the whole machine down.
    """
    lengths, peaks = curve(found, form.name, "training")
    free = None if device.type == "cuda" else free_bytes(device)
    return bool(lengths) and free is not None and peaks[-1] * (n / lengths[-1]) ** 2 > free / 2


def _train(model: Seq2Seq, pairs: Texts, form: Form) -> None:
    """Forward and backward pass; the gradient is added to the one that is there."""
    model.train()
    states = states_of(model, pairs, form)
    # the scores over the vocabulary are the same for all models, and grow with n and the vocabulary
    backward(states.sum(), form)


def _infer(model: Seq2Seq, pairs: Texts, form: Form) -> None:
    model.eval()
    with torch.no_grad():
        states_of(model, pairs, form)


def _states(contest: Contest, contestant: Contestant, sizes: Sizes) -> list[Measured]:
    """Bytes of one row's state after so many tokens, and of what every step reads; in fp32, as decoding is."""
    cpu = torch.device("cpu")
    model = built(contest, contestant, Form(), max(sizes.written), cpu).eval()
    found = []
    for n in fitting(model, sizes.written):
        pairs = texts(1, _SOURCE, n, cpu)
        with torch.no_grad():
            context, state = model.decoder.start(model.encoder(pairs.source, pairs.valid), n)
            state = model.decoder(context, state, pairs.target)[1]
        found.append({"n": n, "state": bytes_of(state), "context": bytes_of(context)})
    return found


def curve(found: Measured, form: str, what: str) -> tuple[list[int], list[int]]:
    """Lengths, and the peak in bytes at each of them."""
    points = [point for point in found["peaks"] if point["form"] == form and point["what"] == what]
    return [point["n"] for point in points], [point["bytes"] for point in points]


def _exponent(found: Measured, form: str, what: str) -> Slope | None:
    lengths, peaks = curve(found, form, what)
    return long_slope(lengths, peaks, _FITTED_FROM * lengths[-1]) if lengths else None


def _cell(model: str, found: Measured) -> Finding | None:
    lengths, peaks = curve(found, AS_BUILT, "training")
    slope = _exponent(found, AS_BUILT, "training")
    if slope is None:
        return None
    parts = [f"{_size(peaks[-1])} in training at n = {lengths[-1]:,}"]
    for form in _forms(found):
        longest, other = curve(found, form, "training")[0][-1], _exponent(found, form, "training")
        if form != AS_BUILT and other is not None:
            peak = curve(found, form, "training")[1][-1]
            parts.append(f"{form}: {_size(peak)} at n = {longest:,}, n^{other.exponent.value:.2f}")
    parts.append(_state_in_words(found["states"]))
    return Finding(
        row="memory",
        model=model,
        value=slope.exponent.value,
        low=slope.exponent.low,
        high=slope.exponent.high,
        quantity=f"exponent of peak training memory against length, from n = {slope.first:,.0f} to {slope.last:,.0f}",
        verdict="; ".join(part for part in parts if part),
        figure="training-memory",
    )


def _forms(found: Measured) -> list[str]:
    return list(dict.fromkeys(point["form"] for point in found["peaks"]))


def _state_in_words(states: list[Measured]) -> str:
    if len(states) < 3:
        return ""
    lengths, sizes = [point["n"] for point in states], [point["state"] for point in states]
    if not any(sizes):
        return "the decoder keeps nothing"
    law = growth(lengths, sizes)
    if law.law == "constant":
        return f"the decoder's state stays at {_size(sizes[-1])}"
    if law.law == "linear":
        return f"the decoder's state grows by {_size(law.rate)} with each token"
    return f"the decoder's state {law}"


def _size(count: float) -> str:
    """A number of bytes in words."""
    for unit, factor in (("GiB", 2**30), ("MiB", _MIB), ("KiB", 2**10)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} bytes"


def _figures(found: Mapping[str, Measured]) -> list[Figure]:
    length = Axis(label="length n", unit="tokens", log=True)
    figures = [
        Figure(
            name=f"{what}-memory",
            title=title,
            x=length,
            y=Axis(label="peak memory", unit="MiB", log=True),
            series=[
                Series(label=f"{model}, {form}", model=model, x=[*x], y=[peak / _MIB for peak in y])
                for model, its in found.items()
                for form in _forms(its)
                for x, y in [curve(its, form, what)]
                if x
            ],
            caption="Allocator's peak beyond what the weights and their gradients hold. A slope of 1 doubles with n, a "
            "slope of 2 is four times as much.",
        )
        for what, title in (
            ("training", "Peak memory of a forward and backward pass"),
            ("inference", "Peak memory of reading and writing without gradients, with the target given"),
        )
    ]
    state = Figure(
        name="decoding-state",
        title="What a decoder keeps from token to token",
        x=Axis(label="tokens written", unit="tokens", log=True),
        y=Axis(label="state of one hypothesis", unit="KiB", log=True),
        series=[
            Series(
                label=model,
                model=model,
                x=[point["n"] for point in its["states"]],
                y=[point["state"] / 2**10 for point in its["states"]],
            )
            for model, its in found.items()
            if any(point["state"] for point in its["states"])
        ],
        caption="A cache of keys and values grows with each token; a recurrent state does not.",
    )
    return [figure for figure in (*figures, state) if figure.series]


Row = list[str | float | int | None]


def _exponent_table(found: Mapping[str, Measured]) -> Table:
    rows: list[Row] = []
    for model, its in found.items():
        for form in _forms(its):
            for what in ("training", "inference"):
                slope = _exponent(its, form, what)
                if slope is not None:
                    value = slope.exponent
                    rows.append([model, form, what, slope.first, slope.last, value.value, value.low, value.high])
    return Table(
        name="exponents",
        title="Exponent b of peak memory ~ n^b",
        columns=["model", "form", "of", "from n", "to n", "b", "low", "high"],
        rows=rows,
    )


def _peak_table(found: Mapping[str, Measured]) -> Table:
    rows: list[Row] = [
        [model, point["form"], point["what"], point["n"], point["bytes"]]
        for model, its in found.items()
        for point in its["peaks"]
    ]
    return Table(name="peaks", title="Peaks", columns=["model", "form", "of", "n", "bytes"], rows=rows)


def _state_table(found: Mapping[str, Measured]) -> Table:
    rows: list[Row] = [
        [model, point["n"], point["state"], point["context"]] for model, its in found.items() for point in its["states"]
    ]
    return Table(
        name="states",
        title=f"What decoding holds for one hypothesis, after a source of {_SOURCE} tokens",
        columns=["model", "tokens written", "state, bytes", "read at every step, bytes"],
        rows=rows,
    )


def _notes_table(found: Mapping[str, Measured]) -> Table:
    rows: list[Row] = [
        [model, note["form"], note["n"], note["why"]] for model, its in found.items() for note in its["notes"]
    ]
    return Table(
        name="ends",
        title="Where a measurement ended before the longest length, and why",
        columns=["model", "form", "not measured from n", "reason"],
        rows=rows,
    )


_METHOD = """Models of equal size read and write {rows} pair of random tokens of a vocabulary of {vocabulary:,} without
padding; source and target are equally long. Peaks are what the allocator itself reports: on a processor the sum of all
that it gave out and took back, in the order of time, at its largest; on a GPU the caching allocator's own peak. They
count from what was held before, so weights and their gradients are not in them.

Training is a forward and a backward pass. Its loss is the sum of the decoder's states: scores over the vocabulary are
the same for all models, and would add as much to each. Inference is the same forward pass without gradients. Both are
in fp32: copies of the weights in another precision would hide what length takes.

Exponents are slopes of a line through the logarithms, over lengths from {share:.0%} of the longest on: before that,
layers and weights weigh more than length does. Intervals come from the line's residuals; the peaks themselves are the
same in every run. The decoder's state and what it reads at every step are counted tensor by tensor, after a source of
{source} tokens. Attention is measured in plain sight and as one kernel where a model has the choice; a form that
launches the same operations as the model as built is not measured twice."""

_LIMITS = """An exponent is that of the lengths measured: a term that grows with the square of the length overtakes the
linear ones slowly, so that of attention in plain sight comes near 2 from below. Fused attention holds no matrix of
weights, but a mask that is one still grows with the square. The optimiser's moments, twice the weights for every model,
are left out. Memory that a kernel takes past torch's allocator is not seen."""

EXPERIMENT = Memory()
