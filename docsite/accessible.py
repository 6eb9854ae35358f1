"""Accessibility fixes of the theme: a name for its search dialog, and code and tables that scroll by keyboard."""

from __future__ import annotations

from typing import Any

_MENDED = {
    'data-md-component="search" role="dialog"': 'data-md-component="search" role="dialog" aria-label="Search"',
    "<pre><code>": '<pre><code tabindex="0">',
    "<pre><span></span><code>": '<pre><span></span><code tabindex="0">',
    '<div class="md-sidebar__scrollwrap">': '<div class="md-sidebar__scrollwrap" tabindex="0">',
    "<table>": '<table tabindex="0">',
}


def mended(text: str) -> str:
    """A page of the site.

    >>> mended("<table><thead>")
    '<table tabindex="0"><thead>'
    """
    for before, after in _MENDED.items():
        text = text.replace(before, after)
    return text


def on_post_page(text: str, **_: Any) -> str:
    """Called by MkDocs with every page."""
    return mended(text)
