"""Replies with something changed in them, against the coordinator: a loss or a refusal, never anything else."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from helpers.frame_mutations import mutated
from helpers.small_studies import QUESTION, make, make_sites
from zerosum.coordinator.conduct import _read
from zerosum.engines.in_process import InProcess
from zerosum.errors import Refused, ZerosumError
from zerosum.kernel.view import Coalition
from zerosum.protocol.codec import Frame, encode
from zerosum.protocol.messages import Consent, Contribution, Lost, Refusal, Secured
from zerosum.study import execute, pin


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_mutated_reply_is_read_or_lost(count: int) -> None:
    rng = random.Random(1)
    replies = (
        Consent("s0", 40),
        Secured("s0", bytes(100)),
        Contribution("s0", np.arange(30.0)),
        Contribution("s0", bytes(200)),
        Refusal("s0", Refused("no")),
    )
    frames = [encode(reply) for reply in replies]
    lost = 0
    for n in range(count):
        found = _read("s0", mutated(frames[n % len(frames)], rng))
        assert found.site == "s0"
        lost += isinstance(found, Lost)
    assert lost > 0.7 * count  # a change among the numbers themselves leaves a reply


class Tampering:
    """Changes one reply of a study, to the message so far into it."""

    def __init__(self, engine: InProcess, at: int, rng: random.Random) -> None:
        self._engine, self._at, self._rng = engine, at, rng

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        for name, reply in self._engine.exchange(frames):
            self._at -= 1
            yield name, mutated(bytes(reply or b""), self._rng) if self._at == 0 else reply


@pytest.mark.parametrize("count", [56, pytest.param(500, marks=pytest.mark.slow)])
def test_mutated_reply_in_study_is_loss_or_ends_it(count: int, tmp_path: Path) -> None:
    """Set-up needs everybody. In a round the others complete it, as they would have without that site."""
    rng, ends = random.Random(2), dict.fromkeys(("completed", "without one", "ended"), 0)
    for n in range(count):
        if n % 28 == 0:  # a population's epsilon cannot grow for ever: the grid's distance counts e^epsilon times
            sites = make_sites(tmp_path / f"{n}")
        plan = pin(make("secure-sum", study=f"study {n}", coalition=Coalition(1, 1)), sites)
        engine = Tampering(InProcess(sites), 1 + n % 28, rng)
        before = [len(site._books().entries()) for site in sites]
        try:
            result = execute(plan, QUESTION, engine)
            ends["completed" if len(result.participants[0]) == 4 else "without one"] += 1
        except ZerosumError:  # and nothing that is none
            ends["ended"] += 1
        after = [len(site._books().entries()) for site in sites]
        assert all(a - b <= 1 for a, b in zip(after, before, strict=True))
    assert min(ends.values()) > 0.05 * count, ends
