"""Diagnosis of language models: of documents before training, and of trained models (`s2s inspect`, `s2s diagnose`)."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from s2s.data.dataset import iterate_batches
from s2s.data.tokenized import RaggedArray, encode_texts
from s2s.data.tokenizers import BOS, EOS, UNK
from s2s.errors import UserError
from s2s.evaluation.inference import draws, estimate, ratios
from s2s.evaluation.signs import (
    WORST,
    Diagnostics,
    Finding,
    WorstExample,
    entropy,
    plain_sign,
    repeated,
    share_sign,
    unit_of,
)
from s2s.inspection.inspection import AttentionMaps, InspectedExample, Inspection, InspectionRequest
from s2s.inspection.positions import positions_of, without_words
from s2s.inspection.saliency import contrast, explain_classes, rollout
from s2s.inspection.walk import Source, chosen_words, lookups, same_word, weights_of
from s2s.inspection.words import check_length, words_of
from s2s.models.base import Encoder, EncoderOutput
from s2s.models.language_model import CausalDecoder
from s2s.nn.layers import Inputs, PaddingMask, States
from s2s.tasks.data_check import inspect_texts
from s2s.tasks.language_model.data import DocumentSource, Windows, windows_of
from s2s.tasks.language_model.generation import LanguageRun, Sampling, Writing, texts_after
from s2s.tasks.language_model.recipe import LanguageRecipe
from s2s.tasks.language_model.scoring import bits_per_byte, measure, size_of
from s2s.tasks.symptoms import collapsed
from s2s.training.progress import ProgressBar

if TYPE_CHECKING:
    import datasets

# Bytes of a page or two; a longer document is reported if the corpus has few.
_PAGES = 1_000_000


def inspected(recipe: LanguageRecipe) -> str:
    """Return a report on a recipe's documents: statistics and suspicious examples."""
    flatter = "their bits per byte would be too low; identity keeps them"
    corpus = DocumentSource(recipe.data).load()
    found = inspect_texts(corpus, recipe.data.seed, recipe.tokenizer, "documents", flatter)
    train = found.splits["train"].rows
    few = (
        f"train has {train['documents']} documents, and the longest has {train['  of the longest']:,} bytes: "
        "set data.document: paragraph for more documents"
    )
    whole = train["documents"] < 10 and train["  of the longest"] > _PAGES
    return str(replace(found, own=(few,) if whole else ()))


_BEST = 4
# Maximum number of tokens for a text of the run's own corpus.
_PIECES = 64


class CausalReader(Encoder):
    """Encoder interface of a causal language model.

    Each state depends only on earlier tokens.

    Args:
        decoder: Decoder of the language model; each row is one document.
    """

    def __init__(self, decoder: CausalDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.embedding = decoder.embedding
        self.max_positions = decoder.max_positions

    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        """Run the decoder on given embeddings.

        A forward hook replaces the decoder's own embeddings.

        Args:
            vectors: Embeddings, `(batch, source, width)`.
        """
        handle = self.embedding.register_forward_hook(lambda module, given, made: vectors)
        try:
            # The token ids do not matter, because the hook replaces their embeddings.
            states = self.decoder.read(torch.zeros_like(valid, dtype=torch.int64), separate_documents=False)
        finally:
            handle.remove()
        return EncoderOutput(states, valid, states[:, -1])

    def self_attention_weights(self, source: Inputs, valid: PaddingMask) -> Float[Tensor, "1 layer head source source"]:
        """Return the causal self-attention weights.

        Args:
            source: Token ids of a single row, `(1, source)`.

        Returns:
            Weights, `(1, layer, head, source, source)`; zero above the diagonal.
        """
        found = lookups(self.decoder, lambda: self.decoder.read(source, separate_documents=False))
        if not found:
            return super().self_attention_weights(source, valid)
        return torch.stack([weights_of(lookup) for lookup in found])[None]


def inspect_inputs(run: LanguageRun, focus: InspectionRequest) -> Inspection:
    """Inspect one text or two, and the predicted next token (`s2s inspect`)."""
    texts = focus.inputs or (str(focus.example["text"][0]),)
    reader = CausalReader(run.model.decoder).eval()
    sources = [_source(run, text, cut=not focus.inputs) for text in texts]
    words = chosen_words(reader, sources, focus.word)
    examples = [_inspected(run, reader, each, focus, word) for each, word in zip(sources, words, strict=True)]
    positions = positions_of("decoder", reader.embedding, max(len(source.pieces) for source in sources))
    same = same_word(reader, sources, words)
    return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, examples, same, positions)


def _source(run: LanguageRun, text: str, cut: bool) -> Source:
    (tokenizer,), longest = run.tokenizers, run.model.decoder.max_positions
    if not text.strip():
        raise UserError("the text is empty", remedy="give one in quotes")
    ids = [BOS, *tokenizer.encode(text)]
    ids = ids[: min(_PIECES, longest or _PIECES)] if cut else ids
    check_length(len(ids), longest)
    read = torch.tensor([ids], device=run.device_context.device)
    return Source(read, torch.ones_like(read, dtype=torch.bool), tokenizer.tokens(ids), words_of(tokenizer, ids))


def _inspected(
    run: LanguageRun, reader: CausalReader, source: Source, focus: InspectionRequest, word: int
) -> InspectedExample:
    (tokenizer,), read = run.tokenizers, source.read
    with torch.no_grad():
        vectors = reader.embedding(read)
        weights = reader.self_attention_weights(read, source.valid)
        likely, tokens = run.model.logits(read)[0, -1].float().softmax(dim=0).topk(min(_BEST, tokenizer.size))
    names = tokenizer.tokens(tokens.tolist())
    ways = vectors, without_words(reader.embedding, vectors)
    reached = rollout(weights)[0, -1:] if weights.shape[1] else None

    def score(vectors: States) -> Tensor:
        read = reader.read(vectors, source.valid.expand(len(vectors), -1))
        return contrast(run.model.projection(read.summary), int(tokens[0]))

    saliency = explain_classes(names[:1], [score], ways, source.words, reached)
    # Each row of the attention map is the token that is predicted after the tokens before it.
    rows = [*source.pieces[1:], names[0]]
    maps = [AttentionMaps("decoder", weights[0].cpu().double().numpy(), rows, source.pieces)] if len(weights[0]) else []
    remark = "next: " + " · ".join(f"{name} {share:.3f}" for name, share in zip(names, likely.tolist(), strict=True))
    text = tokenizer.decode(read[0, 1:].tolist())
    return InspectedExample(text, names[0], remark, maps, saliency, source.walk(reader, focus, word))


# Number of texts to generate, tokens of a prompt, and maximum number of new tokens.
_TEXTS, _PROMPT, _MOST = 50, 4, 48
_ENDS = 0.1
_BEFORE = 0.05
# Number of tokens whose loss is measured with almost no context.
_NEAR = 20_000
_AT_ONCE = 1024


@dataclass(frozen=True)
class Expected:
    """Predictions at each position of documents: the token there, its negative log-probability in nats, and others.

    Attributes:
        place: Position in the document, from 0.
        wanted: Token at the position, or `EOS`.
        said: Most probable token.
        end: Probability of `EOS`.
    """

    document: Int[np.ndarray, " places"]
    place: Int[np.ndarray, " places"]
    wanted: Int[np.ndarray, " places"]
    nats: Float[np.ndarray, " places"]
    said: Int[np.ndarray, " places"]
    end: Float[np.ndarray, " places"]


def symptoms(
    run: LanguageRun, part: "datasets.Dataset", rows: Int[np.ndarray, " documents"], progress_bar: ProgressBar
) -> Diagnostics:
    """Measure predictions, generate texts, and return signs of problems and the documents with the highest loss."""
    tokens = encode_texts(part, run.tokenizers[0])
    found = _expected(run, windows_of(run.recipe, tokens), progress_bar)
    texts, every = part["text"][:], tokens.rows(np.arange(len(part)))
    size = size_of(texts, every, run.tokenizers[0])
    bits = bits_per_byte(float(found.nats.sum()), size.bytes)
    return Diagnostics(
        summary=f"{len(part):,} documents: {bits:.4f} bits per byte, {found.nats.mean():.4f} nats per token",
        signs=[
            *_written(run, texts, every),
            *ends(found),
            _short_sighted(run, tokens, found),
            share_sign(
                "unknown tokens",
                int((found.wanted == UNK).sum()),
                len(found.wanted),
                "tokens are unknown",
                1,
                "their embeddings are untrained, and they stand for any text",
                "tokenizer.byte_fallback=true, or tokenizer.kind=unigram; training data of the same kind",
            ),
            share_sign(
                "not spelt exactly",
                size.lossy,
                len(part),
                "documents differ from the text of their tokens",
                5,
                "their bits per byte are too low",
                "tokenizer.normalization=identity with tokenizer.byte_fallback=true represents all texts exactly",
            ),
        ],
        worst=_worst(run, every, found, rows),
        chance_loss=entropy(found.wanted),
    )


def _expected(run: LanguageRun, windows: Windows, progress_bar: ProgressBar) -> Expected:
    columns: list[list[np.ndarray]] = [[] for _ in range(6)]
    with (
        progress_bar("measuring", len(windows)) as advance,
        torch.inference_mode(),
        run.device_context.mixed_precision(),
    ):
        for rows, batch in iterate_batches(windows, run.device_context.device):
            chosen = batch.valid.flatten().nonzero().squeeze(1)
            states = run.model(batch.read).flatten(0, 1)[chosen]
            # In chunks, so that the logits of all positions are never in memory at once.
            for some, state in zip(chosen.split(_AT_ONCE), states.split(_AT_ONCE), strict=True):
                following = batch.following.flatten()[some]
                scores = run.model.projection(state).float().log_softmax(1)
                documents = windows.windows[rows, 0][(some // batch.read.shape[1]).cpu().numpy()]
                nats, end = -scores.gather(1, following[:, None])[:, 0], scores[:, EOS].exp()
                # To the CPU first, because Apple GPUs have no float64.
                each = batch.places.flatten()[some], following, nats, scores.argmax(1), end
                for column, values in zip(columns, (documents, *(t.cpu().numpy() for t in each)), strict=True):
                    column.append(values)
            advance(len(rows))
    return Expected(*(np.concatenate(column) for column in columns))


def ends(found: Expected) -> list[Finding]:
    """Return the signs for documents that end too rarely or too often.

    The expected number of ends is the sum of the probability of `EOS` over all positions; each document has one.

    Returns:
        Two findings, with a confidence interval over documents.
    """
    documents = int(found.document.max(initial=-1)) + 1
    expected = np.bincount(found.document, found.end, documents)
    ratio = float(expected.sum()) / max(1, documents)
    spread = estimate(ratio, ratios(expected, np.ones(documents), draws(documents)))
    low, high = spread.low or 0.0, spread.high or 0.0
    said = f"{ratio:.3f} ends ({low:.3f} to {high:.3f}) are expected for each document, which has one"
    seldom = f"if the interval is below {1 - _ENDS:g}: generated texts become too long"
    often = f"if the interval is above {1 + _ENDS:g}: generated texts become too short"
    remedy = "train for longer (training.updates); data.document must fit the documents of the test data"
    return [
        Finding("ends too rarely", high < 1 - _ENDS, said, ratio, low, high, seldom, remedy),
        Finding("ends too often", low > 1 + _ENDS, said, ratio, low, high, often, remedy),
    ]


def _short_sighted(run: LanguageRun, tokens: RaggedArray, found: Expected) -> Finding:
    """Return the sign for a model that uses only the last tokens of its context."""
    count = max(1, int(np.searchsorted(np.cumsum(tokens.lengths + 1), _NEAR)))
    some = RaggedArray.from_rows(tokens.rows(np.arange(min(count, len(tokens.lengths)))))
    near = measure(run.model, Windows(some, 2, 1, run.recipe.batches.tokens), run.device_context).loss
    far = float(found.nats[found.document < len(some.lengths)].mean())
    worth = near - far
    said = (
        f"{far:.3f} nats per token with the whole context, {near:.3f} with at most two tokens: the rest "
        f"lowers the loss by {worth:.3f}"
    )
    threshold = f"if it lowers the loss by less than {_BEFORE:g} nats: an n-gram model would do as well"
    remedy = (
        "train for longer (training.updates), more layers (model.decoder_layers), longer rows (batches.length), or "
        "longer documents (data.document: paragraph or file)"
    )
    return plain_sign("ignores what came before", worth < _BEFORE, said, worth, threshold, remedy)


def _written(run: LanguageRun, texts: list[str], tokens: list[np.ndarray]) -> list[Finding]:
    """Return signs in sampled continuations of documents' first tokens."""
    longest = run.model.decoder.max_positions
    most = _MOST if longest is None else max(0, min(_MOST, longest - _PROMPT))
    asked, prompts, outputs = Writing(Sampling(), most), [], []
    for number, row in enumerate(tokens[:_TEXTS]):
        prompt = row[:_PROMPT].tolist()
        prompts.append(run.tokenizers[0].decode(prompt))
        outputs += texts_after(run.model, run.tokenizers[0], prompt, asked, run.device_context, number)
    rests = [text[len(prompt) :] for text, prompt in zip(outputs, prompts, strict=True)]
    references = texts[: len(outputs)]
    return [repeated(outputs, references, unit_of(references)), collapsed(prompts, rests, references)]


def _worst(
    run: LanguageRun, tokens: list[np.ndarray], found: Expected, rows: Int[np.ndarray, " documents"]
) -> list[WorstExample]:
    """Return the documents with the highest loss per token, each up to its least probable token."""
    counts = np.bincount(found.document, minlength=len(tokens))
    means, (cutter,) = np.bincount(found.document, found.nats, len(tokens)) / np.maximum(1, counts), run.tokenizers
    worst = []
    for document in np.argsort(-means, kind="stable")[:WORST].tolist():
        own = np.flatnonzero(found.document == document)
        dearest = own[found.nats[own].argmax()]
        place, text = int(found.place[dearest]), tokens[document].tolist()
        said = "(the end)" if found.said[dearest] == EOS else cutter.decode([int(found.said[dearest])])
        right = cutter.decode(text[place:]) if place < len(text) else "(the end)"
        score = f"document {rows[document] + 1}, {means[document]:.2f} nats per token, {found.nats[dearest]:.1f} here"
        worst.append(WorstExample(cutter.decode(text[:place]), said, right, score))
    return worst
