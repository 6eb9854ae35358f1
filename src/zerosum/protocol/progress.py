"""Progress of a study: one typed event for an observer such as a terminal, a web page or a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["loading", "resumed", "consent", "set-up", "round", "writing"]  # resumed: `done` rounds were known


@dataclass(frozen=True)
class Progress:
    """The progress of one stage: units of work done and planned, and the site where it is one site's work."""

    stage: Stage
    done: int
    planned: int
    site: str | None = None


Observer = Callable[[Progress], None]


def nobody(progress: Progress) -> None:
    """The observer that ignores every event."""
