"""Operations counted and times measured against length, for the model as built and for the other forms it has."""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from s2s.experiments.contest import Cell, Contest, Contestant, Experiment, Measured, Scale
from s2s.experiments.instruments import (
    Marks,
    Operations,
    counted_flops,
    machine,
    round_figures,
    spent,
    undisturbed,
    unfused,
)
from s2s.experiments.parallelism.conclude import conclude
from s2s.experiments.workload import (
    STEP_BY_STEP,
    VOCABULARY,
    Form,
    Texts,
    attention_forms,
    backward,
    built,
    fitting,
    generated,
    launched,
    loss_of,
    out_of_memory,
    plain_form,
    states_of,
    texts,
)
from s2s.models.contract import Seq2Seq
from s2s.training.devices import Computer

ROUNDS = 2
_CPU = torch.device("cpu")
_EXACT = Computer(_CPU, torch.float32)
_WARM_UPS = 2
_LIKE_LONG = 64
_FOR_A_PARABOLA = (16, 32, 64)
# a single step of a decoder is short; so many in a row are timed together
_STEPS_TOGETHER = 5


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    counted: tuple[int, ...]  # lengths at which operations are counted
    written: tuple[int, ...]  # lengths at which operations of generation are counted
    lengths: tuple[int, ...]  # lengths at which time is measured
    tokens: int  # target tokens of a batch where they are fixed
    rows: int  # pairs of a batch where they are fixed
    by_step: int  # longest target that is fed token by token in a Python loop
    repetitions: int  # in each of the two rounds
    patience: float  # seconds; a form whose step takes longer is not measured at this length and beyond
    seconds: float  # that a round takes with one model, about
    # kinds of batch, `tokens` or `rows`, for which all forms are measured, not the model as built alone
    variants: tuple[str, ...]


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(
        counted=(16, 32, 64, 128, 256),
        written=(8, 16, 32, 64),
        lengths=(16, 32, 64, 128, 256, 512, 1024),
        tokens=1024,
        rows=2,
        by_step=64,
        repetitions=5,
        patience=1.5,
        seconds=15,
        variants=("rows",),
    ),
    "definitive": Sizes(
        counted=(16, 32, 64, 128, 256, 512, 1024),
        written=(8, 16, 32, 64, 128),
        lengths=(16, 32, 64, 128, 256, 512, 1024, 2048),
        tokens=2048,
        rows=4,
        by_step=128,
        repetitions=5,
        patience=2.0,
        seconds=80,
        variants=("tokens", "rows"),
    ),
}
# On a GPU the standard sizes go on to where memory or patience ends.
SIZES["definitive on a GPU"] = replace(
    SIZES["definitive"], lengths=tuple(2**k for k in range(4, 17)), tokens=65_536, by_step=512, patience=4.0
)


def cells(contest: Contest) -> list[Cell]:
    """Counting once for each model, then all models in turn, in two rounds: a slow moment hits one round alone."""
    models = contest.models
    seconds = contest.sizes(SIZES).seconds
    counting = [Cell(model, "depth", seconds=3) for model in models]
    return counting + [Cell(model, f"time-{i + 1}", seconds=seconds) for i in range(ROUNDS) for model in models]


def measure(contest: Contest, cell: Cell) -> Measured:
    """Counts, or measures times."""
    measure = counted if cell.part == "depth" else timed
    return measure(contest, contest.contestant(cell.model), contest.sizes(SIZES))


def counted(contest: Contest, contestant: Contestant, sizes: Sizes) -> Measured:
    """Operations and the longest chain of them, of one pair: in reading and writing, with gradients, and in generation.

    The chain is counted on a processor, without kernels that hide a loop or a softmax; the operations that are
    launched also as built, on the device in use.
    """
    plain, own = plain_form(contestant.settings), Form()
    longest = max(sizes.counted + sizes.written)
    slow = built(contest, contestant, plain, longest, _CPU)
    fast = built(contest, contestant, own, longest, contest.computer.device)
    points = []
    lengths = fitting(slow, sizes.counted + sizes.written)
    for model in (slow, fast) if lengths else ():
        # tables that grow with the longest text shall have grown
        states_of(model, texts(1, max(lengths), max(lengths), next(model.parameters()).device), own)
    # with one thread, the backward pass is seen wherever it runs
    with torch.autograd.set_multithreading_enabled(False):
        for n in fitting(slow, sizes.counted):
            points += _learning(slow, n, plain, _CPU) + _learning(fast, n, own, contest.computer.device)
        for n in fitting(slow, sizes.written):
            with torch.no_grad(), unfused(), Operations() as operations:
                for _ in generated(slow, texts(1, n, n, _CPU)):
                    pass
            points.append(_point(plain, "generating", n, operations))
    return {"points": points, "flops": _flops(slow, plain), "width": contestant.settings.model_dump().get("width")}


def _learning(model: Seq2Seq, n: int, form: Form, device: torch.device) -> list[Measured]:
    pairs = texts(1, n, n, device)
    model.zero_grad()
    with Operations() as operations:
        states = states_of(model, pairs, form)
        forward = _point(form, "forward", n, operations)
        # the loss over the vocabulary is the same for all models, and not what is asked
        backward(states.sum(), form)
    return [forward, _point(form, "training", n, operations)]


def _point(form: Form, what: str, n: int, operations: Operations) -> Measured:
    return {"form": form.name, "what": what, "n": n, "depth": operations.depth, "operations": operations.count}


def _flops(model: Seq2Seq, form: Form) -> list[Measured]:
    """Matrix products of one pair's forward and backward pass, the loss over the vocabulary included."""
    counts = []
    for n in fitting(model, _FOR_A_PARABOLA):
        model.zero_grad()
        with counted_flops() as flops:
            loss = loss_of(model, texts(1, n, n, _CPU), form, _EXACT)
            backward(loss, form)
        counts.append({"n": n, "flops": flops.get_total_flops()})
    return counts if len(counts) == len(_FOR_A_PARABOLA) else []


def timed(contest: Contest, contestant: Contestant, sizes: Sizes) -> Measured:
    """Seconds of every repetition, for each form, length and kind of batch; and of a decoding step."""
    computer, longest = contest.computer, max(sizes.lengths)
    measured: Measured = {"points": [], "steps": [], "notes": [], **vars(machine(computer))}
    forms = _forms(contest, contestant, longest)
    by_attention = {form.attention: built(contest, contestant, form, longest, computer.device) for form in forms}
    models = {form: by_attention[form.attention] for form in forms}
    with undisturbed():
        for batch in ("tokens", "rows"):
            _series(measured, models, batch, sizes, computer)
        _decoding_steps(measured, models[forms[0]], sizes, computer)
    return measured


def _forms(contest: Contest, contestant: Contestant, longest: int) -> list[Form]:
    """The model as built first, and the other forms that launch other operations."""
    own, computer = Form(), contest.computer
    model = built(contest, contestant, own, longest, computer.device)
    forms = [own]
    for form in (Form("unfused", fused=False), *attention_forms(contestant.settings)):
        other = model if form.attention is None else built(contest, contestant, form, longest, computer.device)
        # so short that a loop over time takes no time, so long that the choice between kernels has been made
        if launched(other, _LIKE_LONG, form) != launched(model, _LIKE_LONG, own):
            forms.append(form)
    return [*forms, Form(STEP_BY_STEP, at_once=False)]


def _series(measured: Measured, models: Mapping[Form, Seq2Seq], batch: str, sizes: Sizes, computer: Computer) -> None:
    """All lengths of one kind of batch; a form that takes too long or too much is dropped for longer ones."""
    racing = {form: model for form, model in models.items() if batch in sizes.variants or form == Form()}
    for n in sizes.lengths:
        rows = sizes.rows if batch == "rows" else sizes.tokens // n
        pairs = texts(rows, n, n, computer.device)
        for form, model in list(racing.items()):
            why = _unfit(model, pairs, form, sizes, computer)
            if why:
                # what a failed step held is given back, for the other forms
                gc.collect()
                del racing[form]
                measured["notes"].append({"form": form.name, "batch": batch, "n": n, "why": why})
        times: dict[Form, list[list[float]]] = {form: [] for form in racing}
        for _ in range(sizes.repetitions):
            for form, model in racing.items():
                times[form].append(_step(model, pairs, form, computer))
        for form, seconds in times.items():
            ahead, back = (round_figures(part) for part in zip(*seconds, strict=True))
            point = {"form": form.name, "batch": batch, "n": n, "rows": rows, "forward": ahead, "backward": back}
            measured["points"].append(point)


def _unfit(model: Seq2Seq, pairs: Texts, form: Form, sizes: Sizes, computer: Computer) -> str:
    """Why a form is not measured at this length; empty if it is. Warms up on the way."""
    n = pairs.source.shape[1]
    if not fitting(model, (n,)):
        return "the model reads no texts of this length"
    if not form.at_once and n > sizes.by_step:
        return "a Python loop is not measured at longer lengths"
    try:
        seconds = min(sum(_step(model, pairs, form, computer)) for _ in range(_WARM_UPS))
        if seconds > sizes.patience:
            return f"a step took {seconds:.1f} s"
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        model.zero_grad()
        return "memory ran out"
    return ""


def _step(model: Seq2Seq, pairs: Texts, form: Form, computer: Computer) -> list[float]:
    """Seconds of the forward pass with the loss, and of the backward pass."""
    model.zero_grad()
    marks = Marks(computer.device)
    marks.mark()
    loss = loss_of(model, pairs, form, computer)
    marks.mark()
    backward(loss, form)
    marks.mark()
    return marks.seconds()


def _decoding_steps(measured: Measured, model: Seq2Seq, sizes: Sizes, computer: Computer) -> None:
    """Feeds one more token after a source and a target of n tokens each; in fp32, as decoding does."""
    model.eval()
    for n in fitting(model, sizes.lengths):
        pairs = texts(sizes.rows, n, n, computer.device)
        try:
            with torch.no_grad():
                context, state = model.decoder.start(model.encoder(pairs.source, pairs.valid), n + 1)
                state = model.decoder(context, state, pairs.target)[1]
                # a state is a value: the same step can be made again and again
                step = partial(model.decoder, context, state, pairs.target[:, :1])
                seconds = [_several(step, computer.device) for _ in range(_WARM_UPS + sizes.repetitions)]
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            measured["notes"].append({"form": "decoding step", "batch": "rows", "n": n, "why": "memory ran out"})
            return
        measured["steps"].append({"n": n, "seconds": round_figures(seconds[_WARM_UPS:])})


def _several(step: Callable[[], object], device: torch.device) -> float:
    def work() -> None:
        for _ in range(_STEPS_TOGETHER):
            step()

    return spent(work, device) / _STEPS_TOGETHER


def _numbers(contest: Contest) -> dict[str, Any]:
    sizes = contest.sizes(SIZES)
    numbers = {"vocabulary": VOCABULARY, "rounds": ROUNDS, "together": _STEPS_TOGETHER}
    return vars(sizes) | numbers | {"repetitions": sizes.repetitions * ROUNDS}


EXPERIMENT = Experiment(
    "parallelism",
    "How much of the work can be done at once, and what does length cost in time?",
    cells,
    measure,
    conclude,
    alone=True,
    numbers=_numbers,
)
