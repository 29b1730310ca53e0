"""Diagnosis of masked language models: of texts before training, and of trained models."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from s2s.data.dataset import iterate_batches
from s2s.data.tables import TextSource
from s2s.data.tokenizers import UNK
from s2s.errors import UserError
from s2s.evaluation.signs import WORST, Diagnostics, Finding, WorstExample, entropy, share_sign, unknown
from s2s.inspection.inspection import AttentionMaps, InspectedExample, Inspection, InspectionRequest
from s2s.inspection.positions import positions_of, without_words
from s2s.inspection.saliency import Score, contrast, explain_classes, rollout
from s2s.inspection.walk import Source, chosen_words, same_word
from s2s.inspection.words import Word, check_length, find_word, words_of
from s2s.models.masked_lm import MaskedLM
from s2s.nn.layers import States
from s2s.tasks.base import LoadedModel
from s2s.tasks.data_check import inspect_texts
from s2s.tasks.masked_lm.data import MaskedText, collate_masked
from s2s.tasks.masked_lm.filling import find_blank
from s2s.tasks.masked_lm.recipe import MaskedRecipe
from s2s.training.progress import ProgressBar


def inspected(recipe: MaskedRecipe) -> str:
    """Return a report on a recipe's texts: statistics and suspicious examples."""
    return str(inspect_texts(TextSource(recipe.data).load(), recipe.data.seed, recipe.tokenizer, "texts"))


_BLANK = "___"
_BEST = 4

MaskedRun = LoadedModel[MaskedRecipe, MaskedLM]


def inspect_inputs(run: MaskedRun, focus: InspectionRequest) -> Inspection:
    """Inspect one text or two (`s2s inspect`).

    A blank `___` is masked; in a single text without a blank, the inspected word is masked. In two texts without
    blanks, no word is masked, because its hidden states are compared. In an example of the corpus, `___` is ordinary
    text.

    Args:
        focus: Texts, and the word, layer and head to inspect.

    Returns:
        Predictions, attention, saliency and hidden states.

    Raises:
        UserError: A text is empty or too long, or lacks the word; or the layer or head does not exist.
    """
    texts = focus.inputs or (str(focus.example["text"][0]),)
    readings = [_Reading(run, text, typed=bool(focus.inputs)) for text in texts]
    encoder, one = run.model.encoder, len(texts) == 1
    words = [readings[0].masked(focus.word)] if one else []
    sources = [reading.source for reading in readings]
    words = words or chosen_words(encoder, sources, focus.word)
    examples = [reading.inspected(focus, word) for reading, word in zip(readings, words, strict=True)]
    positions = positions_of("encoder", encoder.embedding, max(len(source.pieces) for source in sources))
    same = same_word(encoder, sources, words)
    return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, examples, same, positions)


class _Reading:
    """A text with some of its tokens masked."""

    def __init__(self, run: MaskedRun, text: str, typed: bool) -> None:
        if not text.strip():
            raise UserError("the text is empty", remedy="give one in quotes")
        self.text, self.model, self.tokenizer = text, run.model, run.tokenizers[0]
        self.begin, self.device = run.recipe.masking.begin, run.device_context.device
        self.blank: int | None = None
        if typed and _BLANK in text:
            blank = find_blank(text, self.tokenizer)
            before, after = words_of(self.tokenizer, blank.left), words_of(self.tokenizer, blank.right)
            self.blank = len(before)
            self.ids = [*blank.left, self.model.size, *blank.right]
            self.words = [*before, Word(_BLANK, (len(blank.left),)), *_shifted(after, len(blank.left) + 1)]
        else:
            self.ids = self.tokenizer.encode(text)
            longest = run.recipe.batches.max_length - 1 - int(self.begin)
            if not typed and len(self.ids) > longest:
                self.ids = self.ids[:longest]
                self.text = self.tokenizer.decode(self.ids) + " …"
            self.words = words_of(self.tokenizer, self.ids)
        self.source = self._read(self.ids)

    def _read(self, ids: Sequence[int]) -> Source:
        """Return the model's input, with `BOS` and `EOS`."""
        row, begin, mask = np.array(ids), int(self.begin), self.tokenizer.mask
        batch = collate_masked([row], [row], [np.array([0])], [0], self.begin).to(self.device)
        check_length(batch.source.shape[1], self.model.encoder.max_positions)
        names = [_BLANK if token == mask else self.tokenizer.tokens([token])[0] for token in ids]
        words = _shifted(self.words, begin)
        ends = Word("</s>", (begin + len(ids),))
        words = [*([Word("<s>", (0,))] if begin else []), *words, ends]
        return Source(batch.source, batch.source_valid, [*["<s>"] * begin, *names, "</s>"], words)

    def masked(self, wanted: str | None) -> int:
        """Mask the blank, or else the wanted word (None chooses one); return the index of the inspected word."""
        words, begin = self.source.words, int(self.begin)
        if wanted is not None:
            word = find_word(words, wanted)
        elif self.blank is not None:
            word = self.blank + begin
        else:
            word = chosen_words(self.model.encoder, [self.source], None)[0]
        if self.blank is None:
            hidden = {place - begin for place in words[word].places}
            self.source = self._read([self.model.size if i in hidden else p for i, p in enumerate(self.ids)])
        return word

    def inspected(self, focus: InspectionRequest, word: int) -> InspectedExample:
        """Return the prediction for the masked word, with attention and saliency."""
        model, source, encoder = self.model, self.source, self.model.encoder
        asked = source.words[word if self.blank is None else self.blank + int(self.begin)]
        if asked.text in ("<s>", "</s>"):
            raise UserError(f"{asked.text} is not a word of the text", "--word", "name a word of the text")
        places = sorted(asked.places)
        with torch.no_grad():
            vectors = encoder.embedding(source.read)
            weights = encoder.self_attention_weights(source.read, source.valid)
            found = model.log_probabilities(source.read, source.valid, torch.tensor(places, device=self.device))
        best = found.argmax(dim=1).tolist()
        answers = self.tokenizer.tokens(best)
        scores = [self._score(place, piece) for place, piece in zip(places, best, strict=True)]
        reached = rollout(weights)[0, places] if weights.shape[1] else None
        ways = vectors, without_words(encoder.embedding, vectors)
        saliency = explain_classes(answers, scores, ways, source.words, reached)
        maps = []
        if weights.shape[1]:
            maps = [AttentionMaps("encoder", weights[0].cpu().double().numpy(), source.pieces, source.pieces)]
        likely, tokens = found[0].exp().topk(_BEST)
        named = zip(self.tokenizer.tokens(tokens.tolist()), likely.tolist(), strict=True)
        remark = f"{asked.text}: " + " · ".join(f"{piece} {share:.3f}" for piece, share in named)
        walk = source.walk(encoder, focus, word)
        return InspectedExample(self.text, self.tokenizer.decode(best).strip(), remark, maps, saliency, walk)

    def _score(self, place: int, piece: int) -> Score:
        """Return the score function of a token at a position: its logit minus the mean."""

        def score(vectors: States) -> Tensor:
            states = self.model.encoder.read(vectors, self.source.valid.expand(len(vectors), -1)).states
            return contrast(self.model.scores(self.model.transform(states[:, place])), piece)

        return score


def _shifted(words: Sequence[Word], count: int) -> list[Word]:
    return [Word(word.text, tuple(place + count for place in word.places)) for word in words]


_SHOWN_PIECES = 8


def symptoms(
    run: MaskedRun, rows: Int[np.ndarray, " texts"], examples: MaskedText, progress_bar: ProgressBar
) -> Diagnostics:
    """Predict masked tokens in windows of texts; return signs of problems, and the windows with the highest loss.

    Args:
        rows: Rows of the texts in their split.
        examples: Windows of these texts.
    """
    wanted, said, losses, windows = [], [], [], []
    with progress_bar("measuring", len(examples)) as advance, torch.inference_mode():
        for some, batch in iterate_batches(examples, run.device_context.device):
            found = run.model.log_probabilities(batch.source, batch.source_valid, batch.chosen)
            wanted.append(batch.targets.cpu().numpy())
            said.append(found.argmax(1).cpu().numpy())
            losses.append(-found.gather(1, batch.targets[:, None])[:, 0].cpu().double().numpy())
            windows.append(some[(batch.chosen // batch.source.shape[1]).cpu().numpy()])
            advance(len(some))
    targets, answers, loss, window = (np.concatenate(each) for each in (wanted, said, losses, windows))
    tokens = np.concatenate(examples.window(np.arange(len(examples))))
    return Diagnostics(
        summary=f"{len(rows):,} texts, {len(targets):,} masked tokens: loss {loss.mean():.3f} nats, "
        f"{100 * (targets == answers).mean():.2f} % correct",
        signs=[_one_token(targets, answers, run.tokenizers[0].tokens), unknown(tokens, UNK, None)],
        worst=_worst(run, rows, examples, (targets, answers, loss, window)),
        chance_loss=entropy(targets),
    )


def _one_token(targets: np.ndarray, answers: np.ndarray, shown: Callable[[list[int]], list[str]]) -> Finding:
    """Return the sign for a model that predicts one token too often."""
    kinds, counts = np.unique(answers, return_counts=True)
    usual = kinds[counts.argmax()]
    wrong = int(((answers == usual) & (targets != usual)).sum())
    return share_sign(
        "says always the same",
        wrong,
        len(answers),
        f"masked tokens are wrongly predicted as {shown([int(usual)])[0]!r} ({len(kinds):,} different predictions)",
        33,
        "a model that learned only token frequencies predicts one token everywhere",
        "train for longer (training.updates); lower training.learning_rate and raise training.warmup",
    )


def _worst(
    run: MaskedRun, rows: Int[np.ndarray, " texts"], examples: MaskedText, found: tuple[np.ndarray, ...]
) -> list[WorstExample]:
    targets, answers, loss, window = found
    kinds, which = np.unique(window, return_inverse=True)
    means = np.bincount(which, loss) / np.bincount(which)
    cutter, worst = run.tokenizers[0], []
    for place in np.argsort(-means, kind="stable")[:WORST]:
        mine = np.flatnonzero(which == place)[:_SHOWN_PIECES]
        text = cutter.decode(examples.window(kinds[place : place + 1])[0].tolist())
        said, right = (" ".join(cutter.tokens(each[mine].tolist())) for each in (answers, targets))
        number = rows[examples.numbers[kinds[place]]] + 1
        worst.append(WorstExample(text, said, right, f"text {number}, {means[place]:.2f} nats per masked token"))
    return worst
