"""Outputs of text-to-text models line by line: the most probable of given answers, or generated text."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float

from s2s.data.batches import collate
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.decoding.generate import MAX_SOURCE_LENGTH, one_line
from s2s.errors import Refuse, UserError
from s2s.models.base import Seq2Seq
from s2s.tasks.base import TOKENIZER, LoadedModel, PrintFn
from s2s.tasks.coverage import VocabularyCoverage, count_sentences
from s2s.tasks.line_translation import TooLong, UnknownWords, translate_lines
from s2s.tasks.seq2seq import build_translator, check_fits
from s2s.tasks.text_to_text.recipe import CorpusSettings, TextToTextRecipe


@torch.inference_mode()
def log_probabilities(
    model: Seq2Seq,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    answers: Sequence[str],
    batch: int,
    advance: Callable[[int], object] = lambda count: None,
    before_step: Callable[[], None] | None = None,
) -> Float[np.ndarray, "sources answers"]:
    """Compute the log-probability of each answer, `EOS` included, for each source, in fp32 and without dropout.

    Args:
        batch: Number of sources in a batch; each source is encoded once.
        advance: Called after each batch with its number of sources.
        before_step: Called before each answer of each batch; an exception ends the computation.

    Returns:
        Log-probabilities (sources, answers) in nats, not normalized over the answers.

    Raises:
        UserError: A source has more tokens than the model has positions.
    """
    model.eval()
    device = next(model.parameters()).device
    tokens, wanted = tokenizer.encode_batch(sources), tokenizer.encode_batch(answers)
    for source in tokens:
        check_fits(model, source, ())
    found = np.zeros((len(sources), len(answers)))
    order = sorted(range(len(sources)), key=lambda row: len(tokens[row]))
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        memory = None
        for number, answer in enumerate(wanted):
            if before_step is not None:
                before_step()
            made = collate([tokens[row] for row in rows], [answer] * len(rows), rows).to(device)
            memory = model.encoder(made.source, made.source_valid) if memory is None else memory
            context, state = model.decoder.start(memory, made.target_in.shape[1])
            scores = model.log_probabilities(model.decoder(context, state, made.target_in)[0])
            chosen = scores.gather(2, made.target_out.unsqueeze(2)).squeeze(2)
            found[rows, number] = chosen.sum(dim=1).cpu().double().numpy()
        advance(len(rows))
    return found


def best_first(found: Iterable[float], answers: Sequence[str]) -> list[tuple[float, str]]:
    """Return pairs of a log-probability and its answer, highest first; ties keep their order.

    Example:
        >>> best_first([-2.0, -0.5], ["no", "yes"])
        [(-0.5, 'yes'), (-2.0, 'no')]
    """
    return sorted(zip(found, answers, strict=True), key=lambda pair: -pair[0])


def check_apart(answers: Sequence[str], tokenizer: Tokenizer, where: str) -> None:
    """Refuse answers that no model can distinguish: with equal tokens, or with an unknown token."""
    seen: dict[tuple[int, ...], str] = {}
    for answer, tokens in zip(answers, map(tuple, tokenizer.encode_batch(answers)), strict=True):
        if UNK in tokens:
            what, other = f"{answer!r:.60} has a token that the tokenizer does not know", "another tokenizer.kind"
        elif tokens in seen:
            what, other = f"{seen[tokens]!r:.60} and {answer!r:.60} have the same tokens", "tokenizer.lowercase: false"
        else:
            seen[tokens] = answer
            continue
        raise UserError(what, where, f"write other answers, or try {other}: a model could not distinguish them")


def shares(found: Float[np.ndarray, "sources answers"]) -> Float[np.ndarray, "sources answers"]:
    """Normalize log-probabilities over the answers (softmax).

    Example:
        >>> import numpy as np
        >>> shares(np.log([[0.1, 0.3]])).round(2).tolist()
        [[0.25, 0.75]]
    """
    raised = np.exp(found - found.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def task_named(recipe: TextToTextRecipe, name: str | None) -> CorpusSettings:
    """Return the settings of a task by name; None names the only task.

    Raises:
        UserError: The task is unknown or ambiguous, or all corpora use span corruption.
    """
    corpora = {n: each for n, each in recipe.data.corpora.items() if each.objective == "pairs"}
    if name in corpora:
        return corpora[name]
    if name is None and len(corpora) == 1:
        return next(iter(corpora.values()))
    if not corpora:
        what, remedy = "the run was trained with span corruption only", "a task with objective pairs"
        raise UserError(what, recipe.name, f"train another run with init_from, init.parts=all and {remedy}")
    what = "no task is named" if name is None else f"{name!r} is no task of this run"
    raise UserError(what, where="--task", remedy=f"name one of {', '.join(corpora)}")


def check_chosen(answers: Sequence[str], nbest: int, search_options: Sequence[str]) -> None:
    """Refuse search options, as the user wrote them, and a wrong `nbest` for a task with given answers."""
    if search_options:
        what = "has no effect on a task with given answers, which needs no search"
        raise UserError(what, search_options[0], "leave it out")
    if not 1 <= nbest <= len(answers):
        what = f"{nbest} best answers requested, but there are {len(answers)}"
        raise UserError(what, remedy=f"request 1 to {len(answers)}")


def generate_answers(
    run: LoadedModel[TextToTextRecipe, Seq2Seq],
    name: str | None,
    chunks: Iterable[list[str]],
    nbest: int,
    at_once: bool,
    tell: PrintFn,
    refuse: Refuse,
    forced: Iterator[str] | None = None,
) -> Iterator[str]:
    """Generate or choose an output for each line, for one of the model's tasks.

    Args:
        name: Name of the task; None for the only one.
        chunks: Lines that are read together.
        nbest: Number of outputs for each line.
        at_once: Print each warning immediately, for an interactive session; otherwise counts at the end.
        refuse: Receives the error of each line that is too long; its output is empty.
        forced: Text with which each generated output begins, one for each line; None for none.

    Yields:
        Outputs in order; with n-best output, `line number TAB log probability TAB answer`, or the score of a generated
        text.
    """
    task, seen = task_named(run.recipe, name), VocabularyCoverage.load(run.checkpoint / TOKENIZER)
    if task.answers is None:
        found = build_translator(run, nbest)
        yield from translate_lines(found, seen, chunks, at_once, tell, task.prefix, refuse, forced)
        return
    number, tokenizer = 0, run.tokenizers[0]
    too_long = TooLong(seen.longest if seen else None, tell, at_once, sentences=seen.sentences if seen else None)
    unknown_words = UnknownWords(tell, at_once, output="answer")
    for chunk in chunks:
        filled = {place: task.prefix + text for place, text in enumerate(chunk) if text.strip()}
        lengths = dict(zip(filled, map(len, tokenizer.encode_batch(list(filled.values()))), strict=True))
        for place, length in lengths.items():
            try:
                check_fits(run.model, range(length), (), MAX_SOURCE_LENGTH)
            except UserError as error:
                refuse(number + place, error)
                del filled[place]
        rows = log_probabilities(run.model, tokenizer, list(filled.values()), task.answers, run.recipe.decoding.batch)
        found = dict(zip(filled, rows, strict=True))
        for place in range(len(chunk)):
            number += 1
            too_long.add(lengths[place] if place in found else 0, count_sentences(filled.get(place, "")))
            unknown_words.add(seen.unknown(filled[place], tokenizer) if seen and place in found else ())
            best = best_first(found[place], task.answers)[:nbest] if place in found else []
            if nbest == 1:
                yield one_line(best[0][1]) if best else ""
            else:
                yield from (f"{number}\t{score:.4f}\t{one_line(answer)}" for score, answer in best)
                yield from () if best else (f"{number}\t\t",)
    too_long.report()
    unknown_words.report()
