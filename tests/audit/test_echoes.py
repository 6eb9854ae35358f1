"""The search for noise that comes back: it finds every kind, and sound noise passes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from zerosum.audit import echoes
from zerosum.audit.echoes import BLOCK, Floats, same_words, search


def sound(n: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=n)


def said(**streams: Floats) -> str:
    return "; ".join(echo.says for echo in search(streams))


HALF = sound(2000, 1)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.repeat(HALF, 2), "pairs"),
        (np.tile(HALF, 2), "2000 apart"),
        (np.concatenate([HALF, -HALF[::-1]]), "mirrored at place 2000"),
        (np.random.default_rng(2).permutation(np.concatenate([HALF, -HALF])), "pairs"),
        (np.repeat(sound(60), 2), "pairs"),
        (sound(4000) + 0.2 * np.roll(sound(4000), 17), "17 apart"),
        (np.cumsum(sound(4000)), "1 apart"),
    ],
    ids=["neighbours", "halves", "mirrored", "anywhere", "few", "an echo", "a walk"],
)
def test_noise_that_repeats_within_a_stream_is_found(values: Floats, kind: str) -> None:
    assert kind in said(site=values)


@pytest.mark.parametrize("lag", [0, 1, 3999])
@pytest.mark.parametrize("share", [0.15, 0.3, 1.0])
def test_noise_that_two_streams_share_is_found(lag: int, share: float) -> None:
    one, own = sound(4000, 3), sound(4000, 4)
    other = -share * np.roll(one, lag) + math.sqrt(1 - share**2) * own
    (echo,) = search({"one": one, "other": other, "third": sound(4000, 5)})
    assert "one and other" in echo.says
    assert echo.correlation == pytest.approx(share, abs=0.06)


def test_streams_of_different_lengths_and_scales_are_compared() -> None:
    long = sound(3 * BLOCK, 6)
    assert "long and short" in said(long=long, short=7.0 * long[BLOCK + 100 : BLOCK + 900])
    assert "early and late" in said(long=np.concatenate([long, long[:5000]]))


def test_noise_without_a_spread_is_no_echo() -> None:
    assert not search({})
    assert not search({"silent": np.zeros(100), "one number": np.ones(1)})


@pytest.mark.parametrize("seed", range(5))
def test_sound_noise_passes_on_the_grid_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    streams = {f"site {s}": np.rint(rng.normal(size=20_000) * 2.0**22) for s in range(3)}
    assert not search(streams | {"few": rng.normal(size=3), "doubles": rng.normal(size=9000)})


def test_the_bounds_hold_with_a_generous_false_alarm_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one alarm allowed in five calls of sound noise, no more come than that."""
    monkeypatch.setattr(echoes, "FALSE_ALARM", 0.2)
    rng = np.random.default_rng(7)
    calls = 300
    alarms = sum(bool(search({"a": rng.normal(size=300), "b": rng.normal(size=300)})) for _ in range(calls))
    assert alarms <= 0.2 * calls


def test_a_word_that_comes_again_is_a_key_that_was_used_twice() -> None:
    one, other, third = (np.random.default_rng(seed).integers(0, 2**64, 50, dtype=np.uint64) for seed in range(3))
    assert not same_words([("one", one), ("other", other)])
    (echo,) = same_words([("one", one), ("other", other), ("third", np.concatenate([third, one[7:8]]))])
    assert echo.says == "third comes from the same key stream as one"
