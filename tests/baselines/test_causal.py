"""Documents grouped by length equal single documents."""

import torch
from torch import nn

from baselines.causal import CausalRecurrent, documents_by_length
from baselines.cells import Stack


def _cut(begin: torch.Tensor) -> list[list[int]]:
    """The places of each document's pieces in rows that are laid end to end."""
    documents: list[list[int]] = []
    for place, starts in enumerate(begin.flatten().tolist()):
        if starts or place % begin.shape[1] == 0:
            documents.append([])
        documents[-1].append(place)
    return documents


def test_causal_every_document_is_in_one_group_whole_and_beside_none_twice_as_short():
    torch.manual_seed(0)
    begin = torch.rand(6, 40) < 0.2
    # a row whose first piece begins no document, and two documents of one piece each
    begin[0, 0], begin[1, 3:6] = False, True
    found: list[list[int]] = []
    for group in documents_by_length(begin):
        padded = torch.full((group.documents, group.max_length), -1)
        padded[group.document, group.place] = group.pieces
        documents = [[piece for piece in row if piece >= 0] for row in padded.tolist()]
        assert all(padded[i, : len(document)].tolist() == document for i, document in enumerate(documents))
        assert max(map(len, documents)) < 2 * min(map(len, documents))
        found += documents
    assert sorted(found) == _cut(begin)
    # the shortest first, and in a group in the order of the text
    assert found == sorted(_cut(begin), key=lambda document: len(document).bit_length())


def test_causal_separate_documents_are_read_if_the_layers_are_in_bf16():
    torch.manual_seed(0)
    stack = Stack("lstm", inputs=8, width=8, layers=1, dropout=0.0, residual=False)
    decoder, rows = CausalRecurrent(nn.Embedding(20, 8), stack, 0.0, scaled=False), torch.tensor([[1, 5, 6, 1, 7]])
    expected = decoder.read(rows, separate_documents=True)
    # as cuDNN under autocast, which on CUDA does not cast the arguments of index_copy
    stack.register_forward_hook(lambda layers, read, found: (found[0].bfloat16(), found[1]))
    assert torch.equal(decoder.read(rows, separate_documents=True), expected.bfloat16().float())
