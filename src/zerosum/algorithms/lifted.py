"""Where the centre of rows lies and at what norm to clip them, from looks at lifted rows and histograms of norms. Free.

Rows z about a public point get a constant a as one more column: u = (z, a), clipped. The sum of u u' over units has
three blocks: second moments of z, the cross block v (sums of a z) and the corner W (of a^2), all under one noise. So
one release holds the mean a v/W about that point, and M - v v'/W is the second moment about it: the mean's error is
known, with its noise, and need not become a component.

Tested in tests/algorithms/test_lifted.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerosum.algorithms.histogram import nearest_probabilities
from zerosum.algorithms.spectral import debiased, noise_edge
from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.kernel.threads import one_thread

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 1.0)  # of norms, that may become the clip; 0: each unit by its own norm
_LEAST_KEPT = 0.4  # of what normalised units would contribute: no clip is so loose that less is left
_CLEAR = 3.0  # standard deviations by which a known direction has to hold more than others do
_CUT = 0.05  # what clipping everybody costs one component, in shares of the energy
_FALLING = 1.5  # eigenvalues that nobody saw are taken to fall as k^-1.5
_ZETA = 2.612  # the sum of k^-1.5


@dataclass(frozen=True, eq=False)
class Look:
    """The blocks of a look and its noise, a standard deviation in isometric coordinates."""

    matrix: Floats
    cross: Floats
    corner: float
    noise: float

    @classmethod
    def at(cls, released: Floats, columns: int, noise: float) -> Look:
        """From the released coordinates of a matrix with one column more."""
        whole = coordinates.unpack(released, columns + 1)
        return cls(whole[:-1, :-1], whole[:-1, -1], float(whole[-1, -1]), noise)

    @classmethod
    def at_column(cls, released: Floats, columns: int, noise: float) -> Look:
        """From the lifted column alone, all of whose entries have the same noise."""
        return cls(np.empty((0, 0)), released[:columns], float(released[columns]), math.sqrt(2) * noise)

    @property
    def _real(self) -> float:
        """Which share of the cross block is more than its noise (James and Stein); entries have noise^2/2."""
        square = float(self.cross @ self.cross)
        return max(0.0, 1 - len(self.cross) * self.noise**2 / 2 / square) if square > 0 else 0.0

    def apart(self, lift: float) -> Floats:
        """How far the units' centre is from where they were looked at: zero unless it stands clear of the noise."""
        columns = len(self.cross)
        chance = columns * self.noise**2 / 2 * (1 + 3 * math.sqrt(2 / columns))
        if not (self.corner > 3 * self.noise and float(self.cross @ self.cross) > chance):
            return np.zeros(columns)
        return self._real * lift / self.corner * self.cross

    def corrected(self, *, whole: bool = False) -> Floats:
        """Second moments about the units' own centre: without the mean's part, as far as it is real, or all of it."""
        if not self.corner > 3 * self.noise:
            return self.matrix
        real = 1.0 if whole else self._real
        part = np.outer(real**2 / self.corner * self.cross, self.cross)
        return np.subtract(self.matrix, part, out=part)

    def corrected_product(self, product: Floats, basis: Floats) -> Floats:
        """The same for the product of the second moments with a basis, where only that is known."""
        if not self.corner > 3 * self.noise:
            return product
        return np.asarray(product - self._real**2 / self.corner * np.outer(self.cross, self.cross @ basis))

    @property
    def tilt(self) -> float:
        """How far the centre is, in lifts: what the correction makes of the cross block's noise grows with it."""
        return float(np.linalg.norm(self.cross)) / self.corner if self.corner > 3 * self.noise else 0.0

    @property
    def edge(self) -> float:
        """Where the eigenvalues of noise end in a wholly corrected matrix."""
        more = max((self.tilt + 1 / self.tilt) / 2, 1.0) if self.tilt > 1 else 1.0
        return more * noise_edge(len(self.matrix), self.noise)

    def with_known(self, vectors: Floats, known: Floats) -> Floats:
        """Directions of which the last may be noise, with a known one in its place where that holds more.

        Units that differ in size vary along their mean, as counts and intensities do. Along a direction that is known
        from elsewhere noise adds to the matrix no more than its standard deviation, not the edge that every direction
        found in the matrix itself has to pass. So it has to hold clearly more than directions do on average, and more
        than the last one does: of a value v above the edge e of noise that is v - e^2/(4 v), without what noise added.
        Where the corner is lost in noise a large value may be the mean's own, and says nothing.
        """
        rest, matrix, size = vectors[:, :-1], self.corrected(), float(np.linalg.norm(known))
        for _ in range(2):  # once more for what rounding leaves
            known = known - rest @ (rest.T @ known)
        left = float(np.linalg.norm(known))
        if not left > 1e-6 * size:
            return vectors
        known, last = known / left, vectors[:, -1]
        level, value = float(np.trace(matrix)) / len(matrix), float(known @ matrix @ known)
        held, above = level, float(last @ matrix @ last) - level
        if self.corner > 6 * self.noise and above > self.edge:
            raised = float(debiased(np.array(above), self.edge))
            held += raised - self.edge**2 / (4 * raised)
        if not value > max(held, level + _CLEAR * self.noise):
            return vectors
        return np.column_stack([rest, known])

    def above(self, most: int) -> int:
        """How many directions, up to `most`, stand above the noise and above what isotropic units would show.

        Where the corner is lost in noise nothing can be corrected; at most one direction is then the mean's, and by
        interlacing the others are as many as are counted less one.
        """
        sure = self.corner > 6 * self.noise
        values = np.asarray(np.linalg.eigvalsh(self.corrected(whole=True) if sure else self.matrix)[::-1], np.float64)
        found = standing(values, self.noise, most + 1, self.tilt if sure else 0.0)
        return min(most, found if sure else max(found - 1, 0))


def standing(values: Floats, noise: float, most: int, tilt: float = 0.0) -> int:
    """How many of the falling eigenvalues of a sum of units' matrices, each of trace at most 1, are neither noise nor
    what as many isotropic units would show by chance.

    Of those that are left after k, d in number, with trace T: isotropic units would have T/d each, plus what sampling
    adds (Marchenko and Pastur), plus privacy noise; the largest passes that end by Tracy and Widom's law. The last one
    has no others to be compared with: it only has to be more than privacy noise.

    >>> standing(np.array([900.0, 100.0]), 1.0, 2), standing(np.array([500.0, 500.0]), 1.0, 2)
    (2, 0)
    """
    columns = len(values)
    for k in range(min(most, columns)):
        d = columns - k
        trace = max(float(np.sum(values[k:])), 0.0) + 2 * noise * math.sqrt(d)
        level = trace / d if d > 1 else 0.0
        end = math.sqrt(2 * d * noise**2 + 4 * level**2 * d / max(trace, 1.0))
        if tilt > 1:
            end = max(end, noise * math.sqrt(2 * d) * (tilt + 1 / tilt) / 2)
        chance = level * (1 + d / max(trace, 1.0)) + end * (1 + 3 * d ** (-2 / 3)) + 3 * tilt**2 * noise
        if not values[k] > chance:
            return k
    return min(most, columns)


def beyond(values: Floats, edge: float, columns: int, units: float) -> int:
    """The same for the leading values alone, where noise ends at `edge`: all of them add up to so many units at most.

    >>> beyond(np.array([900.0, 30.0]), 10.0, 100, 1000.0), beyond(np.array([13.0, 12.0]), 1.0, 100, 1000.0)
    (2, 0)
    """
    left = units
    for k, value in enumerate(values.tolist()):
        chance = (math.sqrt(left / (columns - k)) + 1) ** 2 if left > 0 else 0.0  # as above, of level (1 + sqrt(d/T))^2
        if not value > chance + edge:
            return k
        left = max(left - value, 0.0)
    return len(values)


@dataclass(frozen=True, eq=False)
class Norms:
    """How many of the units have which norm, by a noisy histogram with evenly spaced bins in the logarithm."""

    edges: Floats
    shares: Floats

    @classmethod
    def at(cls, edges: Floats, released: Floats, units: float | None) -> Norms:
        counted = units if units is not None else float(np.sum(released))
        return cls(edges, nearest_probabilities(released, max(counted, 1.0)))

    def quantile(self, q: float) -> float:
        """Between edges as the logarithm runs."""
        below = np.concatenate([[0.0], np.cumsum(self.shares)])
        below[-1] = max(below[-1], 1.0)
        at = min(int(np.searchsorted(below[1:], q - 1e-12)), len(self.shares) - 1)
        part = min(max((q - below[at]) / max(below[at + 1] - below[at], 1e-12), 0.0), 1.0)
        return float(np.exp(np.log(self.edges[at]) + part * np.log(self.edges[at + 1] / self.edges[at])))

    def kept(self, clip: float, square: float) -> float:
        """What lifted units (`square`: of the lift) hold of themselves on average, where they are divided by the clip
        or by their own norm, if that is larger."""
        steps = np.log(self.edges[1:] / self.edges[:-1])[:, None] * np.array([0.1, 0.3, 0.5, 0.7, 0.9])
        inside = np.exp(np.log(self.edges[:-1])[:, None] + steps)
        return float(np.sum(self.shares * np.mean(inside / np.maximum(clip, inside + square), axis=1)))


@dataclass(frozen=True, eq=False)
class Centred:
    """The centre that small looks found, those of them that are at the whole matrix or else the last, what units held
    of themselves in those that are, and the norms about the centre, their median, and how many units there are."""

    center: Floats
    looks: list[Look]
    held: Floats
    norms: Norms
    middle: float
    units: float


@dataclass(frozen=True)
class Choice:
    """The clip of the main look, its quantile (0 where every unit is divided by its own norm), what units then hold of
    themselves, and whether the small looks are worth adding."""

    clip: float
    quantile: float
    kept: float
    mixed: bool


def choose(
    look: Look, norms: Norms, square: float, small: Floats, share: float, left: float, units: float, components: int
) -> Choice:
    """The clip that loses least of a spectrum as the last small look shows it, or as spectra are if it shows none.

    A loose clip weighs units by their size, as the second moment does, and a tight one makes them all alike, which
    bends components (`_CUT`) and lets more of them stand out of the noise. `small` is what units held of themselves in
    the small looks that could be added, `share` what each of these cost of what all looks cost, `left` what is left for
    the main one, `square` the square of its lift. An eigenvalue l is lost where noise exceeds it: min(1, (noise/l)^2)
    of it.
    """
    if look.noise == 0:  # nothing to win by clipping
        clip = norms.quantile(1.0) + square
        return Choice(clip, 1.0, norms.kept(clip, square), mixed=False)
    places = np.arange(1, components + 1)
    seen, guess = np.zeros(components), units * places**-_FALLING / _ZETA
    if len(small):
        with one_thread():  # others would spin on, where sites in this process need the cores for the main look
            values = np.linalg.eigvalsh(look.corrected(whole=True))[::-1][:components]
        seen = np.where(values > look.edge, debiased(np.maximum(values, 0.0), look.edge), 0.0) / small[-1]
        guess = np.minimum(guess, look.edge / 2 / small[-1])
    count = int(np.sum(seen > 0))
    if count:
        guess = np.minimum(guess, seen[count - 1] * (places / count) ** -_FALLING)
    spectrum = np.where(seen > 0, seen, guess)
    spectrum = np.maximum(spectrum * min(1.0, units / max(float(np.sum(spectrum)), 1e-300)), 1e-300)
    whole = noise_edge(len(look.cross), look.noise * math.sqrt(share)) / 2  # of a look that took everything
    before = share * float(np.sum(small**2))
    best: tuple[float, Choice] | None = None
    least = _LEAST_KEPT * norms.kept(square, square)
    for q in QUANTILES:
        clip = norms.quantile(q) if q else square
        kept = norms.kept(clip, square)
        if best is not None and kept < least:
            break
        main = left * kept**2
        for mixed in (False, True) if len(small) else (False,):
            strength = math.sqrt(main + mixed * before)
            other = before / (before + main) if mixed else 0.0
            lost = np.sum(spectrum * np.minimum(1, (whole / np.maximum(strength * spectrum, 1e-300)) ** 2))
            cost = float(lost / np.sum(spectrum)) + _CUT * components**-1.5 * ((1 - q) * (1 - other) + other)
            if best is None or cost < best[0]:
                best = cost, Choice(clip, q, kept, mixed)
    assert best is not None  # noqa: S101 the first quantile is always tried
    return best[1]
