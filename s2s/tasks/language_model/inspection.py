"""Inspection of a language model: self-attention, and saliency of the next token."""

import torch
from torch import Tensor

from s2s.data.tokenizers import BOS
from s2s.errors import UserError
from s2s.inspection.causal import CausalReader
from s2s.inspection.inspection import AttentionMaps, InspectedExample, Inspection, InspectionRequest
from s2s.inspection.positions import positions_of, without_words
from s2s.inspection.saliency import Score, explain_classes, rollout
from s2s.inspection.walk import Source, chosen_words, same_word
from s2s.inspection.words import check_length, words_of
from s2s.models.language_model import LanguageModel
from s2s.nn.layers import States
from s2s.tasks.base import LoadedModel
from s2s.tasks.language_model.recipe import LanguageRecipe

_BEST = 4
# Maximum number of tokens for a text of the run's own corpus.
_PIECES = 64

LanguageRun = LoadedModel[LanguageRecipe, LanguageModel]


def insides(run: LanguageRun, focus: InspectionRequest) -> Inspection:
    """Inspect one text or two, and the predicted next token (`s2s inspect`).

    Args:
        focus: Texts, and the word, layer and head to inspect.

    Returns:
        Attention, saliency and hidden states.

    Raises:
        UserError: A text is empty or too long, or lacks the word; or the layer or head does not exist.
    """
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
        weights = reader.attention_weights(read, source.valid)
        likely, tokens = run.model.logits(read)[0, -1].float().softmax(dim=0).topk(min(_BEST, tokenizer.size))
    names = tokenizer.tokens(tokens.tolist())
    ways = vectors, without_words(reader.embedding, vectors)
    reached = rollout(weights)[0, -1:] if weights.shape[1] else None
    saliency = explain_classes(
        names[:1], [_score(run.model, reader, source, int(tokens[0]))], ways, source.words, reached
    )
    # Each row of the attention map is the token that is predicted after the tokens before it.
    rows = [*source.pieces[1:], names[0]]
    maps = [AttentionMaps("decoder", weights[0].cpu().double().numpy(), rows, source.pieces)] if len(weights[0]) else []
    remark = "next: " + " · ".join(f"{name} {share:.3f}" for name, share in zip(names, likely.tolist(), strict=True))
    text = tokenizer.decode(read[0, 1:].tolist())
    return InspectedExample(text, names[0], remark, maps, saliency, source.walk(reader, focus, word))


def _score(model: LanguageModel, reader: CausalReader, source: Source, piece: int) -> Score:
    """Return the score function of the next token: its logit minus the mean logit."""

    def score(vectors: States) -> Tensor:
        scores = model.projection(reader.read(vectors, source.valid.expand(len(vectors), -1)).summary)
        return scores[:, piece] - scores.mean(dim=1)

    return score
