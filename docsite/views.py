"""Pictures of one thing in four views, side by side: light and dark, on a screen and on a telephone.

A page has a comment at the place, which MkDocs replaces:

    <!-- views: mean-page, The report of means -->

for `pictures/mean-page-wide-light.webp` and its three siblings; every picture is a link to itself in full.
"""

from __future__ import annotations

import re
from typing import Any

VIEWS = {
    "wide-light": "on a screen",
    "wide-dark": "on a screen, dark",
    "narrow-light": "on a telephone",
    "narrow-dark": "on a telephone, dark",
}
_HERE = re.compile(r"^<!-- views: ([\w-]+), (.+) -->$", re.MULTILINE)


def fill(text: str) -> str:
    """A page with the pictures it asks for.

    >>> fill("<!-- views: mean, Means -->").splitlines()[1]
    '[![Means, on a screen](pictures/mean-wide-light.webp){ loading=lazy }](pictures/mean-wide-light.webp)'
    """
    return _HERE.sub(lambda found: _views(found[1], found[2]), text)


def _views(name: str, words: str) -> str:
    places = {f"pictures/{name}-{view}.webp": f"{words}, {said}" for view, said in VIEWS.items()}
    lines = [f"[![{said}]({place}){{ loading=lazy }}]({place})" for place, said in places.items()]
    return "\n".join(['<div class="views" markdown>', *lines, "</div>"])


def on_page_markdown(text: str, **_: Any) -> str:
    """Called by MkDocs with every page."""
    return fill(text)
