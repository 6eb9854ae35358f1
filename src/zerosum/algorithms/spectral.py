"""What PCA and ICA make of noisy second moments: edges of the noise, directions, white coordinates. Free of charge.

A look is the sum over people of their own second moments, each divided by its norm, with noise of a known size in
isometric coordinates. Strong directions fill such a sum and weak ones drown in its noise, so each look is taken in
coordinates in which the strong directions of the one before are no stronger than the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from zerosum.arrays import Floats
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.threads import one_thread

_DAMPED_TO = 0.5  # of the edge of the noise: what strong directions are brought down to
_ABOVE_THE_LAST = 1.5  # damped directions stay clear of those that are not wanted
_FLOOR = 0.25  # of the edge: no direction is taken to be weaker, since a white one would then fill every person
_KEPT = 0.3  # at least this much of a direction is taken to be real
_STEPS, _STEP_LOOKS = 8, 2  # to a spectrum without noise, and looks that are played in each
_LOOKS, _NUMBERS = (4, 20), 2_000_000  # looks played again: the more, the fewer dimensions there are


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Public linear coordinates: rows x have coordinates x @ `projection`, and c stands for `reconstruction` @ c.

    Both are columns x k.
    """

    projection: Floats
    reconstruction: Floats
    whole: bool = False  # whether they are the columns themselves

    @classmethod
    def all(cls, columns: int) -> Coordinates:
        """The columns themselves."""
        return cls(np.eye(columns), np.eye(columns), whole=True)

    @classmethod
    def of(cls, basis: Floats) -> Coordinates:
        """The coordinates in the span of a basis, whatever its columns are."""
        orthonormal = np.linalg.qr(basis)[0]
        return cls(orthonormal, orthonormal)

    def then(self, projection: Floats, reconstruction: Floats) -> Coordinates:
        """Coordinates within these."""
        if self.whole:
            return Coordinates(projection, reconstruction)
        return Coordinates(self.projection @ projection, self.reconstruction @ reconstruction)


def noise_edge(order: int, noise: float) -> float:
    """Where the eigenvalues of noise alone end, in the limit: Wigner's semicircle."""
    return noise * math.sqrt(2 * order)


def matrix_edge(columns: int, noise: float) -> float:
    """What the largest eigenvalue of pure noise in isometric coordinates passes about once in 100 000 releases.

    The semicircle ends at noise sqrt(2 columns); beyond it the largest eigenvalue follows Tracy and Widom's law.
    """
    return float(noise * np.sqrt(2 * columns) * (1 + 3 * columns ** (-2 / 3)))


def product_edge(columns: int, width: int, noise: float) -> float:
    """What the largest singular value of a product that is pure noise passes once in 270 000 releases.

    By Gaussian concentration.
    """
    return float(noise * (np.sqrt(columns) + np.sqrt(width) + 5))


def debiased(values: Floats, edge: float) -> Floats:
    """Eigenvalues without what noise adds: l above the edge e of pure noise came from (l + sqrt(l^2 - e^2))/2."""
    return np.asarray((values + np.sqrt(np.maximum(values**2 - edge**2, 0))) / 2)


def signs(vectors: Floats) -> Floats:
    """What makes the largest entry of each column positive: 1 or -1 for each."""
    largest = np.argmax(np.abs(vectors), axis=0)
    return np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)


def first_basis(columns: int, width: int, seed: int) -> Floats:
    """A public random basis, for subspace iteration to begin with."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(columns, width)))[0]


def subspace_iteration(
    basis: Floats,
    shares: Sequence[float],
    ask: Callable[[Floats, float], PrivateSum],
    read: Callable[[Release, Floats], Floats] | None = None,
) -> Generator[Request, Release, tuple[Floats, Floats, Release]]:
    """Rounds of subspace iteration, each a release of the matrix times the basis so far: the last basis, the singular
    values of the last product, and its release. `read` makes the product of a release and its basis, where the release
    is not that alone."""
    for share in shares:
        release = yield ask(basis, share)
        product = release.value.reshape(basis.shape) if read is None else read(release, basis)
        vectors, values, _right = np.linalg.svd(product, full_matrices=False)
        basis = np.linalg.qr(vectors)[0]
    return basis, values, release


def leading(matrix: Floats, noise: float, count: int, *, shrink: bool) -> Floats:
    """The leading eigenvectors of a noisy symmetric matrix.

    `noise` is the standard deviation in isometric coordinates. With `shrink`, column j is weighed by d^2/(d^2 +
    noise^2), Wiener's filter, where d is its noisy diagonal entry, drawn towards the mean of all as far as their
    spread is noise (James and Stein): columns that hold nothing but noise no longer take part, and columns that are
    alike are weighed alike. That is free post-processing.
    """
    weights = np.ones(len(matrix))
    if shrink and noise > 0:
        diagonal = np.diag(matrix)
        spread = float(np.var(diagonal))
        kept = 1 - noise**2 / spread if spread > noise**2 else 0.0
        signal = np.maximum(np.mean(diagonal) + kept * (diagonal - np.mean(diagonal)), 0) ** 2
        weights = signal / (signal + noise**2) if np.any(signal > 0) else weights
    from scipy.linalg import eigh  # heavy: loaded when it is used

    last = len(matrix) - 1
    weighed = weights[:, None] * matrix * weights[None, :]
    with one_thread():  # SciPy has a BLAS of its own, whose threads would get in the way of NumPy's
        _rising, vectors = eigh(weighed, subset_by_index=(last - count + 1, last), overwrite_a=True, check_finite=False)
    return np.asarray(vectors[:, ::-1])


@dataclass(frozen=True, eq=False)
class Damped:
    """Coordinates for a look, and what the looks before say in them."""

    projection: Floats
    reconstruction: Floats
    known: Floats
    noise: float  # of what is known
    trace: float  # of all that is known, where directions were left out of them too
    most: float  # people's moments are divided by norms that are smaller by this at most

    def scale(self, look: Floats) -> float:
        """How much larger people's moments are in the look than they were before: by its trace, within that."""
        return min(max(1.0, float(np.trace(look)) / max(self.trace, 1e-100)), self.most)


@dataclass(frozen=True, eq=False)
class Looks:
    """What further looks with the same noise would see: of a spectrum as it may be without noise, the strongest vectors
    of each (looks x directions x wanted), what is divided by to make them white, and which share of each of the wanted
    directions lies in these coordinates at all."""

    values: Floats
    vectors: Floats
    roots: Floats
    inside: Floats

    @classmethod
    def exact(cls, values: Floats) -> Looks:
        """Nothing is lost, and all directions are wanted."""
        R = len(values)
        return cls(values, np.eye(R)[None], np.ones((1, R)), np.ones(R))

    @property
    def share(self) -> Floats:
        """Which share of each direction of a look lies in the span that the strongest would have without noise."""
        wanted = self.vectors.shape[2]
        return np.asarray(np.mean(self.inside @ self.vectors[:, :wanted] ** 2, axis=0))


@dataclass(frozen=True, eq=False)
class NoisySpectrum:
    """The eigenvectors (columns, the largest first) of a look, their eigenvalues as released, without what noise adds
    (zero below the edge), what the vectors themselves hold, and which share of each is real (none below the edge)."""

    vectors: Floats
    released: Floats
    values: Floats
    held: Floats
    real: Floats
    edge: float

    @classmethod
    def at(cls, matrix: Floats, noise: float) -> NoisySpectrum:
        """An eigenvalue l above the edge e came from v = (l + sqrt(l^2 - e^2))/2, and of its own direction a noisy
        vector holds the share 1 - e^2/(4 v^2)."""
        released, vectors = np.linalg.eigh(matrix)
        released, vectors = released[::-1], vectors[:, ::-1]
        edge = noise_edge(len(matrix), noise)
        raised = debiased(np.maximum(released, 0.0), edge)
        raised = np.maximum(raised, max(1e-12 * max(float(raised[0]), 1e-100), _FLOOR * edge))
        real = np.where(released > edge, 1 - np.minimum(edge**2 / (4 * raised**2), 1), 0.0)
        values = np.where(released > edge, raised, 0.0)
        return cls(vectors, released, values, raised * np.maximum(real, _KEPT), real, edge)

    def damped(self, wanted: int, count: int | None = None) -> Damped:
        """Coordinates in which stronger directions are brought down to 1.5 times the last of those wanted, or to half
        the edge. Weaker ones stay as they are, so the strongest stay the strongest.

        With `count`, only so many of the strongest are kept. They were chosen by their noise, too, so what is known of
        them is taken to be what the vectors hold, or how far they are above the mean of those kept below the edge.
        """
        cap = max(_DAMPED_TO * self.edge, _ABOVE_THE_LAST * float(self.values[wanted - 1])) or 1.0
        root = np.sqrt(np.maximum(self.values, cap) / cap)
        trace, most = float(np.sum(self.released / root**2)), float(np.max(root)) ** 2
        noise = self.edge / math.sqrt(2 * len(root))
        if count is None or count >= len(root):
            turn = self.vectors.T
            made = [(self.vectors * each) @ turn for each in (1 / root, root, self.released / root**2)]
            return Damped(made[0], made[1], made[2], noise, trace, most)
        vectors, root, released = self.vectors[:, :count], root[:count], self.released[:count]
        below = released[released <= self.edge]
        usual = float(np.mean(below)) if len(below) else self.edge
        known = np.maximum(released - usual, (self.values * self.real)[:count])
        return Damped(vectors / root, vectors * root, np.diag(known / root**2), noise, trace, most)

    def within(self, count: int, strengths: Floats) -> Floats:
        """Which share of directions of these strengths lies in the strongest `count` vectors.

        What noise has moved out of a direction v lies in each vector below the edge by s^2/(v^2 + s^2 - v l) over the
        order, with s half the edge. What lies there by chance always does: the sum says less where more real
        directions than `count` stand above the edge.
        """
        others = np.minimum(self.released[count:], self.edge)
        lost = np.sum(_moved(others, strengths[:, None], self.edge / 2), axis=1) / len(self.vectors)
        return np.asarray(np.maximum(1 - lost, min(count / len(self.vectors), 1.0)))

    def without_noise(self, rng: np.random.Generator) -> Floats:
        """A spectrum to which noise of this size would do what is seen.

        Those above the edge are what they are less the push of those below it, n^2 times the sum of 1/(l - l'), with
        n the standard deviation of the noise off the diagonal. That is exact for many dimensions, whatever lies below.
        They also push each other, but without that push too much would seem lost on average: what is lost falls with
        the distance, ever more slowly. Those below are what looks played again need to have such eigenvalues.
        """
        noise = self.edge / math.sqrt(2 * len(self.vectors))
        above, middle = 0, 0.0
        for _ in range(10):  # noise lies around the middle of what is below its edge
            above = int(np.sum(self.released > middle + self.edge))
            middle = max(float(np.mean(self.released[above:])), 0.0) if above < len(self.released) else 0.0
        pushed = np.sum(1 / (self.released[:above, None] - self.released[None, above:]), axis=1)
        top = np.maximum(self.released[:above] - noise**2 / 2 * pushed, 0.0)
        values = np.concatenate([np.minimum.accumulate(top), np.maximum(self.released[above:], 0.0)])
        most = values[above - 1] if above else math.inf
        for _ in range(_STEPS):
            seen = [np.linalg.eigvalsh(_noisy(values, noise, rng)) for _ in range(_STEP_LOOKS)]
            values[above:] += (self.released - np.mean(seen, axis=0)[::-1])[above:]
            values[above:] = np.clip(np.sort(values[above:])[::-1], 0.0, most)
        return values

    def again(self, wanted: int, rng: np.random.Generator) -> Looks:
        """Looks played again, as if this one's directions were those without noise."""
        order = len(self.vectors)
        if self.edge <= 0:
            return Looks(
                self.values, np.eye(order)[None, :, :wanted], np.sqrt(self.held[None, :wanted]), np.ones(wanted)
            )
        values, noise = self.without_noise(rng), self.edge / math.sqrt(2 * order)
        looks = [
            NoisySpectrum.at(_noisy(values, noise, rng), noise)
            for _ in range(min(max(_NUMBERS // order**2, _LOOKS[0]), _LOOKS[1]))
        ]
        vectors = np.stack([look.vectors[:, :wanted] for look in looks])
        return Looks(values, vectors, np.sqrt([look.held[:wanted] for look in looks]), np.ones(wanted))

    def leading(self, wanted: int) -> tuple[Floats, Floats]:
        """White coordinates of the strongest directions, and back."""
        vectors, root = self.vectors[:, :wanted], np.sqrt(self.held[:wanted])
        return vectors / root, vectors * root


def _noisy(values: Floats, noise: float, rng: np.random.Generator) -> Floats:
    """A diagonal matrix, with noise of this standard deviation in isometric coordinates."""
    drawn = rng.normal(size=(len(values), len(values)))
    return np.asarray(np.diag(values) + noise * (drawn + drawn.T) / 2)


def believed(matrix: Floats, noise: float) -> tuple[float, float, float]:
    """Of a look at coordinates that should be white already: its scale, its noise over that, and which share of what
    is not white noise does not explain (James and Stein).
    """
    R = len(matrix)
    scale = max(float(np.trace(matrix)) / R, noise, 1e-100)
    apart, relative = matrix / scale - np.eye(R), noise / scale
    explained = relative**2 * R * (R + 1) / 2 / max(float(np.sum(apart**2)), 1e-300)
    return scale, relative, max(0.0, 1 - explained)


def refined(matrix: Floats, noise: float) -> tuple[Floats, Floats]:
    """From a look at coordinates that should be white already: what makes them whiter, and what undoes it.

    How far the look is from the identity is believed as far as noise does not explain it.
    """
    R = len(matrix)
    scale, relative, share = believed(matrix, noise)
    values, vectors = np.linalg.eigh(np.eye(R) + share * (matrix / scale - np.eye(R)))
    root = np.sqrt(np.maximum(values, max(_DAMPED_TO * noise_edge(R, relative), 1e-6)))
    return vectors / root, vectors * root


def left_over(matrix: Floats, noise: float) -> float:
    """The variance of the correlations that are left in the coordinates that `refined` makes.

    Of deviations with variance t and noise n, the share t/(t + n) is believed, and t n/(t + n) is left of them: that
    share of the noise. The share is taken to be a standard error larger than it seems.
    """
    _scale, relative, share = believed(matrix, noise)
    numbers = len(matrix) * (len(matrix) + 1) / 2
    return min((share + (1 - share) * math.sqrt(2 / numbers)) * relative**2 / 2, 1.0)


def together(look: Floats, noise: float, damped: Damped) -> tuple[Floats, float]:
    """A look in damped coordinates with what was known before it, and the noise of both; each weighs by its precision.

    Where strong directions are damped, people's moments are divided by smaller norms: what was known is brought to that
    scale, and its noise with it. Both hold the same directions, whatever their weights.
    """
    if noise <= 0 or damped.noise <= 0:
        return look, noise
    scale = damped.scale(look)
    weight = noise**2 / (noise**2 + (scale * damped.noise) ** 2)
    return look + weight * (scale * damped.known - look), noise * math.sqrt(1 - weight)


def best_count(columns: int, wanted: int, strength: float, noise: float, first: float, second: float) -> int:
    """How many directions a first look should leave to a second one, so that most of `strength` is found.

    `first` and `second` are their shares, `noise` that of the whole budget. In fewer dimensions the second look has
    less noise, and people's moments are divided by the norm of what is left of them, so that they are as strong there
    as they were; but what lies in the others is lost. With weak directions that is worth it, since the vectors near
    the edge hold most of them. With strong ones it is not.
    """
    if noise <= 0:
        return columns
    counts, half = np.arange(1, columns + 1), noise * math.sqrt(columns / (2 * first))
    at = np.linspace(-1, 1, 4001)
    below = 0.5 + (at * np.sqrt(1 - at**2) + np.arcsin(at)) / math.pi  # Wigner's semicircle
    values = 2 * half * np.interp(1 - (counts - 0.5) / columns, below, at)
    held = max(0.0, 1 - (half / strength) ** 2) + np.cumsum(_moved(values, strength, half)) / columns
    turned = noise**2 * counts / (2 * strength**2 * (first * held**2 + second))
    found = held * np.maximum(1 - turned, 0.0)
    most = counts[found > (1 - 1e-9) * np.max(found)]  # none, where nothing can be found
    return max(int(most[-1]) if len(most) else 1, min(2 * wanted, columns))


def _moved(values: Floats, strength: float | Floats, half: float) -> Floats:
    """What a noisy eigenvector below the edge holds of a direction of some strength, times their number."""
    return np.asarray(half**2 / np.maximum(strength**2 + half**2 - strength * values, 1e-9 * half**2 + 1e-300))
