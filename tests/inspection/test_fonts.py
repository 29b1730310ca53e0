"""Fonts of figures: installed ones with the glyphs, or a warning."""

import warnings

import pytest
import torch
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.text import Text

from s2s.training import figures, fonts
from s2s.training.figures import attention_picture
from s2s.training.fonts import fonts_for, use_installed_fonts, without_font_messages

PIECES = ["我今天", "去商店", "</s>"]
needs_cjk = pytest.mark.skipif(not fonts_for(frozenset("我"))[0], reason="no font with Chinese glyphs is installed")


@pytest.fixture(autouse=True)
def fresh():
    """Nothing is known of fonts, and nothing has been said."""
    for function in (fonts.fonts_for, fonts._warn):
        function.cache_clear()
    yield
    for function in (fonts.fonts_for, fonts._warn):
        function.cache_clear()


def _picture(pieces=PIECES):
    return attention_picture(torch.full((1, len(pieces), len(pieces)), 0.3), pieces, pieces, "title")


def test_text_that_the_usual_font_has_keeps_it(caplog):
    figure = _picture(["▁Müller", "</s>", "<0xC3>"])
    with without_font_messages():
        use_installed_fonts(figure)
    assert {tuple(text.get_fontfamily()) for text in figure.findobj(Text)} == {("sans-serif",)}
    assert not caplog.records


@needs_cjk
def test_installed_font_draws_chinese(caplog):
    figure = _picture()
    use_installed_fonts(figure)
    with warnings.catch_warnings():
        # each missing glyph is a warning of matplotlib's
        warnings.simplefilter("error")
        figure.canvas.draw()
    labels = [text for text in figure.findobj(Text) if text.get_text() == PIECES[0]]
    assert labels
    for label in labels:
        first, *chosen = label.get_fontfamily()
        assert first == "sans-serif"
        assert any(ord("我") in get_font(findfont(FontProperties(family=[each]))).get_charmap() for each in chosen)
    assert not caplog.records


@needs_cjk
@pytest.mark.parametrize("form", ["svg", "pdf", "png"])
def test_fonts_all_forms_draw_the_glyphs(form):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert figures.render_figure(_picture(), form)
    assert not [each for each in said if "Glyph" in str(each.message)]


def test_missing_font_is_said_once_with_a_package(monkeypatch, caplog):
    monkeypatch.setattr(fonts, "_chosen", lambda characters, but: ((), characters))
    monkeypatch.setattr(fonts, "_add_new_fonts", lambda: False)
    assert figures.render_png(_picture())
    assert figures.render_png(_picture())
    (record,) = caplog.records
    assert "no installed font has glyphs for CJK" in record.getMessage()
    assert "fonts-noto-cjk" in record.getMessage()
    assert figures.render_png(_picture(["ที่", "हिन्दी"]))
    assert [record.args for record in caplog.records[1:]] == [
        ("Devanagari", "fonts-noto-core"),
        ("Thai", "fonts-noto-core"),
    ]
    assert figures.render_png(_picture(["🎉👍🏽", "。「"]))
    assert [record.args for record in caplog.records[3:]] == [("symbols and emoji", "fonts-symbola")]


def test_several_fonts_are_taken_where_none_has_all(monkeypatch):
    has = {"A": frozenset("ab"), "Noto Sans B": frozenset("b"), "C": frozenset("cz"), "Last Resort": frozenset("abcd")}
    entries = [type("Entry", (), {"name": name, "fname": name}) for name in has]
    monkeypatch.setattr(fontManager, "ttflist", entries)
    monkeypatch.setattr(fonts, "_glyphs", has.__getitem__)
    monkeypatch.setattr(fonts, "_add_new_fonts", lambda: False)
    assert fonts_for(frozenset("abcd")) == (("Noto Sans B", "A", "C"), frozenset("d"))


def test_fonts_installed_since_are_found(monkeypatch):
    first, *others = fontManager.ttflist
    path = str(first.fname)
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [path, "/gone.ttf"])
    monkeypatch.setattr(fontManager, "ttflist", [each for each in others if str(each.fname) != path])
    add = fonts._add_new_fonts.__wrapped__
    assert add()
    assert first.name in {entry.name for entry in fontManager.ttflist if str(entry.fname) == path}
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [path])
    assert not add()
