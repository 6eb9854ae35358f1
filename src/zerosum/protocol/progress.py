"""How far a study is: one typed event for whoever listens, a terminal, a page or a log.

Tested in tests/study/test_imaging_study.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["loading", "resumed", "consent", "set-up", "round", "writing"]  # resumed: after so many rounds


@dataclass(frozen=True)
class Progress:
    """Of one stage of a study, how much is done of how much, and by whom where it is one site's work."""

    stage: Stage
    done: int
    planned: int
    site: str | None = None


Observer = Callable[[Progress], None]


def nobody(progress: Progress) -> None:
    """Nobody listens."""
