"""Text generation by sampling from a language model.

Each text has its own random generator, so that the third of five texts is the third of three.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from s2s.data.tokenizers import BOS, EOS, Tokenizer
from s2s.decoding.generate import MAX_SOURCE_LENGTH, one_line
from s2s.decoding.sampling import Sampling, sample
from s2s.errors import Refuse, UserError
from s2s.models.language_model import LanguageModel
from s2s.tasks.base import LoadedModel, PrintFn
from s2s.tasks.coverage import outside_vocabulary
from s2s.tasks.language_model.recipe import LanguageRecipe
from s2s.tasks.line_translation import TooLong, UnknownWords
from s2s.training.device import DeviceContext

_UNFINISHED = "\ufffd"


def write(
    model: LanguageModel,
    prompt: Sequence[int],
    sampling: Sampling,
    most: int,
    chances: Sequence[np.random.Generator],
    device_context: DeviceContext,
) -> Iterator[list[int | None]]:
    """Generate continuations of a prompt, with a key/value cache.

    Args:
        most: Maximum number of new tokens.
        chances: Random generator of each text.

    Yields:
        The next token of each text; None for texts that have ended. Generation stops when all texts have ended.
    """
    model.eval()
    device = model.projection.weight.device
    state = model.decoder.start(len(chances), separate_documents=True)
    read = torch.tensor([[BOS, *prompt]] * len(chances), device=device)
    ended = [False] * len(chances)
    for _ in range(most):
        with torch.inference_mode(), device_context.mixed_precision():
            states, state = model.decoder(state, read)
            # To the CPU first, because Apple GPUs have no float64.
            scores = model.projection(states[:, -1]).float().cpu()
            tokens = sample(sampling.probabilities(scores).numpy(), chances)
        ended = [over or piece == EOS for over, piece in zip(ended, tokens, strict=True)]
        if all(ended):
            return
        yield [None if over else piece for over, piece in zip(ended, tokens, strict=True)]
        read = torch.tensor(tokens, device=device).unsqueeze(1)


@dataclass(frozen=True)
class Writing:
    """Options of a generation.

    Attributes:
        most: Maximum number of new tokens.
        count: Number of texts for each prompt.
        seed: Seed of the random generators.
    """

    sampling: Sampling
    most: int
    count: int = 1
    seed: int = 1

    def chances(self, prompt: int) -> list[np.random.Generator]:
        """Return the random generators for the texts of a prompt, by number from 0."""
        return [np.random.default_rng([self.seed, prompt, text]) for text in range(self.count)]


LanguageRun = LoadedModel[LanguageRecipe, LanguageModel]


def _check_context_length(run: LanguageRun, prompt: str, most: int) -> list[int]:
    """Tokenize a prompt, and check that prompt and output fit the model's positions."""
    tokens, longest = run.tokenizers[0].encode(prompt), run.model.decoder.max_positions
    if longest is None and len(tokens) > (read := max(MAX_SOURCE_LENGTH, run.recipe.batches.length)):
        what = f"the prompt has {len(tokens):,} tokens; at most {read:,} are read"
        raise UserError(what, where=str(run.path), remedy="shorten it")
    if longest is not None and len(tokens) + most > longest:
        what = f"the prompt has {len(tokens)} tokens; with {most} more, it exceeds the model's {longest} positions"
        remedy = f"lower --max-tokens to {max(0, longest - len(tokens))}, or shorten the prompt"
        raise UserError(what, where=str(run.path), remedy=remedy)
    return tokens


def grow_text(run: LanguageRun, prompt: str, asked: Writing) -> Iterator[str]:
    """Generate one text and yield it in parts, as it grows: the prompt, then the new characters after each token.

    A character of several bytes is yielded when it is complete.
    """
    tokens, shown = _check_context_length(run, prompt, asked.most), ""
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
    """Generate texts that continue a prompt, which they include; see `texts_after`."""
    tokens = _check_context_length(run, prompt, asked.most)
    return texts_after(run.model, run.tokenizers[0], tokens, asked, run.device_context, number)


def texts_after(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    asked: Writing,
    device_context: DeviceContext,
    number: int = 0,
) -> list[str]:
    """Generate texts that continue a tokenized prompt."""
    written = [list(prompt) for _ in range(asked.count)]
    for step in write(model, prompt, asked.sampling, asked.most, asked.chances(number), device_context):
        for text, piece in zip(written, step, strict=True):
            text += [] if piece is None else [piece]
    return [tokenizer.decode(text) for text in written]


class PromptWarnings:
    """Reporter of prompts that are longer than `batches.length` or have unknown characters.

    Args:
        at_once: Report each prompt immediately; otherwise with its number, and counts at the end.
    """

    def __init__(self, run: LanguageRun, at_once: bool, tell: PrintFn) -> None:
        self._tokenizer = run.tokenizers[0]
        self._too_long = TooLong(run.recipe.batches.length, tell, at_once, "shorten {}")
        self._unknown = UnknownWords(tell, at_once, "vocabulary", "continuation")

    def add(self, prompt: str) -> None:
        """Check the next prompt."""
        self._too_long.add(len(self._tokenizer.encode(prompt)))
        self._unknown.add(outside_vocabulary(prompt, self._tokenizer))

    def report(self) -> None:
        """Print the counts."""
        self._too_long.report()
        self._unknown.report()


def answers(
    run: LanguageRun, chunks: Iterable[list[str]], asked: Writing, refuse: Refuse, at_once: bool, tell: PrintFn
) -> Iterator[str]:
    """Generate texts for each line, one text a line.

    An empty line is an empty prompt.

    Args:
        refuse: Receives the error of each line that is too long; its texts are empty.
        at_once: Print warnings immediately; otherwise with line numbers, and counts at the end.

    Yields:
        Texts in order, `asked.count` for each line.
    """
    number, warnings = 0, PromptWarnings(run, at_once, tell)
    for chunk in chunks:
        for prompt in chunk:
            warnings.add(prompt)
            try:
                found = generate_texts(run, prompt, asked, number)
            except UserError as error:
                refuse(number, error)
                found = [""] * asked.count
            yield from map(one_line, found)
            number += 1
    warnings.report()
