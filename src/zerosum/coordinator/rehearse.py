"""An engine for tests of programs: no sites, no noise, only the releases a test wrote down."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from zerosum.kernel.request import PrivateSum, Release

T = TypeVar("T")


def drive(
    program: Generator[PrivateSum, Release, T], answers: Sequence[Release] | Callable[[PrivateSum], Release]
) -> tuple[T, list[PrivateSum]]:
    """Run a program against scripted releases; returns its result and what it asked for."""
    asked: list[PrivateSum] = []
    try:
        request = next(program)
        while True:
            asked.append(request)
            answer = answers(request) if callable(answers) else answers[len(asked) - 1]
            request = program.send(answer)
    except StopIteration as stop:
        return stop.value, asked
