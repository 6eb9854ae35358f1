"""The sampler against the exact law: by proof (every bound, against independent arithmetic) and by counting."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import mpmath as mp  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from zerosum.errors import BadParameter
from zerosum.noise import discrete_gaussian
from zerosum.noise.discrete_gaussian import ETA, LARGEST, SMALLEST, draw
from zerosum.noise.sampler import Sampler

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

SIGMAS = [1.0, 1.3, 2.0, 7.5, math.nextafter(8.0, 0.0), 8.0, 1000.3, 2.0**20, math.nextafter(LARGEST, 0.0), LARGEST]
DIGITS = 200
ONES = 2**256 - 1

each_sigma = pytest.mark.parametrize("sigma", SIGMAS)


def seeded(seed: str) -> Callable[[int], Words]:
    return Sampler.seeded(seed.encode()).words


# -- the proof, bound by bound ---------------------------------------------------------------------------------------


@dataclass
class Script:
    """A source that says what it was told to, once, and counts how often it was asked."""

    answers: list[list[int]]
    asked: int = 0

    def __call__(self, count: int) -> Words:
        words = self.answers[self.asked]
        assert len(words) == count
        self.asked += 1
        return np.array(words, dtype=np.uint64)


def in_words(number: int) -> list[int]:
    """256 bits as four words, the leading one first."""
    return [number >> at & 2**64 - 1 for at in (192, 128, 64, 0)]


def chance(sigma: float, exponent: int) -> mp.mpf:
    return mp.exp(-mp.mpf(exponent) / (2 * mp.mpf(sigma) ** 2))


def bounds_of_k(sigma: float, table: discrete_gaussian._Table) -> list[mp.mpf]:
    weights = [chance(sigma, (k * table.t) ** 2) for k in range(len(table.bounds) + 1)]
    total = mp.fsum(weights)
    return [mp.fsum(weights[: k + 1]) / total for k in range(len(table.bounds))]


@each_sigma
def test_discrete_gaussian_table_is_exact_to_115_digits(sigma: float) -> None:
    with mp.workdps(DIGITS):
        table = discrete_gaussian._Table(sigma)
        assert 4 * table.t <= sigma < 8 * table.t or (table.t == 1 and sigma < 8)
        bounds = bounds_of_k(sigma, table)
        assert max(abs(mp.mpf(str(held)) - true) for held, true in zip(table.bounds, bounds, strict=True)) < 1e-115
        assert table.thresholds.tolist() == [int(mp.floor(bound * 2**64)) for bound in bounds]
        # where the table ends: f(x) falls, so a sum from x on is below f(x) and the integral from there
        end = (len(table.bounds) + 1) * table.t / mp.mpf(sigma)
        left_out = 2 * (mp.exp(-(end**2) / 2) / sigma + mp.sqrt(mp.pi / 2) * mp.erfc(end / mp.sqrt(2)))
        assert left_out / mp.sqrt(2 * mp.pi) < mp.mpf(2) ** -128 < ETA / 100


@each_sigma
def test_discrete_gaussian_guide_marks_cells_with_bound(sigma: float) -> None:
    with mp.workdps(DIGITS):
        table = discrete_gaussian._Table(sigma)
        cells = np.array([int(mp.floor(bound * 4096)) for bound in bounds_of_k(sigma, table)])
    for cell, start in enumerate(table.guide[:4096].tolist()):
        if cell in cells:
            assert start == -1
        else:
            assert start == int(np.count_nonzero(cells < cell)) * table.t
    assert np.array_equal(table.guide[:4096], table.guide[4096:])
    assert table.guide.max() < 2**45


@each_sigma
def test_discrete_gaussian_share_of_kept_proposals_is_as_stated(sigma: float) -> None:
    with mp.workdps(50):
        table = discrete_gaussian._Table(sigma)
        weights = mp.fsum(chance(sigma, (k * table.t) ** 2) for k in range(len(table.bounds) + 1))
        law = mp.sqrt(2 * mp.pi) * sigma * mp.jtheta(3, 0, mp.exp(-2 * mp.pi**2 * mp.mpf(sigma) ** 2))
        kept = law / (2 * table.t * weights)
        assert kept > (0.9 if sigma >= 4 else 0.71)
        assert abs(kept - table.kept) < 1e-8


@each_sigma
def test_discrete_gaussian_words_on_threshold_are_decided_by_320_bits(sigma: float) -> None:
    """Just below and just above every bound of k, by one unit in the 320th place."""
    table = discrete_gaussian._Table(sigma)
    with mp.workdps(DIGITS):
        for k, bound in enumerate(bounds_of_k(sigma, table)):
            number = int(mp.floor(bound * mp.mpf(2) ** 320))
            for beyond in (0, 1):
                word, rest = divmod(number + beyond, 2**256)
                junk = (37 * k) % 4096  # bits of the fresh word that are not looked at
                fresh = (word % 2**52) << 12 | junk
                script = Script([[word >> 52 << 51, 0], [fresh], in_words(rest)])
                assert discrete_gaussian._propose(1, table, script).tolist() == [(k + beyond) * table.t]
                assert script.asked == 3


def reaching(k: int, table: discrete_gaussian._Table) -> tuple[int, list[list[int]]] | None:
    """The 12 bits that lead to k, and the fresh word needed beside them; none for the outermost k."""
    cells = np.flatnonzero(table.guide[:4096] == k * table.t)
    if len(cells):
        return int(cells[len(cells) // 2]), []
    thresholds = [-1, *table.thresholds.tolist(), 2**64]
    word = thresholds[k] + 1
    return (word >> 52, [[(word % 2**52) << 12]]) if word < thresholds[k + 1] else None


@each_sigma
def test_discrete_gaussian_numbers_in_band_are_decided_by_288_bits(sigma: float) -> None:
    """Just below and just above the probability of being kept, by one unit in the 288th place, and all around it."""
    table, generator = discrete_gaussian._Table(sigma), np.random.default_rng(3)
    decided = 0
    for k in range(len(table.bounds) + 1):
        way = reaching(k, table)
        if way is None:
            continue
        for j in {0, table.t - 1, *generator.integers(0, table.t, 2).tolist()}:
            for negative in (0, 1):
                decided += around_the_bound(sigma, table, k, j, negative, way)
    assert decided > 200


def around_the_bound(
    sigma: float, table: discrete_gaussian._Table, k: int, j: int, negative: int, way: tuple[int, list[list[int]]]
) -> int:
    cell, fresh = way
    i, decided = j + negative, 0
    size = k * table.t + i
    with mp.workdps(DIGITS):
        scaled = chance(sigma, i * (2 * k * table.t + i)) * mp.mpf(2) ** 288
        word, rest = divmod(int(mp.floor(scaled)), 2**256)
        for offset in (-100, -3, -1, 0, 1, 3, 100):
            if not 0 <= word + offset < 2**32:
                continue
            for bits in (0, ONES, *((rest, rest + 1, max(rest - 1, 0)) if offset == 0 else ())):
                first = negative << 63 | cell << 51 | j
                script = Script([[first, word + offset], *fresh, in_words(bits)])
                kept = discrete_gaussian._propose(1, table, script).tolist()
                assert kept == ([-size if negative else size] if ((word + offset) << 256) + bits < scaled else [])
                extended = script.asked == len(script.answers)
                assert extended if abs(offset) <= 1 else not extended
                decided += 1
    return decided


@dataclass
class Recorder:
    """A source that starts with a given block and writes down what it says."""

    block: Words
    source: Callable[[int], Words]
    said: list[list[int]] = field(default_factory=list)

    def __call__(self, count: int) -> Words:
        words = self.source(count) if self.said else self.block
        assert len(words) == count
        self.said.append(words.tolist())
        return words


@pytest.mark.parametrize("sigma", [1.0, 3.7, 1000.3, 2.0**20, LARGEST])
def test_discrete_gaussian_block_equals_slow_arithmetic(sigma: float) -> None:
    """2000 proposals, a quarter of them aimed at the band, replayed one by one with 200 digits."""
    table, count = discrete_gaussian._Table(sigma), 2000
    source = seeded("replay")
    block = source(3 * count // 2).copy()
    with mp.workdps(DIGITS):
        bounds = bounds_of_k(sigma, table)
        halves = block[count:].view(np.uint32)
        for at in range(0, count, 4):
            number = mp.mpf(int(block[at]) >> 51 & 4095) / 4096
            k = sum(number >= bound for bound in bounds)
            i = (int(block[at]) & (table.t - 1)) + (int(block[at]) >> 63)
            aim = int(mp.floor(chance(sigma, i * (2 * k * table.t + i)) * 2**32)) + at % 3 - 1
            halves[at] = min(max(aim, 0), 2**32 - 1)
        recorder = Recorder(block, source)
        found = discrete_gaussian._propose(count, table, recorder)
        assert found.tolist() == list(replay(sigma, table, bounds, recorder.said))
    assert len(recorder.said) > 100


def replay(sigma: float, table: discrete_gaussian._Table, bounds: list[mp.mpf], said: list[list[int]]) -> Iterator[int]:
    count = 2 * len(said[0]) // 3
    halves = [half for word in said[0][count:] for half in (word & 2**32 - 1, word >> 32)]
    fresh, extensions = iter(said[1]), iter(said[2:])
    cells = {int(mp.floor(bound * 4096)) for bound in bounds}
    for word, half in zip(said[0][:count], halves, strict=True):
        number, cell = mp.mpf(word >> 51 & 4095) / 4096, word >> 51 & 4095
        if cell in cells:
            number += mp.mpf(next(fresh) >> 12) / 2**64
        k = sum(number >= bound for bound in bounds)
        i = (word & (table.t - 1)) + (word >> 63)
        probability, uniform = chance(sigma, i * (2 * k * table.t + i)), mp.mpf(half) / 2**32
        if abs(probability - uniform) <= mp.mpf(2) ** -31:
            for place, extra in enumerate(next(extensions)):
                uniform += mp.mpf(extra) / mp.mpf(2) ** (96 + 64 * place)
        if uniform < probability:
            yield -(k * table.t + i) if word >> 63 else k * table.t + i
    assert next(extensions, None) is None
    assert next(fresh, None) is None


def test_exp_is_more_exact_than_proof_requires() -> None:
    """The proof leaves it 2^-32; 2^-50 is asked for here, on 20 000 points of the exponent's range."""
    generator, context = np.random.default_rng(5), decimal.Context(prec=40)
    points = -np.concatenate([generator.random(10_000) * 16, 2.0 ** -generator.uniform(0, 60, 10_000)])
    for point, value in zip(points.tolist(), np.exp(points).tolist(), strict=True):
        true = context.exp(decimal.Decimal(point))
        assert abs(context.subtract(decimal.Decimal(value), true)) < decimal.Decimal(2.0**-50)


def test_discrete_gaussian_table_ignores_decimal_context_of_caller() -> None:
    with decimal.localcontext(decimal.Context(prec=5)):
        coarse = discrete_gaussian._Table(1000.3)
    assert coarse.bounds == discrete_gaussian._Table(1000.3).bounds


def test_discrete_gaussian_sigma_in_single_precision_is_used_in_double() -> None:
    narrow = np.float32(1000.3)
    discrete_gaussian._table.cache_clear()
    assert np.array_equal(draw(100, narrow, seeded("x")), draw(100, float(narrow), seeded("x")))  # type: ignore[arg-type]  # a user's mistake
    assert float(discrete_gaussian._table(float(narrow)).factor) == -0.5 / float(narrow) ** 2


# -- the law, counted -----------------------------------------------------------------------------------------------


def below(sigma: float, edges: Ints) -> Floats:
    """P(x < edge), exact to about 1e-15: summed where that is short, else by Euler and Maclaurin's formula."""
    if sigma <= 4096:
        reach = math.ceil(15 * sigma)
        law = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
        return np.asarray(np.concatenate([[0.0], np.cumsum(law)])[np.clip(edges + reach, 0, 2 * reach + 1)] / law.sum())
    return euler_maclaurin(sigma, edges)


def euler_maclaurin(sigma: float, edges: Ints) -> Floats:
    """The integral up to edge - 1/2 less f'/24; the next term is 7/5760 f''', below 2e-3 / sigma^4."""
    at = (edges - 0.5) / sigma
    return np.asarray(special.ndtr(at) + at * np.exp(-0.5 * at**2) / (24 * sigma**2 * math.sqrt(2 * math.pi)))


def test_discrete_gaussian_exact_law_by_two_formulas_agrees() -> None:
    for sigma in (300.0, 1000.0, 4000.5):
        edges = np.arange(-round(5 * sigma), round(5 * sigma), 7)
        assert np.abs(below(sigma, edges) - euler_maclaurin(sigma, edges)).max() < 1e-12
    sigma = 2.0**20
    right = np.exp(-0.5 * (np.arange(14 * 2**20) / sigma) ** 2)
    total = 2 * right.sum() - 1
    assert abs(total / (sigma * math.sqrt(2 * math.pi)) - 1) < 1e-13  # the theta function's other side
    edges = np.array([1, 1000, 2**19, 3 * 2**20])
    summed = [0.5 + (right[:edge].sum() - 0.5) / total for edge in edges.tolist()]
    assert np.abs(summed - euler_maclaurin(sigma, edges)).max() < 1e-13


def two_sided(statistic: float, law: stats.rv_continuous | stats.rv_discrete, *parameters: float) -> float:
    return min(1.0, 2 * min(float(law.cdf(statistic, *parameters)), float(law.sf(statistic, *parameters))))


def chi_square(counts: Ints, expected: Floats, lost: int) -> float:
    """Cells with less than ten expected are put together; too good a fit is a fault, too."""
    rare = expected < 10
    seen, foreseen = counts[~rare].astype(float), expected[~rare]
    if expected[rare].sum() >= 10:
        seen, foreseen = np.append(seen, counts[rare].sum()), np.append(foreseen, expected[rare].sum())
    return two_sided(float(np.sum((seen - foreseen) ** 2 / foreseen)), stats.chi2, len(seen) - lost)


def moments(sigma: float) -> tuple[float, float, float]:
    """E x^2, E x^4 and E|x|, summed where that is short; else a normal's, which are then the same to 1e-8."""
    if sigma > 4096:
        return sigma**2, 3 * sigma**4, sigma * math.sqrt(2 / math.pi)
    x = np.arange(-math.ceil(15 * sigma), math.ceil(15 * sigma) + 1)
    law = np.exp(-0.5 * (x / sigma) ** 2)
    law /= law.sum()
    return float(law @ x**2), float(law @ x.astype(float) ** 4), float(law @ np.abs(x))


@dataclass
class Tally:
    """Counts of a stream of draws, and how likely the exact law makes them."""

    sigma: float
    bins: int
    total: int = 0

    LAGS = (1, 2, 3, 8)
    TAILS = (3.0, 4.0, 5.0)

    def __post_init__(self) -> None:
        values = math.ceil(6 * self.sigma)
        if 2 * values < self.bins:
            self.edges = np.arange(-values, values + 2)  # one bin for each value
        else:
            quantiles = self.sigma * special.ndtri(np.arange(1, self.bins) / self.bins)
            self.edges = np.unique(np.rint(quantiles).astype(np.int64))
        self.counts = np.zeros(len(self.edges) + 1, dtype=np.int64)
        self.near = np.zeros(201, dtype=np.int64)  # -100 ... 100, value by value
        self.low = np.zeros(256, dtype=np.int64)
        self.signs = np.zeros((2, 33), dtype=np.int64)
        self.tails = dict.fromkeys(self.TAILS, 0)
        self.moments = np.zeros(2)
        self.products = {(lag, what): 0.0 for lag in self.LAGS for what in ("value", "size")}
        self.pairs = dict.fromkeys(self.LAGS, 0)
        self.variance, self.fourth, self.mean_size = moments(self.sigma)

    def add(self, x: Ints) -> None:
        self.total += len(x)
        self.counts += np.bincount(np.searchsorted(self.edges, x, side="right"), minlength=len(self.counts))
        self.near += np.bincount(x[np.abs(x) <= 100] + 100, minlength=201)
        self.low += np.bincount(x & 255, minlength=256)
        size = np.abs(x)
        place = np.minimum(size * 8 / self.sigma, 32).astype(np.int64)
        for row, side in enumerate((x > 0, x < 0)):
            self.signs[row] += np.bincount(place[side], minlength=33)
        for cut in self.TAILS:
            self.tails[cut] += int(np.count_nonzero(size > cut * self.sigma))
        real, centred = x.astype(float), size - self.mean_size
        self.moments += [real.sum(), (real**2).sum()]
        for lag in self.LAGS:
            self.pairs[lag] += len(x) - lag
            self.products[lag, "value"] += float(real[lag:] @ real[:-lag])
            self.products[lag, "size"] += float(centred[lag:] @ centred[:-lag])

    def p_values(self) -> dict[str, float]:
        n, found = self.total, {}
        masses = np.diff(np.concatenate([[0.0], below(self.sigma, self.edges), [1.0]]))
        found["bins"] = chi_square(self.counts, n * masses, 1)
        single = np.diff(below(self.sigma, np.arange(-100, 102)))
        if n * single.min() > 10:
            found["single values"] = chi_square(self.near, n * single, 0)
        if self.sigma >= 1000:  # uniform to within exp(-2 pi^2 sigma^2 / 256^2)
            found["low bits"] = chi_square(self.low, np.full(256, n / 256), 1)
        both = self.signs.sum(axis=0)
        enough = both >= 20
        apart = (self.signs[0] - self.signs[1])[enough].astype(float)  # given both, a fair coin's
        found["signs"] = two_sided(float(np.sum(apart**2 / both[enough])), stats.chi2, int(np.count_nonzero(enough)))
        for cut, count in self.tails.items():
            mass = 2 * float(below(self.sigma, np.array([-math.floor(cut * self.sigma)]))[0])
            found[f"beyond {cut:g} sigma"] = two_sided(count, stats.binom, n, mass)
        found["mean"] = two_sided(self.moments[0] / math.sqrt(n * self.variance), stats.norm)
        spread = math.sqrt(n * (self.fourth - self.variance**2))
        found["variance"] = two_sided((self.moments[1] - n * self.variance) / spread, stats.norm)
        for (lag, what), product in self.products.items():
            unit = self.variance if what == "value" else self.variance - self.mean_size**2
            found[f"lag {lag}, {what}"] = two_sided(product / (unit * math.sqrt(self.pairs[lag])), stats.norm)
        return found


COUNTED = [1.0, 1.3, 2.0, 7.5, 1000.0, 1023.9, 2.0**20, 2.0**30]
CHUNK = 2_000_000


def assert_fits(sigma: float, total: int, bins: int, source: Callable[[int], Words]) -> dict[str, float]:
    tally = Tally(sigma, bins)
    while tally.total < total:
        tally.add(draw(CHUNK, sigma, source))
    found = tally.p_values()
    assert min(found.values()) > 1e-6, found
    return found


@pytest.mark.parametrize("sigma", COUNTED)
def test_discrete_gaussian_two_million_draws_fit_law(sigma: float) -> None:
    """18 p-values at most, each refused below 1e-6: a sound sampler on a fresh seed fails once in 50 000 times."""
    assert_fits(sigma, CHUNK, 512, seeded(f"law {sigma}"))


@pytest.mark.slow
@pytest.mark.parametrize("sigma", COUNTED)
def test_discrete_gaussian_hundred_million_draws_fit_law(sigma: float) -> None:
    """As above with another seed, 50 times the draws and 4096 bins; the same rate of false alarms."""
    found = assert_fits(sigma, 100_000_000, 4096, seeded(f"long {sigma}"))
    print(*(f"{name}: {value:.4f}" for name, value in found.items()), sep=", ")


@pytest.mark.parametrize("block", [1, 7, 100, 1 << 17])
def test_discrete_gaussian_any_block_size_fits_law(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chi-square over the values of sigma = 3, refused below 1e-6 on either side."""
    monkeypatch.setattr(discrete_gaussian, "_BLOCK", block)
    size = 200_000 if block >= 100 else 3000
    tally = Tally(3.0, 512)
    tally.add(draw(size, 3.0, seeded(f"block {block}")))
    assert tally.p_values()["bins"] > 1e-6


@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 17, 40_000])
def test_discrete_gaussian_draw_has_requested_size(size: int) -> None:
    found = draw(size, 50.0, seeded("size"))
    assert found.shape == (size,)
    assert found.dtype == np.int64


def test_discrete_gaussian_same_seed_gives_same_draws() -> None:
    first, again, other = (draw(50_000, 2.0**20, seeded(seed)) for seed in ("a", "a", "b"))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nextafter(SMALLEST, 0), math.nextafter(LARGEST, math.inf), math.inf])
def test_discrete_gaussian_sigma_out_of_range_is_refused(sigma: float) -> None:
    with pytest.raises(BadParameter, match="sigma"):
        draw(1, sigma, seeded("refused"))


def test_discrete_gaussian_sigma_nan_is_refused() -> None:
    with pytest.raises(BadParameter):
        draw(1, math.nan, seeded("refused"))
