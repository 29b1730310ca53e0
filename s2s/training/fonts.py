"""Fonts for figures: installed fonts with the glyphs of a text, for any script."""

import logging
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_log = logging.getLogger(__name__)
# Fonts that contain boxes only, and fonts of coloured bitmaps, which matplotlib cannot draw.
_UNUSABLE = ("Last Resort", "LastResort", "Color Emoji")
_PREFERRED = ("Noto Sans CJK", "Noto Sans")
_CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "FULLWIDTH", "HALFWIDTH", "IDEOGRAPHIC")
# Debian's packages of fonts that matplotlib can draw, for scripts that fonts-noto-core lacks.
_PACKAGES = {"CJK": "fonts-noto-cjk", "symbols and emoji": "fonts-symbola"}


def use_installed_fonts(figure: "Figure") -> None:
    """Add installed fonts to each text of a figure, for glyphs that its font lacks.

    Characters without a glyph in any installed font are drawn as boxes. A warning names their script and a package of
    fonts, once for each script.
    """
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
    lacking = _visible("".join(text.get_text() for text in texts)) - _glyphs("sans-serif")
    if not lacking:
        return
    families, missing = fonts_for(frozenset(lacking))
    for text in texts:
        if not lacking.isdisjoint(text.get_text()):
            text.set_fontfamily([*text.get_fontfamily(), *families])
    for script in sorted({_script(character) for character in missing}):
        _warn(script)


@contextmanager
def without_font_messages() -> Iterator[None]:
    """Suppress matplotlib's messages on fonts, as a context manager.

    matplotlib writes one for each missing glyph and for each weight that a family lacks.
    """
    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            yield
    finally:
        logger.setLevel(level)


@cache
def fonts_for(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Find installed fonts that have the glyphs of characters.

    Args:
        characters: Characters to draw.

    Returns:
        Families that together have the glyphs, and the characters without a glyph in any installed font.
    """
    families, missing = _chosen(characters, ())
    if missing and _add_new_fonts():
        more, missing = _chosen(missing, families)
        families = (*families, *more)
    return families, missing


def _chosen(characters: frozenset[str], but: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    from matplotlib.font_manager import fontManager

    names = {entry.name for entry in fontManager.ttflist if not entry.name.startswith(_UNUSABLE)}
    names = {name for name in names if not name.endswith(_UNUSABLE)}.difference(but)
    found = []
    for name in sorted(names, key=_preference):
        if not characters:
            break
        if not characters.isdisjoint(glyphs := _glyphs(name)):
            found.append(name)
            characters -= glyphs
    return tuple(found), characters


def _preference(name: str) -> tuple[int, str]:
    return next((i for i, prefix in enumerate(_PREFERRED) if name.startswith(prefix)), len(_PREFERRED)), name


@cache
def _add_new_fonts() -> bool:
    """Register fonts that are newer than matplotlib's list, once in a process."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    known = {str(entry.fname) for entry in fontManager.ttflist}
    new = sorted(path for path in findSystemFonts() if path not in known)
    for path in new:
        try:
            fontManager.addfont(path)
        except (OSError, RuntimeError):
            # A damaged font file is skipped.
            continue
    return bool(new)


@cache
def _glyphs(family: str) -> frozenset[str]:
    """Return the characters of a font family; none if it cannot be read."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    try:
        # A list, because a single name would be parsed as a pattern, in which `-` has a meaning.
        font = get_font(findfont(FontProperties(family=[family]), fallback_to_default=False))
    except (OSError, RuntimeError, ValueError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap()))


def _visible(text: str) -> frozenset[str]:
    # Control characters and spaces have no glyph.
    return frozenset(character for character in text if unicodedata.category(character)[0] not in "CZ")


def _script(character: str) -> str:
    """Return the script of a character, such as `CJK` or `Thai`: the first word of the Unicode name of a letter."""
    name, kind = unicodedata.name(character, "UNKNOWN").split(" ")[0], unicodedata.category(character)[0]
    # U+3000 to U+303F: punctuation of Chinese and Japanese, such as 。
    if name in _CJK or "\u3000" <= character <= "\u303f":
        return "CJK"
    return {"S": "symbols and emoji", "P": "punctuation"}.get(kind, name.capitalize())


@cache
def _warn(script: str) -> None:
    _log.warning(
        "figures: no installed font has glyphs for %s, which are drawn as boxes; install one, e.g. Debian's %s",
        script,
        _PACKAGES.get(script, "fonts-noto-core"),
    )
