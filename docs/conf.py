"""Sphinx configuration: MyST pages, the public names from their docstrings, and the furo theme."""

import s2s

project = "s2s"
author = "the s2s founders"
release = version = s2s.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_typehints = "description"
html_theme = "furo"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
