"""Figures of training for any text."""

import io
from xml.etree import ElementTree

import torch

from s2s.training.figures import attention_picture, render_figure, render_png


def test_figure_pieces_are_text_not_formulas():
    weights = torch.rand(2, 3, 3).softmax(dim=-1)
    figure = attention_picture(weights, ["a", "$$", "c"], ["$x^", "\\frac", "c"], "my $run^")
    figure.savefig(io.BytesIO())
    first, second, _ = figure.axes
    texts = [[label.get_text() for label in axis.get_ticklabels()] for axis in (first.yaxis, first.xaxis, second.xaxis)]
    assert texts == [["$x^", "\\frac", "c"], ["a", "$$", "c"], ["a", "$$", "c"]]


def test_figure_letters_that_the_font_lacks_are_no_warnings():
    assert render_png(attention_picture(torch.rand(2, 1, 2), ["你", "好"], ["c"], "a run"))


def test_figure_control_characters_are_in_no_drawing():
    said = ["a\x07\x1b", "b\x00\ufffe", "c"]
    picture = render_figure(attention_picture(torch.rand(2, 3, 3), said, said, "a\x1b run"), "svg")
    assert ElementTree.fromstring(picture).tag.endswith("svg")


def test_figure_picture_says_whose_attention_it_is_and_what_its_greys_mean():
    figure = attention_picture(torch.rand(4, 2, 2), ["a", "b"], ["c", "d"], "runs/mine, checkpoint best: layer 2")
    assert figure.get_suptitle().replace("\n", " ") == "runs/mine, checkpoint best: layer 2"
    *heads, bar = figure.axes
    assert [panel.get_title() for panel in heads] == [f"head {head}" for head in range(4)]
    assert bar.get_ylabel() == "attention weight"
