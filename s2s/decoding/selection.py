"""The best ways to go on, of all pieces of all hypotheses of a sentence."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Pieces whose best stands for all of them. Measured with 8,000 pieces and 5 hypotheses of 64 sentences on two cores of
# a processor: a selection from the best groups takes a third of one from all pieces.
_GROUP = 64

Ways = tuple[
    Float[Tensor, "sentences ways"],  # log probabilities, best first
    Int[Tensor, "sentences ways"],  # pieces
    Int[Tensor, "sentences ways"],  # rows of the hypotheses that they follow
]


def best_ways(scores: Float[Tensor, "rows pieces"], before: Float[Tensor, " rows"], width: int, count: int) -> Ways:
    """The best ways of each sentence, best first, or all where there are fewer.

    Each sentence has `width` rows that follow each other; a way's log probability is that of its piece and what its row
    has `before`. A processor looks at whole groups of pieces first: the best n of all pieces are in the best n groups.
    """
    if scores.device.type == "cpu" and scores.shape[1] >= count * _GROUP:
        return _from_groups(scores, before, width, count)
    each = min(count, scores.shape[1])
    # the best of a sentence are among the best of its rows
    best, pieces = scores.topk(each, dim=1)
    best += before.unsqueeze(1)
    best, chosen = best.view(-1, width * each).topk(min(count, width * each), dim=1)
    return best, pieces.view(-1, width * each).gather(1, chosen), _first_rows(best, width) + chosen // each


def _from_groups(scores: Tensor, before: Tensor, width: int, count: int) -> Ways:
    groups, rest = divmod(scores.shape[1], _GROUP)
    grouped = scores[:, : groups * _GROUP].unflatten(1, (groups, _GROUP))
    peaks = grouped.amax(dim=2) + before.unsqueeze(1)
    top = peaks.view(-1, width * groups).topk(count, dim=1, sorted=False).indices
    rows, group = _first_rows(top, width) + top // groups, top % groups
    near = (grouped[rows, group] + before[rows].unsqueeze(2)).flatten(1)
    # pieces that fill no group are looked at in any case
    last = (scores[:, groups * _GROUP :] + before.unsqueeze(1)).view(len(top), width * rest)
    best, chosen = torch.cat((near, last), dim=1).topk(count, dim=1)
    of_group = (chosen // _GROUP).clamp_max(count - 1)
    beyond = chosen - count * _GROUP
    pieces = group.gather(1, of_group) * _GROUP + chosen % _GROUP
    parents = rows.gather(1, of_group)
    if rest:
        pieces = pieces.where(beyond < 0, groups * _GROUP + beyond % rest)
        parents = parents.where(beyond < 0, _first_rows(best, width) + beyond // rest)
    return best, pieces, parents


def _first_rows(of_sentences: Tensor, width: int) -> Int[Tensor, "sentences 1"]:
    return width * torch.arange(len(of_sentences), device=of_sentences.device).unsqueeze(1)
