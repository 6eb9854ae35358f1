"""The search for noise that comes back or has the wrong shape: it finds every kind, and sound noise passes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from zerosum.arrays import Floats
from zerosum.audit import correlation, marginals
from zerosum.audit.correlation import BLOCK, same_words, search
from zerosum.noise.sampler import Sampler


def sound(n: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=n)


def said(**streams: Floats) -> str:
    return "; ".join(echo.says for echo in search(streams))


HALF = sound(2000, 1)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (np.repeat(HALF, 2), "pairs"),
        (np.tile(HALF, 2), "2000 apart"),
        (np.concatenate([HALF, -HALF[::-1]]), "2000"),
        (np.random.default_rng(2).permutation(np.concatenate([HALF, -HALF])), "pairs"),
        (np.repeat(sound(60), 2), "pairs"),
        (sound(4000) + 0.2 * np.roll(sound(4000), 17), "17 apart"),
        (np.cumsum(sound(4000)), "1 apart"),
    ],
    ids=["neighbours", "halves", "mirrored", "anywhere", "few", "an echo", "a walk"],
)
def test_correlation_noise_repeated_within_stream_is_found(values: Floats, word: str) -> None:
    assert word in said(site=values)


@pytest.mark.parametrize("lag", [0, 1, 3999])
@pytest.mark.parametrize("share", [0.15, 0.3, 1.0])
def test_correlation_noise_shared_by_two_streams_is_found(lag: int, share: float) -> None:
    one, own = sound(4000, 3), sound(4000, 4)
    other = -share * np.roll(one, lag) + math.sqrt(1 - share**2) * own
    (echo,) = search({"one": one, "other": other, "third": sound(4000, 5)})
    assert "one and other" in echo.says
    assert echo.correlation == pytest.approx(share, abs=0.06)


def test_correlation_streams_of_other_length_and_scale_are_compared() -> None:
    long = sound(3 * BLOCK, 6)
    assert "long and short" in said(long=long, short=7.0 * long[BLOCK + 100 : BLOCK + 900])
    assert "early and late" in said(long=np.concatenate([long, long[:5000]]))


def test_correlation_noise_without_spread_gives_no_echo() -> None:
    assert not search({})
    assert not search({"silent": np.zeros(100), "one number": np.ones(1)})


@pytest.mark.parametrize("seed", range(5))
def test_correlation_sound_noise_on_grid_passes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    streams = {f"site {s}": np.rint(rng.normal(size=20_000) * 2.0**22) for s in range(3)}
    assert not search(streams | {"few": rng.normal(size=3), "doubles": rng.normal(size=9000)})


def test_correlation_sound_noise_stays_within_false_alarm_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one alarm allowed in five calls of sound noise, no more come than that."""
    monkeypatch.setattr(correlation, "FALSE_ALARM", 0.2)
    rng = np.random.default_rng(7)
    calls = 300
    alarms = sum(bool(search({"a": rng.normal(size=300), "b": rng.normal(size=300)})) for _ in range(calls))
    assert alarms <= 0.2 * calls


def test_same_words_repeated_word_names_both_streams() -> None:
    one, other, third = (np.random.default_rng(seed).integers(0, 2**64, 50, dtype=np.uint64) for seed in range(3))
    assert not same_words([("one", one), ("other", other)])
    (echo,) = same_words([("one", one), ("other", other), ("third", np.concatenate([third, one[7:8]]))])
    assert re.search(r"^third .*\bone$", echo.says)


# ---- its shape -------------------------------------------------------------------------------------------------------


def shaped(studies: int, size: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(studies, size))


def where(values: Floats, place: Callable[[int], bool], by: float) -> Floats:
    """Noise multiplied in the places of a release that are true."""
    chosen = [place(i) for i in range(values.shape[1])]
    return np.asarray(values * np.where(chosen, by, 1.0))


WHOLE = shaped(6, 8000, 11)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (0.97 * WHOLE, r"\b0\.97"),
        (1.03 * WHOLE, r"\b1\.03"),
        (0 * WHOLE, r"\b0\.000"),
        (where(WHOLE, lambda i: i % 100 == 0, 0.0), r"\d+ of 48000 numbers"),
        (where(WHOLE, lambda i: i < 20, 0.0), r"\d+ of 48000 numbers"),
        (where(WHOLE, lambda i: i < 4000, 0.5), "part "),
        (where(WHOLE, lambda i: i >= 7500, 0.8), "part 16 of 16"),
        (where(where(WHOLE, lambda i: i % 2 == 0, 0.5), lambda i: i % 2 == 1, math.sqrt(1.75)), "even"),
        (np.random.default_rng(1).uniform(-math.sqrt(3), math.sqrt(3), (6, 8000)), "normal"),
        (np.random.default_rng(1).standard_t(3, (6, 8000)) / math.sqrt(3), "normal"),
        (np.rint(WHOLE * 2.0**20 / 2) * 2 / 2.0**20, "divided"),
        (np.rint(WHOLE * 2.0**20 / 16) * 16 / 2.0**20, "48000 of 48000 draws"),
    ],
    ids=[
        "less",
        "more",
        "none",
        "every-100th",
        "first-20",
        "first-half",
        "the-end",
        "alternating",
        "uniform",
        "heavy",
        "even-steps",
        "by-16",
    ],
)
def test_marginals_noise_of_wrong_shape_is_found(values: Floats, word: str) -> None:
    step = 2.0**-20
    stream = marginals.Stream(np.rint(values / step) * step, step)
    found = marginals.search({"sound": marginals.Stream(WHOLE), "site": stream})
    assert any(re.search(word, sentence) and "site" in sentence for sentence in found)
    assert not any("sound:" in sentence for sentence in found)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 20, 100])
def test_marginals_short_releases_of_sound_noise_pass(size: int) -> None:
    for seed, samples in enumerate((1000, 1000, 1000, 100_000)):
        values = shaped(-(-samples // size), size, seed)
        values /= np.sqrt(np.mean(values**2))
        assert not search({"the estimate": values.ravel()})
        assert not marginals.search({"the estimate": marginals.Stream(values, planned=False)})


@pytest.mark.parametrize("steps", [1.0, 3.0, 64.0, 1000.0])
def test_marginals_coarse_grid_is_no_fault(steps: float) -> None:
    values = Sampler.seeded(b"coarse").steps(40_000, steps).reshape(5, -1) / steps
    assert not marginals.search({"site": marginals.Stream(values, 1 / steps)})


def test_marginals_sound_noise_stays_within_false_alarm_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one alarm allowed in five calls of sound noise, no more come than that, and few fewer than one in 50."""
    monkeypatch.setattr(marginals, "FALSE_ALARM", 0.2)
    calls = 400
    for planned in (True, False):
        alarms = 0
        for seed in range(calls):
            values = np.rint(shaped(10, 60, seed) * 2.0**20) / 2.0**20
            scale = 1.0 if planned else float(np.sqrt(np.mean(values**2)))
            alarms += bool(marginals.search({"a": marginals.Stream(values / scale, 2.0**-20, planned)}))
        assert 0.02 * calls <= alarms <= 0.2 * calls
