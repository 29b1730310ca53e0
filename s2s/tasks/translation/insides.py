"""What `s2s inspect` shows of a translator: where it looks while it writes, and what source words weigh for that."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from s2s.data.batches import Batch, collate
from s2s.data.tokenizers import EOS
from s2s.decoding.translator import Translator
from s2s.errors import UserError
from s2s.interpretability.inspection import AttentionMaps, Focus, Inspected, Inspection, Saliency
from s2s.interpretability.positions import positions_of, without_words
from s2s.interpretability.saliency import Score, integrated_gradients, on_words, rollout, times_input
from s2s.interpretability.walk import Source, chosen_words, same_word
from s2s.interpretability.words import words_of
from s2s.models.contract import Seq2Seq
from s2s.nn.layers import States
from s2s.tasks.contract import Loaded
from s2s.tasks.translation.evaluation import translator_of
from s2s.tasks.translation.recipe import Recipe

TranslationRun = Loaded[Recipe, Seq2Seq]


def insides(run: TranslationRun, focus: Focus) -> Inspection:
    """What is found of one sentence or two, each with the model's own translation unless the focus has another.

    Raises:
        UserError: a sentence is empty or too long, or has not the word; or there is no such layer or head.
    """
    texts = focus.inputs or (str(focus.example["source"][0]),)
    pairs = [_Pair.of(run, text, focus.output) for text in texts]
    sources, encoder = [pair.source for pair in pairs], run.model.encoder
    words = chosen_words(encoder, sources, focus.word)
    examples = [pair.inspected(run.model, focus, word) for pair, word in zip(pairs, words, strict=True)]
    lengths = [max(len(pair.source.pieces), len(pair.target)) for pair in pairs]
    positions = positions_of("encoder", encoder.embedding, max(lengths))
    positions += positions_of("decoder", getattr(run.model.decoder, "embedding", None), max(lengths))
    same = same_word(encoder, sources, words) if len(texts) > 1 else None
    return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, examples, same, positions)


class _Pair:
    """A sentence and what was written for it, as a model reads them."""

    def __init__(self, batch: Batch, texts: tuple[str, str], source: Source, target: Sequence[str]) -> None:
        self.batch, self.texts, self.source, self.target = batch, texts, source, target

    @staticmethod
    def of(run: TranslationRun, text: str, translation: str | None) -> "_Pair":
        """The model's own translation when None is given."""
        if not text.strip():
            raise UserError("the sentence is empty", remedy="give one in quotes")
        into = run.tokenizers[-1]
        written = written_by(translator_of(run), [text])[0] if translation is None else into.encode(translation)
        read = run.tokenizers[0].encode(text)
        check_lengths(run.model, read, written)
        batch = collate([read], [written], [0]).to(run.computer.device)
        ids = [*read, EOS]
        source = Source(
            batch.source, batch.source_valid, run.tokenizers[0].pieces(ids), words_of(run.tokenizers[0], ids)
        )
        return _Pair(batch, (text, into.decode(written)), source, into.pieces([*written, EOS]))

    def inspected(self, model: Seq2Seq, focus: Focus, word: int) -> Inspected:
        walk = self.source.walk(model.encoder, focus, word)
        return Inspected(*self.texts, "", self._attention(model), list(self._saliency(model)), walk)

    def _attention(self, model: Seq2Seq) -> list[AttentionMaps]:
        batch, read = self.batch, self.source.pieces
        with torch.no_grad():
            memory = model.encoder(batch.source, batch.source_valid)
            encoder = model.encoder.attention_weights(batch.source, batch.source_valid)[0]
            decoder = model.decoder.self_attention_weights(memory, batch.target_in)[0]
            cross = model.decoder.attention_weights(memory, batch.target_in)[0]
        fed = ["<s>", *self.target[:-1]]
        found = (
            AttentionMaps("encoder", _numbers(encoder), read, read),
            AttentionMaps("decoder", _numbers(decoder), self.target, fed),
            AttentionMaps("cross", _numbers(cross), self.target, read),
        )
        return [maps for maps in found if len(maps.weights)]

    def _saliency(self, model: Seq2Seq) -> list[Saliency]:
        with torch.no_grad():
            vectors = model.encoder.embedding(self.batch.source)
        baseline, words = without_words(model.encoder.embedding, vectors), self.source.words
        scores = [self._score(model, place) for place in range(len(self.target))]
        gradients = torch.stack([times_input(score, vectors)[0] for score in scores])
        ways = [integrated_gradients(score, vectors, baseline) for score in scores]
        integrated, difference = torch.stack([shares for shares, _ in ways]), max(gap for _, gap in ways)
        found = [
            on_words("gradient x input", self.target, words, gradients),
            on_words("integrated gradients", self.target, words, integrated, difference),
        ]
        with torch.no_grad():
            memory = model.encoder(self.batch.source, self.batch.source_valid)
            cross = model.decoder.attention_weights(memory, self.batch.target_in)[0]
            mixed = model.encoder.attention_weights(self.batch.source, self.batch.source_valid)
        if len(cross):
            # what reached each state of the encoder, by how much the last layer's heads looked at it
            reached = cross[-1].mean(dim=0) @ rollout(mixed)[0]
            found.append(on_words("attention rollout", self.target, words, reached))
        return found

    def _score(self, model: Seq2Seq, place: int) -> Score:
        """Of the piece that was written at a place, less the mean of all pieces' scores."""
        batch = self.batch

        def score(vectors: States) -> Tensor:
            """For any number of rows that are all of this pair."""
            rows = len(vectors)
            memory = model.encoder.read(vectors, batch.source_valid.expand(rows, -1))
            fed = batch.target_in[:, : place + 1].expand(rows, -1)
            context, state = model.decoder.start(memory, place + 1)
            scores = model.projection(model.decoder(context, state, fed)[0][:, -1])
            return scores[:, int(batch.target_out[0, place])] - scores.mean(dim=1)

        return score


def written_by(translator: Translator, lines: list[str]) -> list[list[int]]:
    """The pieces of each line's translation; empty lines have none."""
    found = translator.translate_chunk(lines)
    return [list(each.candidates[0].hypothesis.tokens) if each.candidates else [] for each in found]


def check_lengths(model: Seq2Seq, source: Sequence[int], target: Sequence[int]) -> None:
    """Refuses a pair that is longer than the positions which a model has learned."""
    for side, pieces, longest in (
        ("sentence", source, model.encoder.longest),
        ("translation", target, model.decoder.longest),
    ):
        if longest is not None and len(pieces) >= longest:
            raise UserError(
                f"a {side} of {len(pieces)} pieces is longer than the {longest} positions that the model has learned",
                remedy="shorten it",
            )


def _numbers(weights: Tensor) -> np.ndarray:
    return weights.cpu().double().numpy()
