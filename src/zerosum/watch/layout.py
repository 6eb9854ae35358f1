"""Watch pages: sections that are updated one by one, the HTML frame, message pages, and update events."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from markupsafe import Markup

from zerosum import html
from zerosum.version import VERSION

_VERSION_DIGITS = 16  # hexadecimal digits of a section's version; enough to detect a change


@dataclass(frozen=True)
class Section:
    """A part of a page that is updated separately."""

    id: str
    title: str
    body: Markup

    @cached_property
    def version(self) -> str:
        """Digest of the content, for the detection of changes."""
        return hashlib.sha256(self.body.encode("utf-8", "replace")).hexdigest()[:_VERSION_DIGITS]


@dataclass(frozen=True)
class Page:
    """A page, with a status sentence for screen readers."""

    title: str
    sections: tuple[Section, ...]
    status: str = ""
    home: bool = False
    count: int = 0  # number of waiting plans, shown in the title of the tab

    @property
    def tab(self) -> str:
        """Title of the browser tab."""
        return f"({self.count}) {self.title} - Zerosum" if self.count else f"{self.title} - Zerosum"


@dataclass(frozen=True)
class Notice:
    """Message above the sections of a page, about a decision."""

    text: str
    kind: Literal["notice", "fault"]  # CSS class


def document(
    page: Page, root: str, path: str, title: str, notice: Notice | None = None, here: str | None = None
) -> str:
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
        Title of the home page.
    notice : Notice, optional
        Message above the sections.
    here : str, optional
        Path of the current address, if it is not that of the page.
    """
    return html.render(
        "watch/page.html",
        page=page,
        root=root,
        path=path,
        title=title,
        notice=notice,
        here=path if here is None else here,
        version=VERSION,
    )


def message(title: str, text: str, root: str | None, refresh: str | None = None) -> str:
    """HTML of a page with one message. With `refresh` the browser continues to that address."""
    return html.render("watch/message.html", title=title, text=text, root=root, refresh=refresh)


def event(page: Page, sent: dict[str, str]) -> str | None:
    """Server-sent event with the sections that changed, or None.

    Parameters
    ----------
    page : Page
        The page as it is now.
    sent : dict
        Versions that the client has, by the id of a section; "" maps to title and status line. It is updated, since the
        caller sends what is returned.

    Returns
    -------
    str or None
        One event as JSON: title, status, the order of all sections, and those that changed. None without a change.
    """
    versions = {section.id: section.version for section in page.sections}
    changed = [
        {"id": section.id, "title": section.title, "version": section.version, "html": section.body}
        for section in page.sections
        if sent.get(section.id) != section.version
    ]
    # The key "" holds title and status line, which may change without a section.
    heading = f"{page.tab}\n{page.status}"
    # The keys are compared too: a section that disappeared changes none of the others.
    if not changed and sent.get("") == heading and sent.keys() - {""} == versions.keys():
        return None
    sent.clear()
    sent.update(versions | {"": heading})
    update: dict[str, Any] = {
        "tab": page.tab,
        "title": page.title,
        "status": page.status,
        "order": list(versions),
        "sections": changed,
    }
    # JSON on one line: a line break in the data would end the field of the event.
    return f"data: {json.dumps(update)}\n\n"
