"""Writing: pieces are drawn one after the other from what the model expects next.

Each text has a source of chance of its own, so that the third of five texts is the third of three.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from s2s.data.tokenizers import BOS, EOS, PAD, UNK, Tokenizer
from s2s.decoding.generate import MAX_SOURCE_LENGTH, one_line
from s2s.errors import Refuse, UserError
from s2s.models.language_model import LanguageModel
from s2s.tasks.base import LoadedModel
from s2s.tasks.language_model.recipe import LanguageRecipe
from s2s.tasks.line_translation import ReportFn, TooLong
from s2s.training.device import DeviceContext

_NEVER_WRITTEN = (PAD, BOS, UNK)
_UNFINISHED = "\ufffd"


@dataclass(frozen=True)
class Sampling:
    """How the next piece is drawn.

    Attributes:
        temperature: what scores are divided by; 0 takes the most probable piece.
        top_k: only so many of the most probable pieces are drawn from; all when None.
        top_p: only the most probable pieces whose probabilities first add up to so much (Holtzman et al. 2020).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def probabilities(self, scores: Float[Tensor, "rows pieces"]) -> Float[Tensor, "rows pieces"]:
        """How probably each piece is drawn: temperature first, then `top_k`, then `top_p`, then scaled to one.

        Special pieces that no text holds are never drawn; of pieces that are equally probable, the first is.
        """
        scores = scores.cpu().double()
        scores[:, list(_NEVER_WRITTEN)] = float("-inf")
        if self.temperature == 0:
            best = torch.zeros_like(scores)
            return best.scatter_(1, scores.argmax(dim=1, keepdim=True), 1.0)
        # in order, so that equal scores are kept or cut by their numbers, and not by chance
        ordered, order = scores.sort(dim=1, descending=True, stable=True)
        # less the best, so that no temperature is too low for a number to hold the quotient
        ordered = (ordered - ordered[:, :1]) / self.temperature
        if self.top_k is not None:
            ordered[:, self.top_k :] = float("-inf")
        shares = ordered.softmax(dim=1)
        if self.top_p < 1:
            before = shares.cumsum(dim=1) - shares
            shares = shares.masked_fill(before >= self.top_p, 0.0)
            shares = shares / shares.sum(dim=1, keepdim=True)
        return torch.zeros_like(shares).scatter_(1, order, shares)


def sample(shares: Float[np.ndarray, "rows pieces"], chances: Sequence[np.random.Generator]) -> list[int]:
    """A piece for each row, by its own chance: where a number between 0 and 1 falls among the sums of the shares."""
    sums = np.cumsum(shares, axis=1)
    found = []
    for row, chance in zip(sums, chances, strict=True):
        # what is rounded off the last sum belongs to the last piece that has a share
        number = int(np.searchsorted(row, chance.random() * row[-1], side="right"))
        found.append(number if number < len(row) else int(np.flatnonzero(np.diff(row, prepend=0.0))[-1]))
    return found


def write(
    model: LanguageModel,
    prompt: Sequence[int],
    sampling: Sampling,
    most: int,
    chances: Sequence[np.random.Generator],
    device_context: DeviceContext,
) -> Iterator[list[int | None]]:
    """Goes on after a prompt, one text for each chance, step by step with what was read kept.

    Yields:
        The next piece of each text; None where it has ended. It is over when all have, or after the `most` pieces.
    """
    model.eval()
    device = model.projection.weight.device
    state = model.decoder.start(len(chances), separate_documents=True)
    read = torch.tensor([[BOS, *prompt]] * len(chances), device=device)
    ended = [False] * len(chances)
    for _ in range(most):
        with torch.inference_mode(), device_context.mixed_precision():
            states, state = model.decoder(state, read)
            # to the processor first: Apple's GPUs know no float64
            scores = model.projection(states[:, -1]).float().cpu()
            tokens = sample(sampling.probabilities(scores).numpy(), chances)
        ended = [over or piece == EOS for over, piece in zip(ended, tokens, strict=True)]
        if all(ended):
            return
        yield [None if over else piece for over, piece in zip(ended, tokens, strict=True)]
        read = torch.tensor(tokens, device=device).unsqueeze(1)


@dataclass(frozen=True)
class Writing:
    """What is asked for: how to draw, how many pieces at most, how many texts for each prompt, and a seed."""

    sampling: Sampling
    most: int
    count: int = 1
    seed: int = 1

    def chances(self, prompt: int) -> list[np.random.Generator]:
        """Of the texts of a prompt, by its number from 0 on."""
        return [np.random.default_rng([self.seed, prompt, text]) for text in range(self.count)]


LanguageRun = LoadedModel[LanguageRecipe, LanguageModel]


def check_context_length(run: LanguageRun, prompt: str, most: int) -> list[int]:
    """The pieces of a prompt.

    Raises:
        UserError: the model has not learned as many positions as it and what is to be written need.
    """
    tokens, longest = run.tokenizers[0].encode(prompt), run.model.decoder.max_positions
    if longest is None and len(tokens) > (read := max(MAX_SOURCE_LENGTH, run.recipe.batches.length)):
        raise UserError(
            f"a prompt of {len(tokens):,} pieces is longer than the {read:,} that are read",
            where=str(run.path),
            remedy="shorten it",
        )
    if longest is not None and len(tokens) + most > longest:
        raise UserError(
            f"a prompt of {len(tokens)} pieces and {most} more are longer than the {longest} positions that the model "
            "has learned",
            where=str(run.path),
            remedy=f"lower --max-tokens to {max(0, longest - len(tokens))}, or shorten the prompt",
        )
    return tokens


def grow_text(run: LanguageRun, prompt: str, asked: Writing) -> Iterator[str]:
    """One text, its prompt included, as it grows: parts that joined together are the text.

    A character of several bytes is given when it is whole.
    """
    tokens, shown = check_context_length(run, prompt, asked.most), ""
    written = list(tokens)
    if prompt:
        shown = run.tokenizers[0].decode(written)
        yield shown
    for step in write(run.model, tokens, asked.sampling, asked.most, asked.chances(0)[:1], run.device_context):
        written += [piece for piece in step if piece is not None]
        text = run.tokenizers[0].decode(written)
        if not text.endswith(_UNFINISHED) and text.startswith(shown):
            yield text[len(shown) :]
            shown = text
    text = run.tokenizers[0].decode(written)
    yield text[len(shown) :]


def generate_texts(run: LanguageRun, prompt: str, asked: Writing, number: int = 0) -> list[str]:
    """The texts that follow a prompt, which they begin with; `number` is the prompt's among several."""
    return texts_after(
        run.model, run.tokenizers[0], check_context_length(run, prompt, asked.most), asked, run.device_context, number
    )


def texts_after(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    asked: Writing,
    device_context: DeviceContext,
    number: int = 0,
) -> list[str]:
    """The texts that follow the pieces of a prompt, which they begin with."""
    written = [list(prompt) for _ in range(asked.count)]
    for step in write(model, prompt, asked.sampling, asked.most, asked.chances(number), device_context):
        for text, piece in zip(written, step, strict=True):
            text += [] if piece is None else [piece]
    return [tokenizer.decode(text) for text in written]


def too_long_prompts(run: LanguageRun, at_once: bool, tell: ReportFn) -> TooLong:
    """Report prompts with more tokens than the model read at once in training (`batches.length`)."""
    return TooLong(run.recipe.batches.length, tell, at_once, "shorten {}")


def answers(
    run: LanguageRun, chunks: Iterable[list[str]], asked: Writing, refuse: Refuse, at_once: bool, tell: ReportFn
) -> Iterator[str]:
    """The texts that follow each line, each in one line, in order; an empty line begins a document.

    A line that is too long is given to `refuse`, and its texts are empty. Lines longer than training texts are reported
    by `tell`: each, where `at_once`, else their number at the end.
    """
    number, too_long = 0, too_long_prompts(run, at_once, tell)
    for chunk in chunks:
        for prompt in chunk:
            too_long.add(len(run.tokenizers[0].encode(prompt)))
            try:
                found = generate_texts(run, prompt, asked, number)
            except UserError as error:
                refuse(number, error)
                found = [""] * asked.count
            yield from map(one_line, found)
            number += 1
    too_long.report()
