"""The sampler of Laplace shares against the exact law: by proof (against independent arithmetic) and by counting."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from zerosum.errors import BadParameter
from zerosum.noise import discrete_laplace
from zerosum.noise.discrete_laplace import ETA, LARGEST, SMALLEST, draw
from zerosum.noise.sampler import Sampler

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

DECAYS = [LARGEST, 0.3, 1e-3, 2.0**-22 * 1.3, SMALLEST]
PARTS = [1, 2, 7, 30]
DIGITS = 200
FALSE_ALARM = 1e-9  # of each chi-square test

each_decay = pytest.mark.parametrize("decay", DECAYS)


def seeded(seed: str) -> Callable[[int], Words]:
    return Sampler.seeded(seed.encode()).words


def one_sided(decay: float, shape: float, size: int) -> Floats:
    """Probabilities of 0, 1, ..., size - 1 of a negative binomial variable, by its recurrence."""
    steps = np.arange(1, size)
    return np.asarray(decay**shape * np.concatenate([[1.0], np.cumprod((steps - 1 + shape) / steps * (1 - decay))]))


def share(decay: float, shape: float, size: int) -> Floats:
    """Probabilities of -(size - 1), ..., size - 1 of the difference of two negative binomial variables."""
    single = one_sided(decay, shape, size)
    return np.convolve(single, single[::-1])


# ---- the proof, bound by bound -------------------------------------------------------------------------------------


@each_decay
@pytest.mark.parametrize("parts", PARTS)
def test_counts_of_terms_are_exact_to_110_digits(decay: float, parts: int) -> None:
    with mp.workdps(DIGITS):
        bounds = discrete_laplace._counts(decay, parts)
        rate = -2 * mp.log(mp.mpf(decay)) / parts
        terms = [mp.exp(-rate) * rate**n / mp.factorial(n) for n in range(len(bounds.exact) + 200)]
        for n, held in enumerate(bounds.exact):
            assert abs(mp.mpf(str(held)) - mp.fsum(terms[: n + 1])) < mp.mpf(10) ** -110
        assert mp.fsum(terms[len(bounds.exact) + 1 :]) < mp.mpf(2) ** -130
        assert bounds.words.tolist() == [int(mp.floor(mp.mpf(str(each)) * 2**64)) for each in bounds.exact]


@each_decay
def test_levels_are_exact_and_leave_out_less_than_eta(decay: float) -> None:
    with mp.workdps(DIGITS):
        levels = discrete_laplace._Levels(decay)
        a = 1 - mp.mpf(decay)
        last = len(levels.bounds.exact)
        weights = [a ** (mp.mpf(2) ** j) for j in range(last + 1)]
        for j, held in enumerate(levels.bounds.exact):
            assert abs(mp.mpf(str(held)) - mp.fsum(weights[: j + 1]) / mp.fsum(weights)) < mp.mpf(10) ** -110
        # The logarithmic series beyond the last level, by the bound of the module, for the largest number of terms.
        beyond = a ** (mp.mpf(2) ** (last + 1)) / (mp.mpf(2) ** (last + 1) * decay * -mp.log(mp.mpf(decay)))
        assert 57 * beyond + mp.mpf(2) ** -130 < ETA / 32
        for i in (0, 1, 2**last - 1):
            true = a**i * mp.mpf(2) ** last / (mp.mpf(2) ** last + i)
            assert abs(mp.mpf(str(levels.keep(last, i))) - true) < mp.mpf(10) ** -100 * true + mp.mpf(10) ** -115


def test_word_that_contains_a_bound_is_decided_by_further_bits() -> None:
    bounds = discrete_laplace._counts(1e-3, 3)
    word = bounds.words[4:5]
    lowest: Callable[[int], Words] = lambda n: np.zeros(n, dtype=np.uint64)  # noqa: E731
    highest: Callable[[int], Words] = lambda n: np.full(n, 2**64 - 1, dtype=np.uint64)  # noqa: E731
    assert discrete_laplace._below(word, bounds, lowest).tolist() == [4]
    assert discrete_laplace._below(word, bounds, highest).tolist() == [5]


def test_double_comparison_stays_inside_its_band() -> None:
    rng = np.random.default_rng(0)
    with mp.workdps(60):
        for decay in DECAYS:
            levels = discrete_laplace._Levels(decay)
            for level in rng.integers(0, len(levels.bounds.exact) + 1, 20):
                start = 1 << int(level)
                i = int(rng.integers(start))
                fast = np.exp(np.int64(i) * levels.factor) * (start / float(start + i))
                assert abs(mp.mpf(float(fast)) - mp.mpf(str(levels.keep(int(level), i)))) < mp.mpf(2) ** -49


@pytest.mark.parametrize(("decay", "parts"), [(0.6, 1), (2.0**-42, 1), (0.1, 0)])
def test_draw_outside_the_proven_range_is_refused(decay: float, parts: int) -> None:
    with pytest.raises(BadParameter):
        draw(3, decay, parts, seeded("range"))


# ---- counting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize(("decay", "parts"), [(0.5, 1), (0.3, 3), (0.05, 2), (0.02, 30)])
def test_share_follows_the_exact_probabilities(
    decay: float, parts: int, decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if decided:  # every comparison by decimals
        monkeypatch.setattr(discrete_laplace, "_BAND", 2.0)
    count, size = 2000 if decided else 60_000, 2000
    drawn = draw(count, decay, parts, seeded(f"share {decay} {parts} {decided}"))
    expected = count * share(decay, 1 / parts, size)
    edge = 1 + int(np.max(np.abs(np.flatnonzero(expected > 20) - (size - 1))))
    kept = expected[size - 1 - edge : size + edge]
    seen = np.bincount(np.clip(drawn, -edge - 1, edge + 1) + edge + 1, minlength=2 * edge + 3).astype(float)
    low, high = np.sum(expected[: size - 1 - edge]), np.sum(expected[size + edge :])
    found = stats.chisquare(seen, np.concatenate([[low], kept, [high]]) * (count / np.sum(expected)))
    assert found.pvalue > FALSE_ALARM


@pytest.mark.parametrize("parts", [2, 5])
def test_shares_add_up_to_laplace_noise_on_a_fine_grid(parts: int) -> None:
    decay, count = 2.0**-22 * 1.3, 40_000
    source = seeded(f"sum {parts}")
    total = np.sum([draw(count, decay, parts, source) for _ in range(parts)], axis=0)
    # The grid changes the distribution function by less than 1e-6 here.
    found = stats.kstest(total * -math.log1p(-decay), stats.laplace.cdf)
    assert found.pvalue > FALSE_ALARM
    assert len(np.unique(total)) > 0.9 * count


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_exact_convolution_of_shares_is_discrete_laplace(parts: int) -> None:
    decay, size = 0.2, 160
    single, total = share(decay, 1 / parts, size), np.ones(1)
    for _ in range(parts):
        total = np.convolve(total, single)
    at = np.arange(len(total)) - len(total) // 2
    expected = decay / (2 - decay) * (1 - decay) ** np.abs(at.astype(float))
    near = np.abs(at) < 100
    np.testing.assert_allclose(total[near], expected[near], rtol=1e-6, atol=1e-13)
