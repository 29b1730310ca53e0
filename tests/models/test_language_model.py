"""Contract of every installed model that can be a language model."""

import itertools

import pytest
import torch
from torch import Tensor

from s2s.data.tokenizers import BOS
from s2s.errors import UserError
from s2s.models.language_model import LanguageModel, document_positions
from s2s.recipe.installed import build_language_model, language_settings, models

SIZE = 23


def _able() -> list[str]:
    found = []
    for kind in models():
        try:
            language_settings(kind)
        except UserError:
            continue
        found.append(kind)
    return found


KINDS = _able()
VARIANTS = [
    ("transformer", {"norm": "post", "decoder_positions": "learned", "max_positions": 12, "tie": False}),
    ("transformer", {"attention": "explicit", "decoder_positions": "none"}),
    ("lstm", {"residual": True, "tie": False, "decoder_layers": 3}),
    ("transformer", {"decoder_positions": "rope", "heads_kind": "wide", "key_value_heads": 2, "norm_kind": "rms"}),
    ("transformer", {"decoder_positions": "alibi", "activation": "swiglu"}),
    ("transformer", {"decoder_positions": "relative", "embedding_norm": True}),
]
CASES = [(kind, {}) for kind in KINDS] + VARIANTS


def _build(kind: str, options: dict, seed: int = 0) -> LanguageModel:
    torch.manual_seed(seed)
    return build_language_model(language_settings(kind)(kind=kind, **{"width": 16} | options), SIZE).double().eval()


@pytest.fixture(params=CASES, ids=lambda case: " ".join([case[0], *map(str, case[1].items())]))
def model(request) -> LanguageModel:
    return _build(*request.param)


@pytest.fixture
def tokens() -> Tensor:
    """Rows that begin with a document or within one, and documents of many lengths."""
    torch.manual_seed(1)
    rows = torch.randint(4, SIZE, (4, 9))
    rows[0, 0] = rows[1, 0] = rows[1, 3] = rows[2, 4] = rows[2, 5] = rows[0, 8] = BOS
    return rows


def test_language_model_kinds_that_can_write_without_a_source_are_these():
    assert {"transformer", "rnn", "gru", "lstm", "mingru", "minlstm"} <= set(KINDS)
    for kind in ("conv", "rnn-tagger", "lstm-attention"):
        with pytest.raises(UserError, match=r"not a language model(.|\n)*transformer"):
            language_settings(kind)


@pytest.mark.parametrize("apart", [True, False])
def test_language_model_piece_by_piece_in_two_parts_and_at_once_are_the_same(model, tokens, apart):
    whole = model(tokens, apart)
    for cuts in (list(range(10)), [0, 4, 9], [0, 6, 9]):
        state, steps = model.decoder.start(len(tokens), apart), []
        for first, last in itertools.pairwise(cuts):
            states, state = model.decoder(state, tokens[:, first:last])
            steps.append(states)
        torch.testing.assert_close(torch.cat(steps, dim=1), whole)


@pytest.mark.parametrize("apart", [True, False])
def test_language_model_is_causal(model, tokens, apart):
    whole = model(tokens, apart)
    for place in range(1, 9):
        other = tokens.clone()
        other[:, place:] = 4 + (tokens[:, place:] + 5) % (SIZE - 4)
        torch.testing.assert_close(model(other, apart)[:, :place], whole[:, :place])


def test_language_model_document_among_others_is_the_document_alone(model):
    torch.manual_seed(2)
    lengths = [1, 4, 2, 5, 3]
    documents = [torch.cat((torch.tensor([BOS]), torch.randint(4, SIZE, (n - 1,)))) for n in lengths]
    alone = torch.cat([model(document[None])[0] for document in documents])
    # two rows, the second of which goes on where the first ends: with the last document
    packed = torch.stack((torch.cat(documents)[:12], torch.cat((*documents[3:], *documents[:3]))[:12]))
    together = model(packed)
    torch.testing.assert_close(together[0], alone[:12])
    torch.testing.assert_close(together[1, :8], alone[7:15])
    torch.testing.assert_close(together[1, 8:], alone[:4])


def test_language_model_documents_that_are_not_kept_apart_see_each_other(model, tokens):
    assert not torch.allclose(
        model(tokens, separate_documents=False)[1, 3:], model(tokens, separate_documents=True)[1, 3:]
    )
    torch.testing.assert_close(
        model(tokens, separate_documents=False)[1, :3], model(tokens, separate_documents=True)[1, :3]
    )


@pytest.mark.parametrize("apart", [True, False])
def test_language_model_selected_state_goes_on_as_the_selected_rows_would(model, tokens, apart):
    rows = torch.tensor([2, 0, 0, 3, 1])
    _, state = model.decoder(model.decoder.start(4, apart), tokens[:, :4])
    states, _ = model.decoder(state.select(rows), tokens[rows, 4:])
    torch.testing.assert_close(states, model(tokens, apart)[rows, 4:])
    again, _ = model.decoder(state, tokens[:, 4:])
    torch.testing.assert_close(again, model(tokens, apart)[:, 4:])


def test_language_model_batch_is_its_rows_and_padding_behind_them_changes_nothing(model, tokens):
    together = model(tokens)
    for row, length in zip(range(4), (9, 7, 5, 2), strict=True):
        padded = tokens.clone()
        padded[row, length:] = 0
        torch.testing.assert_close(model(tokens[row : row + 1, :length])[0], together[row, :length])
        torch.testing.assert_close(model(padded)[row, :length], together[row, :length])


def test_language_model_gradients_reach_every_parameter(model, tokens):
    model.train()
    model.logits(tokens).log_softmax(-1)[..., 5].sum().backward()
    unreached = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert [n for n in unreached if not n.endswith(("key.bias", "positions.weight"))] == []


def test_language_model_tied_or_not_as_the_recipe_says():
    for tie in (True, False):
        model = _build("transformer", {"tie": tie})
        assert (model.projection.weight is model.decoder.embedding.tokens.weight) is tie


def test_language_model_places_count_from_the_document_s_beginning():
    begin = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 1, 1, 0]], dtype=torch.bool)
    places = document_positions(begin, torch.tensor([7, 2]))
    assert places.tolist() == [[0, 1, 2, 0, 1], [2, 3, 0, 0, 1]]
