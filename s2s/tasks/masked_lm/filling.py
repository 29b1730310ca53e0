"""Predictions of a masked language model: token scores, and fillers of a blank.

The sum of the log-probabilities of a sentence's tokens, each predicted from all others, is its pseudo-log-likelihood
(Salazar et al. 2020). It is not the probability of the sentence: it does not sum to one over all sentences.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from s2s.data.tokenizers import SPECIAL_TOKENS, UNK, Tokenizer
from s2s.decoding.generate import MAX_SOURCE_LENGTH, one_line
from s2s.errors import UserError
from s2s.inspection.words import check_length
from s2s.models.masked_lm import MaskedLM
from s2s.tasks.coverage import describe_unknown, outside_vocabulary
from s2s.tasks.line_translation import TooLong
from s2s.tasks.masked_lm.data import collate_masked

_BUDGET = 8192
_BLANK = re.compile("_{3,}")
_BEAM = 20


def longest_input(model: MaskedLM) -> int:
    """Return the largest number of tokens that a model reads, special ones included."""
    return MAX_SOURCE_LENGTH if model.encoder.max_positions is None else model.encoder.max_positions


def masked_log_probabilities(
    model: MaskedLM, texts: Sequence[Sequence[int]], places: Sequence[Sequence[int]], begin: bool, budget: int = _BUDGET
) -> list[Float[np.ndarray, " places"]]:
    """Compute the log-probability of tokens, each masked alone.

    Args:
        texts: Tokens of each text, without special tokens.
        places: Positions to score in each text.
        begin: Prepend `BOS` to each text, as in training.
        budget: Maximum number of positions in a batch.

    Returns:
        Log-probabilities of each text's positions, in nats.
    """
    asked = [(number, place) for number, row in enumerate(places) for place in row]
    rows = [np.array([*texts[n][:place], model.size, *texts[n][place + 1 :]]) for n, place in asked]
    found = np.empty(len(asked))
    for batch in _batches([len(row) for row in rows], budget):
        scores = _log_probabilities(model, [rows[i] for i in batch], [asked[i][1] for i in batch], begin)
        targets = torch.tensor([texts[asked[i][0]][asked[i][1]] for i in batch], device=scores.device)
        found[batch] = scores.gather(1, targets[:, None])[:, 0].cpu().double().numpy()
    ends = np.cumsum([len(row) for row in places])
    return np.split(found, ends[:-1]) if len(places) else []


def _log_probabilities(
    model: MaskedLM, read: Sequence[np.ndarray], places: Sequence[int], begin: bool
) -> Float[Tensor, "texts vocabulary"]:
    """Compute the log-probabilities of all tokens at one position of each text, in a batch."""
    check_length(max(len(row) for row in read) + 1 + int(begin), longest_input(model))
    chosen = [np.array([place]) for place in places]
    batch = collate_masked(read, read, chosen, range(len(read)), begin).to(next(model.parameters()).device)
    with torch.no_grad():
        return model.log_probabilities(batch.source, batch.source_valid, batch.chosen)


def _batches(lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Yield batches of texts of similar length, under a budget of positions."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        # Two special tokens are added to each text; lengths rise, so the newest row is the longest.
        if batch and (len(batch) + 1) * (lengths[row] + 2) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


@dataclass(frozen=True)
class Filler:
    """Filler of a blank, and the product of the probabilities of its tokens."""

    text: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """Best fillers of a blank.

    Attributes:
        pieces: Number of tokens of each filler.
        fillers: Fillers, best first.
        fitting: Probability that the model assigns to suitable first tokens, in [0, 1].
    """

    text: str
    pieces: int
    fillers: list[Filler]
    fitting: float

    def __str__(self) -> str:
        lines = [self.text, *(f"  {filler.probability:7.2%}  {one_line(filler.text)}" for filler in self.fillers)]
        lines.append(f"{self.fitting:.1%} of the probability is on tokens that fit the blank; these are the best.")
        if self.pieces > 1:
            lines.append(
                f"The blank was {self.pieces} masked tokens, filled from left to right; a probability is the product "
                f"of theirs. Only fillers of {self.pieces} tokens are comparable; a beam of {_BEAM} may miss some."
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Blank:
    """Tokens before and after a blank; `begins` is True if the blank is the beginning of a word."""

    left: list[int]
    right: list[int]
    begins: bool

    def next_token(
        self, model: MaskedLM, filled: Sequence[Sequence[int]], count: int, begin: bool
    ) -> Float[Tensor, "fillers vocabulary"]:
        """Return the log-probabilities of the next token of fillers of `count` tokens, whose rest is masked."""
        known = len(filled[0])
        masks = [model.size] * (count - known)
        read = [np.array([*self.left, *tokens, *masks, *self.right]) for tokens in filled]
        return _log_probabilities(model, read, [len(self.left) + known] * len(read), begin)


def find_blank(text: str, tokenizer: Tokenizer) -> Blank:
    """Tokenize a text around its blank `___`.

    Raises:
        UserError: The text has no blank or several, or the tokenizer's tokens do not suit a blank.
    """
    parts = _BLANK.split(text)
    if len(parts) != 2:
        remedy = "write one blank as three underscores: ___"
        raise UserError(f"the text has {len(parts) - 1} blanks", where=repr(text), remedy=remedy)
    if tokenizer.kind in ("char", "bytes"):
        single = "bytes" if tokenizer.kind == "bytes" else "characters"
        remedy = "name a run whose tokenizer is of kind unigram, bpe or word"
        raise UserError(f"the run's tokens are single {single}, too short to fill a blank", "tokenizer.kind", remedy)
    before, after = parts
    begins, ends = tokenizer.begins_after(before), after == "" or after[0].isspace()
    if tokenizer.kind == "word" and not (begins and ends):
        what = "the run's tokens are whole words, with their punctuation"
        raise UserError(what, where=repr(text), remedy="put a space on either side of the blank")
    # One space before a word is part of the word's first token.
    left = before[:-1] if before[-1:].isspace() else before
    right = tokenizer.encode(after[1:]) if ends else tokenizer.encode_continuation(after)
    return Blank(tokenizer.encode(left), right, begins)


def fill(model: MaskedLM, tokenizer: Tokenizer, text: str, begin: bool, count: int = 1, best: int = 10) -> Filled:
    """Find the best fillers of a blank by beam search.

    A filler is a word or a part of one: its first token begins a word if the blank does, and the other tokens continue
    it. Probabilities are the model's own, not renormalized over suitable tokens. With several tokens, each is predicted
    with the tokens before it filled in and those after it masked, so that the probabilities of all fillers of this
    length sum to one.

    Args:
        text: Text with one blank `___`.
        begin: Prepend `BOS`, as in training.
        count: Number of tokens of a filler.
        best: Number of fillers.

    Raises:
        UserError: The text does not suit (see `find_blank`), or no filler has so many tokens.
    """
    blank = find_blank(text, tokenizer)
    # Tokens that begin a word, and tokens that continue one; special tokens and bytes do neither.
    shown = tokenizer.tokens(range(tokenizer.size))
    plain = [i >= len(SPECIAL_TOKENS) and not re.fullmatch("<0x[0-9A-F]{2}>", name) for i, name in enumerate(shown)]
    beginning = torch.tensor([p and n.startswith("▁") and n != "▁" for p, n in zip(plain, shown, strict=True)])
    continuing = torch.tensor([p and not n.startswith("▁") for p, n in zip(plain, shown, strict=True)])
    scores = torch.zeros(1, dtype=torch.float64)
    filled: list[list[int]] = [[]]
    fitting = 0.0
    for step in range(count):
        allowed = beginning if step == 0 and blank.begins else continuing
        found = blank.next_token(model, filled, count, begin).cpu().double()
        if step == 0:
            fitting = float(found[0].exp()[allowed].sum())
        found = (scores[:, None] + found).masked_fill(~allowed, -torch.inf).flatten()
        kept = min(best if step == count - 1 else max(best, _BEAM), int(found.isfinite().sum()))
        if not kept:
            what = f"no filler has {count} tokens: each token of this tokenizer ({tokenizer.kind}) is a whole word"
            raise UserError(what, remedy="ask for fillers of one token")
        scores, order = found.topk(kept)
        filled = [[*filled[i // model.size], i % model.size] for i in order.tolist()]
    texts = [("" if blank.begins else "…") + tokenizer.decode(tokens) for tokens in filled]
    return Filled(text, count, list(map(Filler, texts, scores.exp().tolist())), fitting)


def fill_warnings(text: str, tokenizer: Tokenizer, max_length: int) -> list[str]:
    """Return warnings about a text with words that the tokenizer does not know, or longer than training texts.

    Args:
        text: Text with a blank.
        max_length: Number of tokens of the longest training text.
    """
    found: list[str] = []
    # A tokenizer of words may not know the blank itself.
    if unknown := [word for word in outside_vocabulary(text, tokenizer) if word.strip("_")]:
        found.append(describe_unknown(unknown, "vocabulary", "filler"))
    TooLong(max_length, found.append, True, "shorten {}").add(len(tokenizer.encode(text)))
    return found


@dataclass(frozen=True)
class WordChoice:
    """Log-probabilities of words in the same blank, in nats; each word has `pieces` tokens."""

    text: str
    words: list[str]
    pieces: int
    log_probabilities: list[float]

    def __str__(self) -> str:
        lines = [self.text]
        lines += [f"  {w:20}  {np.exp(score):.3e}" for w, score in zip(self.words, self.log_probabilities, strict=True)]
        first = self.log_probabilities[0]
        for word, score in zip(self.words[1:], self.log_probabilities[1:], strict=True):
            lines.append(f"  {self.words[0]} : {word} = {np.exp(first - score):.3g} : 1")
        if self.pieces > 1:
            lines.append(f"  each of {self.pieces} tokens, filled from left to right")
        return "\n".join(lines)


def weigh_words(model: MaskedLM, tokenizer: Tokenizer, text: str, words: Sequence[str], begin: bool) -> WordChoice:
    """Compute the probability of two or more words in a blank `___`.

    Words with different numbers of tokens are refused: two masked tokens imply that one token was not enough, so that
    the probabilities answer different questions.

    Args:
        text: Text with one blank.
        words: Words with equal numbers of tokens.
        begin: Prepend `BOS`, as in training.
    """
    blank = find_blank(text, tokenizer)
    tokens = [tokenizer.encode(w) if blank.begins else tokenizer.encode_continuation(w) for w in words]
    for word, found in zip(words, tokens, strict=True):
        if not found or UNK in found:
            raise UserError(f"{word!r} is unknown to the run's tokenizer", where="--words", remedy="try another word")
    count = len(tokens[0])
    if any(len(each) != count for each in tokens):
        shown = ", ".join(f"{word} has {len(each)}" for word, each in zip(words, tokens, strict=True))
        what = f"probabilities of words with different numbers of tokens cannot be compared: {shown}"
        raise UserError(what, where="--words", remedy="choose words with equally many tokens")
    scores = np.zeros(len(words))
    for step in range(count):
        found = blank.next_token(model, [row[:step] for row in tokens], count, begin)
        chosen = torch.tensor([row[step] for row in tokens], device=found.device)
        scores += found.gather(1, chosen[:, None])[:, 0].cpu().double().numpy()
    return WordChoice(text, list(words), count, scores.tolist())
