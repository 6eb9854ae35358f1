"""Tests for noise of the wrong distribution: too small, missing, not normal, or with biased low bits.

`correlation` tests independence; this module tests the distribution. The input are streams with one row per study and
one column per number of a release, divided by their standard deviations. Each test has a bound on its probability for
sound noise. The bounds are divided by the number of tests (Bonferroni), so that a set of sound streams is reported with
probability below FALSE_ALARM:

    size       sum of squares against chi-square, if the standard deviation is the planned one
    place      share of one of 16 parts of a release, or of its even places, in that sum: beta distribution
    missing    number of values closer to 0 than NEAR: binomial distribution
    normal     Kolmogorov distance to the normal: 2 exp(-2 n eps^2), Dvoretzky, Kiefer, Wolfowitz and Massart
    low bits   on the grid, number of draws with each remainder modulo 16: binomial distribution
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

from zerosum.arrays import Floats

# Probability of a finding in sound streams, per call.
FALSE_ALARM = 1e-7
NEAR = 1e-3  # standard deviations; smaller values count as missing noise
# Parts of a release, and the modulus of the test of low bits.
PARTS = 16
# Largest value of the standard normal density.
_DENSITY = 1 / math.sqrt(2 * math.pi)
_FAIR = 64.0  # steps per standard deviation from which remainders modulo 16 are uniform to one part in 10^130


@dataclass(frozen=True, eq=False)
class Stream:
    """Noise that should be standard normal, or discrete Gaussian on a grid.

    If the scale was measured, or an adversary learned on some of the numbers, the bounds are widened accordingly.

    Attributes
    ----------
    values : array of shape (studies, numbers)
        Noise divided by its standard deviation.
    step : float
        Width of the grid in standard deviations; 0 without a grid.
    planned : bool
        Whether the values were divided by the planned standard deviation; otherwise by a measured one.
    slack : float
        Bound on the relative change of the variance by learning.
    """

    values: Floats
    step: float = 0.0
    planned: bool = True
    slack: float = 0.0


def normal_scores(values: Floats) -> Floats:
    """Laplace noise of scale 1 as standard normal values: the normal quantiles of its distribution function.

    Noise on a grid of `step` scales becomes normal noise on a grid of at most 1.26 `step`, since the densities at 0 are
    1/2 and 0.399 and the slope is largest there.
    """
    # By the upper tail on either side, which is accurate far out.
    return np.asarray(-np.sign(values) * special.ndtri(np.exp(-np.abs(values)) / 2))


def rank_scores(values: Floats, rng: np.random.Generator) -> Floats:
    """Noise of any one distribution as standard normal values: the normal quantiles of a random point in the cell of
    each rank. Equal values are ranked in random order. Independence is kept; the distribution is no longer tested.
    """
    flat = values.ravel()
    ranks = np.empty(flat.size)
    ranks[np.lexsort((rng.random(flat.size), flat))] = np.arange(flat.size)
    return np.asarray(special.ndtri((ranks + rng.random(flat.size)) / flat.size).reshape(values.shape))


@dataclass(frozen=True)
class _TestResult:
    """Result of one test."""

    kind: str
    says: str
    p: float  # upper bound of its probability for sound noise


def search(streams: Mapping[str, Stream]) -> tuple[str, ...]:
    """Strongest finding of each kind that chance does not explain.

    Parameters
    ----------
    streams : mapping of str to Stream
        Noise by name; the names appear in the findings.

    Returns
    -------
    tuple of str
        Sentences; empty for sound noise, except with probability FALSE_ALARM.
    """
    results = [result for name, stream in streams.items() for result in _all_tests(name, stream)]
    marginals = []
    for kind in ("size", "place", "missing", "normal", "low bits"):
        if beyond := [result for result in results if result.kind == kind and result.p < FALSE_ALARM / len(results)]:
            worst = min(beyond, key=lambda result: result.p)
            more = f" (such findings in these streams: {len(beyond)})" if len(beyond) > 1 else ""
            marginals.append(worst.says + more)
    return tuple(marginals)


def _all_tests(name: str, stream: Stream) -> Iterator[_TestResult]:
    """All tests of one stream."""
    n, total = stream.values.size, float(np.sum(stream.values**2))
    if stream.planned and n:
        # Both tails of chi-square with n degrees of freedom: noise may be too small (less privacy) or too large (less
        # accuracy than stated).
        p = 2 * float(min(special.gammainc(n / 2, total / 2), special.gammaincc(n / 2, total / 2)))
        yield _TestResult("size", f"{name}: its size is {math.sqrt(total / n):.3f} times what was planned", p)
    if total == 0:
        return
    yield from _places(name, stream, total)
    yield _missing(name, stream)
    yield _normal(name, stream)
    if stream.planned and 0 < stream.step <= 1 / _FAIR:
        yield from _low_bits(name, stream)


def _places(name: str, stream: Stream, total: float) -> Iterator[_TestResult]:
    """Compare the size of parts of a release with that of the whole."""
    studies, size = stream.values.shape
    squares, place = np.sum(stream.values**2, axis=0), np.arange(size)
    groups = [(f"part {part + 1} of {PARTS} of a release", place * PARTS // size == part) for part in range(PARTS)]
    for where, chosen in (*groups, ("the even places of a release", place % 2 == 0)):
        count = int(np.sum(chosen))
        if 0 < count < size:
            # The share of a sum of squares in a part of independent normals has a beta distribution.
            a, b = studies * count / 2, studies * (size - count) / 2
            part = float(np.sum(squares[chosen]))
            rest = total - part
            wider = 1 + stream.slack
            # Learning may have changed either side by `slack`, so each tail is computed with its side enlarged.
            low = special.betainc(a, b, part * wider / (part * wider + rest))
            high = special.betainc(b, a, rest * wider / (part + rest * wider))
            size_there = math.sqrt(part / (studies * count) / (total / stream.values.size))
            says = f"{name}: in {where} its size is {size_there:.3f} times that of the whole"
            yield _TestResult("place", says, 2 * float(min(low, high)))


def _missing(name: str, stream: Stream) -> _TestResult:
    """Count values near 0. The density is at most _DENSITY (1 + slack), and one further grid point may be within
    reach."""
    n, near = stream.values.size, int(np.sum(np.abs(stream.values) < NEAR))
    chance = min(1.0, _DENSITY * (2 * NEAR + stream.step) * (1 + stream.slack + _scale_error(stream)))
    says = f"{name}: {near} of {n} numbers have next to no noise, where about {n * chance:.0f} may"
    return _TestResult("missing", says, _at_least(near, n, chance))


def _normal(name: str, stream: Stream) -> _TestResult:
    """Kolmogorov test of normality."""
    values = np.sort(stream.values, axis=None)
    n, below = len(values), special.ndtr(values)
    ranks = np.arange(n + 1) / n
    distance = float(max(np.max(ranks[1:] - below), np.max(below - ranks[:-1])))
    # The grid changes the distribution function by half a step's mass. A relative change of scale changes it by x
    # phi(x) < 0.25 per unit.
    beyond = distance - _DENSITY * stream.step - 0.25 * (stream.slack + _scale_error(stream))
    p = 2 * math.exp(-2 * n * max(0.0, beyond) ** 2)
    return _TestResult("normal", f"{name}: it is not normal, its Kolmogorov distance is {distance:.3f}", p)


def _low_bits(name: str, stream: Stream) -> Iterator[_TestResult]:
    """Test whether remainders modulo 16 are uniform."""
    # A sampler whose low bits are biased has the right size and shape but is not the planned discrete Gaussian.
    remainders = np.rint(stream.values / stream.step).astype(np.int64).ravel() % PARTS
    n = len(remainders)
    for left, count in enumerate(np.bincount(remainders, minlength=PARTS).tolist()):
        p = 2 * min(_at_least(count, n, 1 / PARTS), _at_least(n - count, n, 1 - 1 / PARTS))
        says = f"{name}: {count} of {n} draws leave {left} when divided by {PARTS}, where {n / PARTS:.0f} should"
        yield _TestResult("low bits", says, p)


def _scale_error(stream: Stream) -> float:
    """Bound on the relative error of a measured standard deviation, exceeded with probability 1e-10."""
    return 0.0 if stream.planned else 6.5 / math.sqrt(2 * stream.values.size)


def _at_least(count: int, n: int, chance: float) -> float:
    """P(X >= count) for a binomial X."""
    return 1.0 if count <= 0 else float(special.betainc(count, n - count + 1, chance))
