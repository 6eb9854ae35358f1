"""Formulas of the documentation, typeset while the site is built: LaTeX between dollars becomes MathML.

Browsers draw MathML themselves, so the site needs no script and nothing from elsewhere. `pymdownx.arithmatex` finds
the formulas, so that dollars in code stay dollars. A formula that cannot be read ends the build.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FOUND = re.compile(r'<(span|div) class="arithmatex">\s*(?:\\\(|\\\[)(.*?)(?:\\\)|\\\])\s*</\1>', re.DOTALL)


def typeset(text: str) -> str:
    """A page in HTML, its formulas as MathML.

    >>> typeset('<span class="arithmatex">\\\\(a\\\\)</span>')
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><mi>a</mi></mrow></math>'
    """
    return _FOUND.sub(_drawn, text)


def _drawn(found: re.Match[str]) -> str:
    source = html.unescape(found[2]).strip()
    block = found[1] == "div"
    drawn = convert(source, display="block" if block else "inline")
    if "\\" in re.sub(r"<[^>]*>", "", drawn):
        raise ValueError(f"a formula has a command that is not known: {source}")
    return f'<div class="formula" tabindex="0">{drawn}</div>' if block else drawn


def on_page_content(text: str, **_: Any) -> str:
    """Called by MkDocs with every page."""
    return typeset(text)
