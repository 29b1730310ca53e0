"""What is measured: a contestant's model at any length, in the forms that it can take, on random tokens."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from s2s.experiments.contest import Contest, Contestant
from s2s.experiments.instruments import Operations, unfused
from s2s.models.contract import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.schema import Section
from s2s.training.devices import Computer, seed_for
from s2s.training.loss import cross_entropy

# So few that the projection onto them does not hide what the length costs.
VOCABULARY = 1000
_FIRST_WORD = 4  # before it stand the special pieces

AS_BUILT = "as built"
STEP_BY_STEP = "decoder step by step"
_IMPLEMENTATIONS = ("explicit", "fused")


@dataclass(frozen=True)
class Form:
    """One of the ways in which the same model can be computed."""

    name: str = AS_BUILT  # `as built`, `unfused`, `explicit attention`, `fused attention` or `decoder step by step`
    attention: str | None = None  # the setting's value; None as it is
    fused: bool = True  # whether recurrent layers may run as one kernel
    at_once: bool = True  # whether the decoder reads its target in one go, not token by token in a Python loop


@dataclass(frozen=True)
class Texts:
    """Random pairs without padding."""

    source: Int[Tensor, "batch source"]
    valid: Bool[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]

    @property
    def target_valid(self) -> Bool[Tensor, "batch target"]:
        """True everywhere."""
        return torch.ones_like(self.target, dtype=torch.bool)


def chooses_attention(settings: Section) -> bool:
    """Whether attention can be had as one kernel and as a softmax in plain sight."""
    field = type(settings).model_fields.get("attention")
    return field is not None and set(_IMPLEMENTATIONS) <= set(get_args(field.annotation))


def attention_forms(settings: Section) -> list[Form]:
    """Attention in plain sight and as one kernel, for models that have the choice."""
    if not chooses_attention(settings):
        return []
    return [Form(f"{kind} attention", attention=kind) for kind in _IMPLEMENTATIONS]


def launched(model: Seq2Seq, n: int, form: Form) -> int:
    """Operations of a forward pass, without dropout, over a pair of n tokens: forms with as many are taken for one."""
    pairs = texts(1, n, n, next(model.parameters()).device)
    learning = model.training
    model.eval()
    with torch.no_grad(), Operations() as operations:
        states_of(model, pairs, form)
    model.train(learning)
    return operations.count


def plain_form(settings: Section) -> Form:
    """The form without any kernel that hides a loop or a softmax."""
    return Form("unfused", attention="explicit" if chooses_attention(settings) else None, fused=False)


def built(contest: Contest, contestant: Contestant, form: Form, longest: int, device: torch.device) -> Seq2Seq:
    """A fresh model with the contestant's settings, the same for all forms but for the kind of attention.

    Tables of positions are long enough for the longest text.
    """
    settings = contestant.settings
    changes: dict[str, object] = {} if form.attention is None else {"attention": form.attention}
    given = settings.model_dump()
    if "max_positions" in given:
        changes["max_positions"] = max(given["max_positions"], longest + 1)
    settings = type(settings).model_validate(given | changes)
    torch.manual_seed(seed_for(contest.seeds[0]))
    return module_of(contestant.name).build(settings, VOCABULARY, VOCABULARY).to(device).train()


def fitting(model: Seq2Seq, lengths: tuple[int, ...]) -> list[int]:
    """Those of the lengths that the model can read and write."""
    limits = [limit for limit in (model.encoder.longest, model.decoder.longest) if limit is not None]
    return [n for n in lengths if n <= min(limits, default=n)]


def texts(rows: int, source: int, target: int, device: torch.device) -> Texts:
    """Random words, always the same of a shape: so many rows, and so many words of each source and target."""
    generator = torch.Generator().manual_seed(rows)
    words = [torch.randint(_FIRST_WORD, VOCABULARY, (rows, n), generator=generator) for n in (source, target)]
    return Texts(words[0].to(device), torch.ones(rows, source, dtype=torch.bool, device=device), words[1].to(device))


def states_of(model: Seq2Seq, pairs: Texts, form: Form) -> Float[Tensor, "batch target width"]:
    """The decoder's states, with the target given."""
    with nullcontext() if form.fused else unfused():
        if form.at_once:
            return model(pairs.source, pairs.valid, pairs.target)
        context, state = model.decoder.start(model.encoder(pairs.source, pairs.valid), pairs.target.shape[1])
        outputs = []
        for token in pairs.target.split(1, dim=1):
            output, state = model.decoder(context, state, token)
            outputs.append(output)
        return torch.cat(outputs, dim=1)


def loss_of(model: Seq2Seq, pairs: Texts, form: Form, computer: Computer) -> Float[Tensor, ""]:
    """The loss of training, in its precision; without label smoothing."""
    with computer.mixed_precision():
        states = states_of(model, pairs, form)
        return cross_entropy(states, model.projection.weight, pairs.target, pairs.target_valid)[0]


def backward(loss: Tensor, form: Form) -> None:
    """The backward pass, in the same form."""
    with nullcontext() if form.fused else unfused():
        loss.backward()


def generated(
    model: Seq2Seq, pairs: Texts, tick: Callable[[], None] = lambda: None
) -> Iterator[Int[Tensor, "batch 1"]]:
    """Greedy generation of as many words as the target has, each fed back; a sentence's end ends nothing.

    `tick` is called once the source is read. The words are given step by step.
    """
    steps = pairs.target.shape[1]
    context, state = model.decoder.start(model.encoder(pairs.source, pairs.valid), steps)
    tick()
    token = pairs.target[:, :1]
    for _ in range(steps):
        output, state = model.decoder(context, state, token)
        token = model.projection(output[:, -1]).argmax(dim=1, keepdim=True)
        yield token


def out_of_memory(error: RuntimeError) -> bool:
    """Whether it says that memory has run out; on a processor, torch has no class of its own for that."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)
