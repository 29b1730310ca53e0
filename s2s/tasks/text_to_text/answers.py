"""Answers of text-to-text models: the most probable of given answers, or generated text, line by line."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float

from s2s.data.batches import collate
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.decoding.generate import MAX_SOURCE_LENGTH, one_line
from s2s.errors import Refuse, UserError
from s2s.models.base import Seq2Seq
from s2s.tasks.base import TOKENIZER, LoadedModel
from s2s.tasks.line_translation import ReportFn, TooLong, VocabularyCoverage, count_sentences, translate_lines
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
    """Compute the log-probability of each answer for each source.

    The log-probability includes `EOS`, and is not normalized over the answers. It is computed in fp32, without dropout,
    and the model stays in evaluation mode. Each source is encoded once.

    Args:
        tokenizer: Tokenizer of sources and answers.
        batch: Number of sources in a batch.
        advance: Called after each batch with its number of sources.
        before_step: Called before each answer of each batch; an exception ends the computation.

    Returns:
        Log-probabilities (sources, answers) in nats.

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
            scores = model.projection(model.decoder(context, state, made.target_in)[0]).float()
            chosen = scores.gather(2, made.target_out.unsqueeze(2)).squeeze(2) - scores.logsumexp(dim=2)
            found[rows, number] = chosen.sum(dim=1).cpu().double().numpy()
        advance(len(rows))
    return found


def best_first(found: Iterable[float], answers: Sequence[str]) -> list[tuple[float, str]]:
    """Sort answers by log-probability, highest first.

    Args:
        answers: The answers; ties keep their order.

    Returns:
        Pairs of log-probability and answer.

    Example:
        >>> best_first([-2.0, -0.5], ["no", "yes"])
        [(-0.5, 'yes'), (-2.0, 'no')]
    """
    return sorted(zip(found, answers, strict=True), key=lambda pair: -pair[0])


def check_apart(answers: Sequence[str], tokenizer: Tokenizer, where: str) -> None:
    """Refuse answers that no model can tell apart.

    Args:
        where: Recipe key, for messages.

    Raises:
        UserError: Two answers have the same tokens, or an answer has an unknown token.
    """
    seen: dict[tuple[int, ...], str] = {}
    for answer, tokens in zip(answers, map(tuple, tokenizer.encode_batch(answers)), strict=True):
        if UNK in tokens:
            what, why = f"{answer!r:.60} has a piece that the tokenizer does not know", "another tokenizer.kind"
        elif tokens in seen:
            what, why = (
                f"{seen[tokens]!r:.60} and {answer!r:.60} are the same pieces",
                "tokenizer.lowercase: false",
            )
        else:
            seen[tokens] = answer
            continue
        raise UserError(what, where, f"write other answers, or try {why}: a model could not tell them apart")


def shares(found: Float[np.ndarray, "sources answers"]) -> Float[np.ndarray, "sources answers"]:
    """Normalize log-probabilities over the answers (softmax).

    Args:
        found: Log-probabilities (sources, answers).

    Returns:
        Probabilities (sources, answers), given that the output is one of the answers.

    Example:
        >>> import numpy as np
        >>> shares(np.log([[0.1, 0.3]])).round(2).tolist()
        [[0.25, 0.75]]
    """
    raised = np.exp(found - found.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def task_named(recipe: TextToTextRecipe, name: str | None) -> CorpusSettings:
    """Return the settings of a task by name, or of the only task.

    Args:
        name: Name of the task; None for the only one.

    Raises:
        UserError: The task is unknown or ambiguous, or all corpora use span corruption.
    """
    corpora = {n: each for n, each in recipe.data.corpora.items() if each.objective == "pairs"}
    if name in corpora:
        return corpora[name]
    if name is None and len(corpora) == 1:
        return next(iter(corpora.values()))
    if not corpora:
        what = "the run learned nothing but to write what was taken out of texts"
        raise UserError(what, recipe.name, "train another one with init_from, init.parts=all and a task of pairs")
    what = "no task is named" if name is None else f"{name!r} is no task of this run"
    raise UserError(what, where="--task", remedy=f"name one of {', '.join(corpora)}")


def check_chosen(answers: Sequence[str], nbest: int, searching: Sequence[str]) -> None:
    """Refuse options that do not apply to a task with answers.

    Args:
        nbest: Number of answers to return.
        searching: Search options that the user gave, as written.

    Raises:
        UserError: A search option is given, or `nbest` is not between 1 and the number of answers.
    """
    if searching:
        raise UserError("does not apply to a task with answers, which has no search", searching[0], "leave it out")
    if not 1 <= nbest <= len(answers):
        what = f"{nbest} best answers asked for, but there are {len(answers)}"
        raise UserError(what, remedy=f"ask for 1 to {len(answers)}")


def generate_answers(
    run: LoadedModel[TextToTextRecipe, Seq2Seq],
    name: str | None,
    chunks: Iterable[list[str]],
    nbest: int,
    at_once: bool,
    tell: ReportFn,
    refuse: Refuse,
) -> Iterator[str]:
    """Generate or choose an output for each line, for one of the model's tasks.

    Args:
        name: Name of the task; None for the only one.
        chunks: Lines that are read together.
        nbest: Number of outputs for each line.
        at_once: Print each warning immediately, for an interactive session; otherwise counts at the end.
        refuse: Receives the error of each line that is too long; its output is empty.

    Yields:
        Outputs in order; with n-best output, `line number TAB log probability TAB answer`, or the score of a generated
        text.

    Raises:
        UserError: The task is unknown or ambiguous.
    """
    task, seen = task_named(run.recipe, name), VocabularyCoverage.load(run.checkpoint / TOKENIZER)
    if task.answers is None:
        yield from translate_lines(build_translator(run, nbest), seen, chunks, at_once, tell, task.prefix, refuse)
        return
    number, tokenizer = 0, run.tokenizers[0]
    too_long = TooLong(seen.longest if seen else None, tell, at_once, sentences=seen.sentences if seen else None)
    for chunk in chunks:
        filled = {place: task.prefix + text for place, text in enumerate(chunk) if text.strip()}
        for place, text in list(filled.items()):
            try:
                check_fits(run.model, tokenizer.encode(text), (), MAX_SOURCE_LENGTH)
            except UserError as error:
                refuse(number + place, error)
                del filled[place]
        rows = log_probabilities(run.model, tokenizer, list(filled.values()), task.answers, run.recipe.decoding.batch)
        found = dict(zip(filled, rows, strict=True))
        for place in range(len(chunk)):
            number += 1
            text = filled.get(place, "")
            too_long.add(len(tokenizer.encode(text)) if place in found else 0, count_sentences(text))
            best = best_first(found[place], task.answers) if place in found else []
            if nbest == 1:
                yield one_line(best[0][1]) if best else ""
            else:
                yield from (f"{number}\t{score:.4f}\t{one_line(answer)}" for score, answer in best[:nbest])
                yield from () if best else (f"{number}\t\t",)
    too_long.report()
