"""Pictures are drawn whatever the pieces spell."""

import io

import torch

from s2s.training.pictures import attention_picture


def test_pieces_are_text_not_formulas():
    weights = torch.rand(2, 3, 3).softmax(dim=-1)
    figure = attention_picture(weights, ["a", "$$", "c"], ["$x^", "\\frac", "c"])
    figure.savefig(io.BytesIO())
    assert len(figure.axes) == 2
