"""Noise that comes back: whether numbers that should be independent repeat, mirror or follow each other.

Streams of noise go in, each a long row of independent standard normals if all is well; the strongest of every kind of
echo that chance does not explain comes out. Streams are cut into blocks, and three things are looked for:

    twice      values that come again up to their sign, in whatever order: pairs of sorted absolute values that are
               nearer than NEAR. Two values are so near with probability p <= 1.25 NEAR, so m pairs without a value
               in common turn up among n values with probability at most (n^2 p / 2)^m / m!, counting sets of pairs.
    within     a block that is like itself, shifted or reversed: r = x'Ax/x'x, where A has no trace and norm 1 at most.
               By Chernoff's bound P(|r| >= t) <= 2 (1 - t^2)^(n/4), whatever A is.
    between    two blocks that are alike at some shift: r is the cosine between a direction that is uniform in n
               dimensions and another one, so P(|r| >= t) <= (1 - t^2)^((n - 1)/2).

All lags are looked at, by Fourier transforms. Probabilities are multiplied by the number of looks, so that sound noise
is accused less often than once in 1/FALSE_ALARM calls, whatever the lengths and numbers of streams. At blocks of 8192
a correlation of 0.09 between two blocks is found, and one of 0.13 within a block.
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

FALSE_ALARM = 1e-7
NEAR = 2.0**-19  # of a standard deviation: rounding to the grid moves sums of few sites by less
BLOCK = 1 << 13
_MOST = 64  # blocks; longer ones if there is more noise


@dataclass(frozen=True)
class Echo:
    """What was found: a sentence, and the correlation (1: the same noise again)."""

    says: str
    correlation: float


@dataclass(frozen=True)
class _Look:
    """The strongest of some looks, and the logarithm of a bound on its probability under sound noise."""

    kind: str
    says: str
    correlation: float
    log_p: float


@dataclass(frozen=True, eq=False)
class _Block:
    name: str
    values: Floats
    spectrum: NDArray[np.complex128]  # of the block at norm 1


def search(streams: Mapping[str, Floats]) -> tuple[Echo, ...]:
    """The strongest echo of each kind that chance does not explain; none, but for FALSE_ALARM, if streams are sound."""
    length, blocks = _cut(streams)
    looks = [look for block in blocks for look in (*_twice(block), *_within(block))]
    looks += [_between(one, other, length) for one, other in combinations(blocks, 2)]
    bound = math.log(FALSE_ALARM / max(1, len(looks)))
    found = []
    for kind in ("twice", "within", "between"):
        if beyond := [look for look in looks if look.kind == kind and look.log_p < bound]:
            worst = max(beyond, key=lambda look: (look.correlation, -look.log_p))
            more = f" (such findings in the blocks of these streams: {len(beyond)})" if len(beyond) > 1 else ""
            found.append(Echo(worst.says + more, worst.correlation))
    return tuple(found)


def same_words(samplers: Sequence[tuple[str, NDArray[np.uint64]]]) -> tuple[Echo, ...]:
    """Whether two samplers, or one, gave a 64-bit word twice: then a key was used twice, whatever became of its words
    (another scale or length makes other noise of them, which need not be correlated). By chance once in 2^65/n^2."""
    known: dict[int, str] = {}
    for name, words in samplers:
        for word in words.tolist():
            if word in known:
                return (Echo(f"{name} comes from the same key stream as {known[word]}", 1.0),)
            known[word] = name
    return ()


def _cut(streams: Mapping[str, Floats]) -> tuple[int, list[_Block]]:
    """The streams in blocks, and the length of the transforms that compare them."""
    size = max(BLOCK, math.ceil(sum(len(stream) for stream in streams.values()) / _MOST))
    longest = min(size, max((len(stream) for stream in streams.values()), default=1))
    length = int(fft.next_fast_len(longest, real=True))
    blocks = []
    for name, stream in streams.items():
        for start in range(0, len(stream), size):
            values = stream[start : start + size]
            if (norm := float(np.linalg.norm(values))) > 0:
                blocks.append(_Block(name, values, np.asarray(fft.rfft(values / norm, length))))
    return length, blocks


def _twice(block: _Block) -> Iterator[_Look]:
    """Values used twice, in pieces short enough for chance not to bring many pairs together."""
    for start in range(0, len(block.values), BLOCK):
        piece = block.values[start : start + BLOCK]
        near = np.diff(np.sort(np.abs(piece))) <= NEAR * float(np.sqrt(np.mean(piece**2)))
        pairs, by_chance = _disjoint(near), len(piece) ** 2 / 2 * 1.25 * NEAR
        log_p = pairs * math.log(by_chance) - math.lgamma(pairs + 1) if pairs > by_chance else 0.0
        says = f"{block.name}: {2 * pairs} of {len(piece)} numbers come in pairs that are equal up to their sign"
        yield _Look("twice", says, 1.0, log_p)


def _disjoint(near: NDArray[np.bool_]) -> int:
    """How many pairs of neighbours are near each other, no value counted in two pairs: half of each run, rounded up."""
    ends = np.flatnonzero(np.diff(np.concatenate([[False], near, [False]])))
    return int(np.sum((ends[1::2] - ends[::2] + 1) // 2))


def _within(block: _Block) -> Iterator[_Look]:
    x, n = block.values, len(block.values)
    if n < 2:
        return
    length = int(fft.next_fast_len(2 * n, real=True))
    spectrum = fft.rfft(x, length)
    shifted = fft.irfft(np.abs(spectrum) ** 2, length)[1:n]
    mirrored = fft.irfft(spectrum**2, length)[: 2 * n - 1]
    mirrored[::2] -= x**2  # the number in the middle makes no pair with itself
    for values, how, step in ((shifted, "numbers {:g} apart", 1.0), (mirrored, "numbers mirrored at place {:g}", 0.5)):
        at, r = _strongest(values / float(x @ x))
        says = f"{block.name}: {how.format(step * (at + 1))} are correlated, {r:.2f} over all"
        yield _Look("within", says, r, math.log(2 * len(values)) + n / 4 * _log_rest(r))


def _between(one: _Block, other: _Block, length: int) -> _Look:
    _, r = _strongest(fft.irfft(one.spectrum * np.conj(other.spectrum), length))
    n = max(len(one.values), len(other.values))
    whose = f"{one.name}, early and late" if one.name == other.name else f"{one.name} and {other.name}"
    says = f"{whose}: the noise agrees, correlation {r:.2f}"
    return _Look("between", says, r, math.log(length) + (n - 1) / 2 * _log_rest(r))


def _strongest(values: Floats) -> tuple[int, float]:
    at = int(np.argmax(np.abs(values)))
    return at, min(float(abs(values[at])), 1.0)


def _log_rest(r: float) -> float:
    """log(1 - r^2), finite at 1 too."""
    return math.log1p(-(min(r, 1 - 1e-15) ** 2))
