"""Settings of Sphinx, which builds these pages: `nox -s docs`."""

from __future__ import annotations

import re
from typing import Any

project = "liftbridge-aio"
author = "the liftbridge-aio maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "examples"]

html_theme = "furo"
html_title = "liftbridge-aio"
html_show_copyright = False

myst_heading_anchors = 4

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_mock_imports = ["pyarrow", "pyspark"]
napoleon_use_rtype = False


def prepare(  # the signature is Sphinx's
    _app: Any, what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Mark code as reStructuredText does, and keep the first line of an attribute as it is.

    Otherwise an indented block is a quotation, and what stands before a colon is taken for a type.
    """
    lines[:] = [re.sub(r"`+([^`]+)`+", r"``\1``", line) for line in lines]
    begins = [
        number
        for number in range(1, len(lines))
        if lines[number].startswith("    ")
        and not lines[number - 1]
        and (number < 2 or not lines[number - 2].startswith(" "))
    ]
    for number in reversed(begins):
        lines[number:number] = ["::", ""]
    if what in {"attribute", "data", "property"}:
        lines[0] = f": {lines[0]}"


def setup(app: Any) -> None:
    """Run `prepare` before napoleon reads the sections of docstrings."""
    app.connect("autodoc-process-docstring", prepare, priority=400)
