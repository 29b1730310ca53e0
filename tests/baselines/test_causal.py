"""Documents grouped by length equal single documents."""

import torch

from baselines.causal import documents_by_length


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
