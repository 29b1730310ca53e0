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
from s2s.tasks.base import LoadedModel
from s2s.tasks.masked_lm.data import collate_masked
from s2s.tasks.masked_lm.recipe import MaskedRecipe

_BUDGET = 8192


def masked_log_probabilities(
    model: MaskedLM, texts: Sequence[Sequence[int]], places: Sequence[Sequence[int]], begin: bool, budget: int = _BUDGET
) -> list[Float[np.ndarray, " places"]]:
    """Compute the log-probability of tokens, each masked alone."""
    asked = [(number, place) for number, row in enumerate(places) for place in row]
    rows = [np.array([*texts[n][:place], model.size, *texts[n][place + 1 :]]) for n, place in asked]
    found = np.empty(len(asked))
    for batch in _batches([len(row) for row in rows], budget):
        read = [rows[i] for i in batch]
        chosen = [np.array([asked[i][1]]) for i in batch]
        scores = log_probabilities(model, read, chosen, begin)
        targets = torch.tensor([texts[asked[i][0]][asked[i][1]] for i in batch], device=scores.device)
        found[batch] = scores.gather(1, targets[:, None])[:, 0].cpu().double().numpy()
    ends = np.cumsum([len(row) for row in places])
    return np.split(found, ends[:-1]) if len(places) else []


def log_probabilities(
    model: MaskedLM, read: Sequence[np.ndarray], chosen: Sequence[np.ndarray], begin: bool
) -> Float[Tensor, "chosen vocabulary"]:
    """Compute the log-probabilities of all tokens at positions of texts, in a batch.

    Args:
        model: Masked language model.
        read: Input tokens of each text, without special tokens.
        begin: Prepend `BOS` to each text, as in training.

    Returns:
        Log-probabilities (chosen, vocabulary), text after text.

    Raises:
        UserError: A text has more tokens than the model has positions.
    """
    longest = MAX_SOURCE_LENGTH if model.encoder.max_positions is None else model.encoder.max_positions
    check_length(max(len(row) for row in read) + 1 + int(begin), longest)
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


_BLANK = re.compile("_{3,}")
_SPACE = "▁"
_BEAM = 20


@dataclass(frozen=True)
class Filler:
    """Filler of a blank.

    Attributes:
        probability: Product of the probabilities of its tokens, in [0, 1].
    """

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
        lines.append(f"{self.fitting:.1%} of the probability is on pieces that can stand there; these are the best.")
        if self.pieces > 1:
            lines.append(
                f"The blank was {self.pieces} masked pieces, filled from the first to the last, each read by the next; "
                f"a probability is the product of theirs. Only fillers of {self.pieces} pieces can be compared, and a "
                f"search that keeps {_BEAM} beginnings may have missed one."
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Blank:
    """Tokens around a blank.

    Attributes:
        left: Tokens before the blank.
        right: Tokens after the blank.
        begins: True if the blank is the beginning of a word, False if it continues a word.
    """

    left: list[int]
    right: list[int]
    begins: bool

    def masked(self, filled: Sequence[int], count: int, mask: int) -> np.ndarray:
        """Return the text's tokens with `count` tokens in the blank.

        Args:
            filled: Tokens that are known already.
            count: Number of tokens in the blank; the rest are mask tokens.
            mask: Id of the mask token.

        Returns:
            Tokens of the whole text.
        """
        return np.array([*self.left, *filled, *[mask] * (count - len(filled)), *self.right])


def find_blank(text: str, tokenizer: Tokenizer) -> Blank:
    """Tokenize a text around its blank `___`."""
    parts = _BLANK.split(text)
    if len(parts) != 2:
        raise UserError(
            f"the text has {len(parts) - 1} blanks",
            where=repr(text),
            remedy="write one blank as three underscores: ___",
        )
    if tokenizer.kind in ("char", "bytes"):
        raise UserError(
            f"the run's pieces are single {'bytes' if tokenizer.kind == 'bytes' else 'characters'}, of which a blank "
            "would be one",
            where="tokenizer.kind",
            remedy="name a run whose tokenizer is of kind unigram, bpe or word",
        )
    before, after = parts
    begins = tokenizer.begins_after(before)
    ends = after == "" or after[0].isspace()
    if tokenizer.kind == "word" and not (begins and ends):
        raise UserError(
            "the run's pieces are whole words, with all that stands beside them",
            where=repr(text),
            remedy="put a space on either side of the blank",
        )
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
        model: Masked language model.
        text: Text with one blank `___`.
        begin: Prepend `BOS`, as in training.
        count: Number of tokens of a filler.

    Returns:
        Fillers, best first.

    Raises:
        UserError: The text does not suit (see `find_blank`), or no filler has so many tokens.
    """
    blank = find_blank(text, tokenizer)
    beginning, going_on = _fitting(tokenizer)
    scores = torch.zeros(1, dtype=torch.float64)
    filled: list[list[int]] = [[]]
    fitting = 0.0
    for step in range(count):
        allowed = beginning if step == 0 and blank.begins else going_on
        found = _next_piece(model, blank, filled, count, begin).cpu().double()
        if step == 0:
            fitting = float(found[0].exp()[allowed].sum())
        found = (scores[:, None] + found).masked_fill(~allowed, -torch.inf).flatten()
        kept = min(best if step == count - 1 else max(best, _BEAM), int(found.isfinite().sum()))
        if not kept:
            raise UserError(
                f"nothing of {count} pieces fits: each piece of this tokenizer ({tokenizer.kind}) is a word of its own",
                remedy="ask for fillers of one piece",
            )
        scores, order = found.topk(kept)
        filled = [[*filled[i // model.size], i % model.size] for i in order.tolist()]
    texts = [("" if blank.begins else "…") + tokenizer.decode(tokens) for tokens in filled]
    return Filled(text, count, list(map(Filler, texts, scores.exp().tolist())), fitting)


def fill_blank(run: LoadedModel[MaskedRecipe, MaskedLM], text: str, count: int = 1, best: int = 10) -> Filled:
    """Find the best fillers of a blank with a run's model; see `fill`.

    Args:
        text: Text with one blank `___`.
        count: Number of tokens of a filler.

    Returns:
        Fillers, best first.
    """
    return fill(run.model, run.tokenizers[0], text, run.recipe.masking.begin, count, best)


def weigh(run: LoadedModel[MaskedRecipe, MaskedLM], text: str, words: Sequence[str]) -> "WordChoice":
    """Compute the probability of words in a blank with a run's model.

    Args:
        text: Text with one blank `___`.
        words: Two or more words; see `weigh_words`.
    """
    return weigh_words(run.model, run.tokenizers[0], text, words, run.recipe.masking.begin)


def _next_piece(
    model: MaskedLM, blank: Blank, filled: list[list[int]], count: int, begin: bool
) -> Float[Tensor, "fillers vocabulary"]:
    read = [blank.masked(tokens, count, model.size) for tokens in filled]
    place = len(blank.left) + len(filled[0])
    return log_probabilities(model, read, [np.array([place])] * len(read), begin)


def _fitting(tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Return masks of tokens that begin a word and of tokens that continue one.

    Special tokens and bytes are in neither.
    """
    shown = tokenizer.tokens(range(tokenizer.size))
    text = [i >= len(SPECIAL_TOKENS) and not re.fullmatch("<0x[0-9A-F]{2}>", piece) for i, piece in enumerate(shown)]
    begins = [t and piece.startswith(_SPACE) and piece != _SPACE for t, piece in zip(text, shown, strict=True)]
    goes_on = [t and not piece.startswith(_SPACE) for t, piece in zip(text, shown, strict=True)]
    return torch.tensor(begins), torch.tensor(goes_on)


@dataclass(frozen=True)
class WordChoice:
    """Log-probabilities of words in the same blank.

    Attributes:
        pieces: Number of tokens of each word.
        log_probabilities: Log-probability of each word, in nats.
    """

    text: str
    words: list[str]
    pieces: int
    log_probabilities: list[float]

    def __str__(self) -> str:
        lines = [self.text]
        for word, score in zip(self.words, self.log_probabilities, strict=True):
            lines.append(f"  {word:20}  {np.exp(score):.3e}")
        first = self.log_probabilities[0]
        for word, score in zip(self.words[1:], self.log_probabilities[1:], strict=True):
            lines.append(f"  {self.words[0]} : {word} = {np.exp(first - score):.3g} : 1")
        if self.pieces > 1:
            lines.append(f"  each of {self.pieces} pieces, filled from the first to the last")
        return "\n".join(lines)


def weigh_words(model: MaskedLM, tokenizer: Tokenizer, text: str, words: Sequence[str], begin: bool) -> WordChoice:
    """Compute the probability of two or more words in a blank `___`.

    Words with different numbers of tokens are refused. Two masked tokens imply that one token was
    not enough, so that the probabilities answer different questions.
    """
    blank = find_blank(text, tokenizer)
    tokens = [tokenizer.encode(w) if blank.begins else tokenizer.encode_continuation(w) for w in words]
    for word, found in zip(words, tokens, strict=True):
        if not found or UNK in found:
            raise UserError(f"{word!r} is unknown to the run's tokenizer", where="--words", remedy="try another word")
    counts = {word: len(found) for word, found in zip(words, tokens, strict=True)}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{word} has {count}" for word, count in counts.items())
        raise UserError(
            f"probabilities of words with different numbers of pieces cannot be compared: {shown}",
            where="--words",
            remedy="choose words of equally many pieces",
        )
    count = len(tokens[0])
    scores = np.zeros(len(words))
    for step in range(count):
        found = _next_piece(model, blank, [p[:step] for p in tokens], count, begin)
        chosen = torch.tensor([p[step] for p in tokens], device=found.device)
        scores += found.gather(1, chosen[:, None])[:, 0].cpu().double().numpy()
    return WordChoice(text, list(words), count, scores.tolist())
