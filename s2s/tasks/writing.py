"""What all tasks have in common that write with an encoder and a decoder: one target at once, and piece by piece."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from s2s.data.batches import Batch, collate
from s2s.decoding.beam import Hypothesis
from s2s.decoding.translator import collapse
from s2s.evaluation.signs import Sign, plain_sign
from s2s.models.contract import Seq2Seq
from s2s.tasks.contract import Rescored


def teacher_forced(model: Seq2Seq, batch: Batch) -> Float[Tensor, "pieces vocabulary"]:
    """Log probabilities of all pieces at each real place of the targets, all fed at once."""
    logits = model.logits(batch.source, batch.source_valid, batch.target_in)
    return logits.log_softmax(-1)[batch.target_valid]


def stepped(model: Seq2Seq, batch: Batch, turned: bool) -> Float[Tensor, "pieces vocabulary"]:
    """The same, each place fed by itself; the rows are turned round before each step where that is wanted."""
    context, state = model.decoder.start(model.encoder(batch.source, batch.source_valid), batch.target_in.shape[1])
    rows, found = torch.arange(len(batch.source), device=batch.source.device), []
    for place in range(batch.target_in.shape[1]):
        if turned:
            order = torch.arange(len(rows), device=rows.device).flip(0)
            rows, context, state = rows[order], context.select(order), state.select(order)
        states, state = model.decoder(context, state, batch.target_in[rows, place : place + 1])
        # turned round twice is as it was
        found.append(model.projection(states[:, 0]).log_softmax(-1)[rows])
    return torch.stack(found, dim=1)[batch.target_valid]


def collapsed(sources: Sequence[str], outputs: Sequence[str]) -> Sign:
    """Whether different sources are answered alike; see `collapse`, which looks while a model is trained."""
    different, answers, empty = len(set(sources)), len(set(outputs)), sum(not text.strip() for text in outputs)
    found = collapse(list(sources), list(outputs)) is not None
    measured = f"{answers:,} different answers to {different:,} different sources, {empty:,} answers are empty"
    threshold = "where answers are fewer than a tenth of the sources, or most are empty: different texts differ"
    remedy = "lower training.learning_rate, raise training.warmup, and look for misaligned pairs with `s2s data check`"
    return plain_sign("says always the same", found, measured, answers / max(1, different), threshold, remedy)


def rescored(
    model: Seq2Seq,
    source: Shaped[Tensor, "batch ..."],
    valid: Bool[Tensor, "batch source"],
    found: Sequence[Sequence[Hypothesis]],
) -> Rescored:
    """Hypotheses of each source of a batch, each fed as a target by teacher forcing."""
    rows = [row for row, hypotheses in enumerate(found) for _ in hypotheses]
    every = [hypothesis for hypotheses in found for hypothesis in hypotheses]
    again = sequence_scores(model, source[rows], valid[rows], [h.tokens for h in every])
    reported = torch.tensor([h.log_probability for h in every], dtype=again.dtype, device=again.device)
    return Rescored(reported, again, 1 + max(len(h.tokens) for h in every))


def sequence_scores(
    model: Seq2Seq,
    source: Shaped[Tensor, "batch ..."],
    valid: Bool[Tensor, "batch source"],
    targets: Sequence[Sequence[int]],
) -> Float[Tensor, " batch"]:
    """The log probability of a target, its `EOS` counted, for each source of a batch, in nats."""
    empty = [[] for _ in targets]
    batch = collate(empty, targets, range(len(targets))).to(source.device)
    memory = model.encoder(source, valid)
    context, state = model.decoder.start(memory, batch.target_in.shape[1])
    states, _ = model.decoder(context, state, batch.target_in)
    each = model.projection(states).log_softmax(-1).gather(2, batch.target_out.unsqueeze(2)).squeeze(2)
    return (each * batch.target_valid).sum(dim=1)
