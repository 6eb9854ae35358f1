"""Tests for dependent noise: values or sequences that repeat, mirror or follow each other.

The input are streams of noise, each a sequence of independent standard normal values if the noise is sound. The output
is the strongest finding of each kind that chance does not explain. Streams are cut into blocks, and three kinds are
searched:

    twice      values that repeat up to their sign, in any order: pairs of sorted absolute values closer than NEAR.
               Two values are that close with probability p <= 1.25 NEAR, so m disjoint pairs occur among n values
               with probability at most (n^2 p / 2)^m / m!, by a union bound over sets of pairs.
    within     a block that is correlated with itself, shifted or reversed: r = x'Ax/x'x, where A has trace 0 and
               norm at most 1. By Chernoff's bound P(|r| >= t) <= 2 (1 - t^2)^(n/4) for every such A.
    between    two blocks that are correlated at some shift: r is the cosine between a uniform direction in n
               dimensions and another one, so P(|r| >= t) <= (1 - t^2)^((n - 1)/2).

All lags are tested by Fourier transforms. Probabilities are multiplied by the number of tests (Bonferroni), so that
sound noise is reported with probability below FALSE_ALARM per call, for all lengths and numbers of streams. With blocks
of 8192 values a correlation of 0.09 between two blocks is found, and of 0.13 within a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from zerosum.arrays import Floats

# Probability of a finding in sound noise, per call.
FALSE_ALARM = 1e-7
NEAR = 2.0**-19  # in standard deviations; rounding to the grid moves sums of few sites by less
# Values per block, at least.
BLOCK = 1 << 13
_MOST_BLOCKS = 64  # largest number of blocks; with more noise the blocks are longer


@dataclass(frozen=True)
class Dependence:
    """A finding.

    Attributes
    ----------
    says : str
        The finding in one sentence, with the names of the streams.
    correlation : float
        Magnitude of the correlation; 1 means the same noise twice.
    """

    says: str
    correlation: float


@dataclass(frozen=True)
class _TestResult:
    """Strongest result of one test, and the logarithm of a bound on its probability for sound noise."""

    kind: str
    says: str
    correlation: float
    log_p: float


@dataclass(frozen=True, eq=False)
class _Block:
    """A block of a stream."""

    name: str
    values: Floats
    spectrum: NDArray[np.complex128]  # Fourier transform of the block, scaled to norm 1


def search(streams: Mapping[str, Floats]) -> tuple[Dependence, ...]:
    """Strongest finding of each kind that chance does not explain.

    Parameters
    ----------
    streams : mapping of str to array
        Standard normal noise by name, one-dimensional; the names appear in the findings.

    Returns
    -------
    tuple of Dependence
        Empty for sound noise, except with probability FALSE_ALARM.
    """
    length, blocks = _cut(streams)
    results = [result for block in blocks for result in (*_twice(block), *_within(block))]
    results += [_between(one, other, length) for one, other in combinations(blocks, 2)]
    # Logarithms, since the probabilities of strong findings underflow.
    bound = math.log(FALSE_ALARM / max(1, len(results)))
    pairs = []
    for kind in ("twice", "within", "between"):
        if beyond := [result for result in results if result.kind == kind and result.log_p < bound]:
            # One sentence for each kind: a fault in the noise shows in many blocks at once.
            worst = max(beyond, key=lambda result: (result.correlation, -result.log_p))
            more = f" (such findings in the blocks of these streams: {len(beyond)})" if len(beyond) > 1 else ""
            pairs.append(Dependence(worst.says + more, worst.correlation))
    return tuple(pairs)


def same_words(samplers: Sequence[tuple[str, NDArray[np.uint64]]]) -> tuple[Dependence, ...]:
    """Whether a 64-bit word occurs twice among key streams. Then a key was used twice, even if scale or length make the
    noise different and uncorrelated. The probability by chance is n^2 / 2^65."""
    known: dict[int, str] = {}
    for name, words in samplers:
        for word in words.tolist():
            if word in known:
                return (Dependence(f"{name} comes from the same key stream as {known[word]}", 1.0),)
            known[word] = name
    return ()


def _cut(streams: Mapping[str, Floats]) -> tuple[int, list[_Block]]:
    """Length of the Fourier transforms, and the blocks of all streams."""
    # All pairs of blocks are compared, so their number is limited and long streams have long blocks.
    size = max(BLOCK, math.ceil(sum(len(stream) for stream in streams.values()) / _MOST_BLOCKS))
    longest = min(size, max((len(stream) for stream in streams.values()), default=1))
    length = int(fft.next_fast_len(longest, real=True))
    blocks = []
    for name, stream in streams.items():
        for start in range(0, len(stream), size):
            values = stream[start : start + size]
            # Noise that is missing altogether is found by `marginals`.
            if (norm := float(np.linalg.norm(values))) > 0:
                blocks.append(_Block(name, values, np.asarray(fft.rfft(values / norm, length))))
    return length, blocks


def _twice(block: _Block) -> Iterator[_TestResult]:
    """Test for repeated values, in pieces that are short enough for few pairs by chance."""
    for start in range(0, len(block.values), BLOCK):
        piece = block.values[start : start + BLOCK]
        # Relative to the measured size of the values, so that the test does not depend on the planned one.
        near = np.diff(np.sort(np.abs(piece))) <= NEAR * float(np.sqrt(np.mean(piece**2)))
        pairs, by_chance = _disjoint(near), len(piece) ** 2 / 2 * 1.25 * NEAR
        log_p = pairs * math.log(by_chance) - math.lgamma(pairs + 1) if pairs > by_chance else 0.0
        says = f"{block.name}: {2 * pairs} of {len(piece)} numbers come in pairs that are equal up to their sign"
        yield _TestResult("twice", says, 1.0, log_p)


def _disjoint(near: NDArray[np.bool_]) -> int:
    """Number of disjoint pairs of close neighbours: half of each run, rounded up."""
    ends = np.flatnonzero(np.diff(np.concatenate([[False], near, [False]])))
    return int(np.sum((ends[1::2] - ends[::2] + 1) // 2))


def _within(block: _Block) -> Iterator[_TestResult]:
    """Tests for autocorrelation and for mirrored values in one block."""
    x, n = block.values, len(block.values)
    if n < 2:
        return
    # Padded to twice the length, so that the cyclic correlation equals the linear one.
    length = int(fft.next_fast_len(2 * n, real=True))
    spectrum = fft.rfft(x, length)
    # Wiener-Khinchin: the inverse transform of |X|^2 is the autocorrelation, and that of X^2 the correlation with the
    # reversed block.
    shifted = fft.irfft(np.abs(spectrum) ** 2, length)[1:n]
    mirrored = fft.irfft(spectrum**2, length)[: 2 * n - 1]
    mirrored[::2] -= x**2  # a value at the centre of the mirror does not pair with itself
    for values, how, step in ((shifted, "numbers {:g} apart", 1.0), (mirrored, "numbers mirrored at place {:g}", 0.5)):
        at, r = _strongest(values / float(x @ x))
        says = f"{block.name}: {how.format(step * (at + 1))} are correlated, {r:.2f} over all"
        yield _TestResult("within", says, r, math.log(2 * len(values)) + n / 4 * _log_rest(r))


def _between(one: _Block, other: _Block, length: int) -> _TestResult:
    """Test for correlation between two blocks at any cyclic shift."""
    _, r = _strongest(fft.irfft(one.spectrum * np.conj(other.spectrum), length))
    n = max(len(one.values), len(other.values))
    whose = f"{one.name}, early and late" if one.name == other.name else f"{one.name} and {other.name}"
    says = f"{whose}: the noise agrees, correlation {r:.2f}"
    return _TestResult("between", says, r, math.log(length) + (n - 1) / 2 * _log_rest(r))


def _strongest(values: Floats) -> tuple[int, float]:
    """Index and magnitude of the largest correlation."""
    at = int(np.argmax(np.abs(values)))
    return at, min(float(abs(values[at])), 1.0)


def _log_rest(r: float) -> float:
    """log(1 - r^2), finite also for r = 1."""
    return math.log1p(-(min(r, 1 - 1e-15) ** 2))
