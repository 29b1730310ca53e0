"""Sphinx configuration: MyST pages, the public names from their docstrings, and the furo theme.

Formulas become MathML when the site is built: MathJax would be loaded from another server.
"""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

import s2s

project = "s2s"
author = "the s2s founders"
release = version = s2s.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_typehints = "description"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"


def setup(app: Sphinx) -> None:
    """Register the renderer of formulas."""
    app.add_html_math_renderer("mathml", (_write_inline, None), (_write_block, None))


def _write_inline(page: HTML5Translator, node: nodes.math) -> None:
    page.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _write_block(page: HTML5Translator, node: nodes.math_block) -> None:
    page.body.append(f"<p>{convert(node.astext(), display='block')}</p>")
    raise nodes.SkipNode
