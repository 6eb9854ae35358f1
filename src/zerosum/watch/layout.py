"""HTML frame of a page, message pages, and update events for changed sections.

Tested in tests/watch/test_app.py.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from zerosum.kernel.markup import Html, element
from zerosum.version import VERSION
from zerosum.watch.markup import Page, Section, join

_SHOWN = 16  # hexadecimal digits of a section's version


def version_of(section: Section) -> str:
    """Digest of a section's content, for the detection of changes."""
    # 16 hexadecimal digits are enough to detect a change.
    return hashlib.sha256(section.body.encode("utf-8", "replace")).hexdigest()[:_SHOWN]


def document(page: Page, root: str, path: str, title: str, notice: Html | None = None, here: str | None = None) -> str:
    """HTML of a page.

    Parameters
    ----------
    page : Page
        Content.
    root : str
        Base of relative addresses.
    path : str
        Path of the page, with the piece of a long table.
    title : str
        Title of the board.
    notice : Html, optional
        Message above the sections.
    here : str, optional
        Path of the current address, if it is not that of the page.
    """
    live = f"{root}live?of={path}"
    top = element("a", title, href=root) if not page.home else element("span", title)
    body = element(
        "body",
        element("a", "To the content", href=f"{root}{path if here is None else here}#main", class_="skip"),
        element(
            "header",
            element("p", element("strong", "Zerosum"), " ", top),
            element("p", id="line", role="status", class_="line"),
        ),
        element(
            "main",
            element("h1", page.title, id="title"),
            notice,
            element("p", page.said, id="said", role="status", class_="unseen"),
            *map(_section, page.sections),
            id="main",
            data_live=live,
        ),
        element(
            "footer",
            element("p", f"Zerosum {VERSION}. No data are read for this page."),
        ),
    )
    return _whole(page.tab, body, root)


def message(title: str, words: str, root: str | None, refresh: str | None = None) -> str:
    """HTML of a page with one message. With `refresh` the browser goes on to that address."""
    link = element("p", element("a", "Go on", href=refresh or root)) if refresh or root else None
    body = element("body", element("main", element("h1", title), element("p", words), link, id="main"))
    return _whole(f"{title} - Zerosum", body, None, refresh)


def event(page: Page, sent: dict[str, str]) -> str | None:
    """Server-sent event with the sections that changed, or None.

    `sent` maps section ids to versions that the client has, and "" to title and status line. It is updated.
    """
    now = {section.id: version_of(section) for section in page.sections}
    changed = [
        {"id": section.id, "title": section.title, "version": now[section.id], "html": section.body}
        for section in page.sections
        if sent.get(section.id) != now[section.id]
    ]
    order, said = list(now), f"{page.tab}\n{page.said}"
    # The key "" holds title and status line, which may change without a section.
    if not changed and sent.get("") == said and sent.keys() - {""} == now.keys():
        return None
    sent.clear()
    sent.update(now | {"": said})
    told: dict[str, Any] = {
        "tab": page.tab,
        "title": page.title,
        "said": page.said,
        "order": order,
        "sections": changed,
    }
    return f"data: {json.dumps(told)}\n\n"


def _section(section: Section) -> Html:
    """HTML of a section."""
    heading = element("h2", section.title, id=f"{section.id}-title")
    inner = element("div", section.body, class_="body")
    return element(
        "section",
        heading,
        inner,
        id=section.id,
        aria_labelledby=f"{section.id}-title",
        data_version=version_of(section),
    )


def _whole(title: str, body: Html, root: str | None, refresh: str | None = None) -> str:
    """HTML of a whole page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="refresh", content=f"0; url={refresh}") if refresh else None,
        element("title", title),
        element("base", href=root) if root else None,
        element("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        element("link", rel="stylesheet", href="/static/watch.css"),
        # Message pages (without root) need no script.
        element("script", src="/static/watch.js", defer=True) if root else None,
    )
    return join([Html("<!doctype html>"), element("html", head, body, lang="en")])
