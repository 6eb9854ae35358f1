"""A driver for tests of programs: no sites and no noise, only scripted releases."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from zerosum.kernel.request import Release, Request

T = TypeVar("T")


def drive(
    program: Generator[Request, Release, T], answers: Sequence[Release] | Callable[[Request], Release]
) -> tuple[T, list[Request]]:
    """Run a program against scripted releases; return its result and its requests.

    Parameters
    ----------
    program : generator
        Of an algorithm.
    answers : sequence of Release, or callable
        The releases in order, or a function of a request.
    """
    requests: list[Request] = []
    try:
        request = next(program)
        while True:
            requests.append(request)
            answer = answers(request) if callable(answers) else answers[len(requests) - 1]
            request = program.send(answer)
    except StopIteration as stop:
        return stop.value, requests
