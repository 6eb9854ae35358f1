"""Spectra of noisy second moments, for PCA, ICA and mixtures: edges of the noise, components, white coordinates.

Everything here is post-processing of releases and costs no privacy, except that `subspace_iteration` yields the
requests that its caller makes.

Model
-----
One release is A + E. A (D x D) is the sum over units of their second-moment matrices, each divided by its norm or by a
clip. E is symmetric normal noise with standard deviation s in isometric coordinates (`kernel.coordinates`): s on the
diagonal, s/sqrt(2) off the diagonal. For large D:

- The eigenvalues of E fill a semicircle of radius e = s sqrt(2 D), the edge (Wigner). The largest one fluctuates around
  e by the Tracy-Widom law: it is e (1 + X/(2 D^(2/3))) with X of order 1.
- An eigenvalue x > e/2 of A appears in A + E at l = x + e^2/(4 x) > e. Its eigenvector in A + E has the squared cosine
  1 - e^2/(4 x^2) with the one in A. So x = (l + sqrt(l^2 - e^2))/2 (`debiased`).
- An eigenvalue x < e/2 of A has no visible counterpart (phase transition).
- An eigenvector of A + E in the bulk, with eigenvalue l, has the mean squared cosine r^2/(x^2 + r^2 - x l)/D with an
  eigenvector of A with eigenvalue x, where r = e/2 (`_bulk_overlap`).

A unit's matrix has norm 1 at most, and the leading directions take most of it. A second release therefore takes
coordinates in which the strong directions of the first one are damped (`NoisySpectrum.damp`): each unit's matrix is
divided by a smaller norm, and weak directions gain relative to the noise. `combine_releases` combines both releases.

References
----------
- E. Wigner, On the distribution of the roots of certain symmetric matrices, 1958.
- C. Tracy and H. Widom, On orthogonal and symplectic matrix ensembles, 1996.
- F. Benaych-Georges and R. R. Nadakuditi, The eigenvalues and eigenvectors of finite, low rank perturbations of large
  random matrices, 2011 (x, l and the cosine).
- R. Allez, J. Bun and J.-P. Bouchaud, The eigenvectors of Gaussian matrices with an external source, 2014 (the bulk).
- K. Davidson and S. Szarek, Local operator theory, random matrices and Banach spaces, 2001 (`product_edge`).
- W. James and C. Stein, Estimation with quadratic loss, 1961 (shrinkage).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from zerosum.algorithms.pca.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.compute.threads import one_thread
from zerosum.kernel.request import PrivateSum, Release, Request


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Public linear coordinates of rows: c = x @ `projection` and back, x = `reconstruction` @ c."""

    projection: Floats  # D x k
    reconstruction: Floats  # D x k
    whole: bool = False  # whether both are the identity, so that products with them can be left out

    @classmethod
    def all(cls, columns: int) -> Coordinates:
        """The identity: the coordinates are the columns."""
        return cls(np.eye(columns), np.eye(columns), whole=True)

    @classmethod
    def of(cls, basis: Floats) -> Coordinates:
        """Orthonormal coordinates in the span of `basis` (D x k, linearly independent columns)."""
        orthonormal = np.linalg.qr(basis)[0]
        return cls(orthonormal, orthonormal)

    def then(self, projection: Floats, reconstruction: Floats) -> Coordinates:
        """Compose: coordinates of these coordinates.

        Parameters
        ----------
        projection, reconstruction : array of shape (k, m)
            Coordinates of vectors in these coordinates.
        """
        if self.whole:
            return Coordinates(projection, reconstruction)
        return Coordinates(self.projection @ projection, self.reconstruction @ reconstruction)


def noise_edge(order: int, noise: float) -> float:
    """The edge e = s sqrt(2 D): the largest eigenvalue of pure noise in the limit of large D. `order` is D."""
    return noise * math.sqrt(2 * order)


def matrix_edge(columns: int, noise: float) -> float:
    """A limit that the largest eigenvalue of pure noise exceeds less than once in 100 000 releases.

    The limit is e (1 + 3 D^(-2/3)), which is X = 6 in the Tracy-Widom law (`TUNING.matrix_edge_margin`).

    Parameters
    ----------
    columns : int
        D.
    noise : float
        s, in isometric coordinates.
    """
    return float(noise * np.sqrt(2 * columns) * (1 + TUNING.matrix_edge_margin * columns ** (-2 / 3)))


def product_edge(columns: int, width: int, noise: float) -> float:
    """A limit that the largest singular value of a noise matrix exceeds at most once in 270 000 releases.

    The entries are independent and normal. By Gaussian concentration the probability to exceed sqrt(columns) +
    sqrt(width) + t is at most exp(-t^2/2); t is `TUNING.product_edge_margin`.

    Parameters
    ----------
    columns, width : int
        Shape of the noise matrix.
    noise : float
        Standard deviation of an entry.
    """
    return float(noise * (np.sqrt(columns) + np.sqrt(width) + TUNING.product_edge_margin))


def debiased(values: Floats, edge: float) -> Floats:
    """Invert l = x + e^2/(4 x): the eigenvalue x of A that appears at l in A + E.

    Below the edge the equation has no solution; half of l is returned, and callers replace it.

    Parameters
    ----------
    values : array
        l, eigenvalues of a release.
    edge : float
        e of that release.
    """
    # The root of a negative number is replaced by 0, for values below the edge.
    return np.asarray((values + np.sqrt(np.maximum(values**2 - edge**2, 0))) / 2)


def signs(vectors: Floats) -> Floats:
    """The sign (1 or -1) that makes the largest entry of each column of `vectors` positive, of shape (k,)."""
    largest = np.argmax(np.abs(vectors), axis=0)
    return np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)


def first_basis(columns: int, width: int, seed: int) -> Floats:
    """A random orthonormal basis (`columns` x `width`) from a public seed, the start of subspace iteration."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(columns, width)))[0]


def subspace_iteration(
    basis: Floats,
    shares: Sequence[float],
    ask: Callable[[Floats, float], PrivateSum],
    read: Callable[[Release, Floats], Floats] | None = None,
) -> Generator[Request, Release, tuple[Floats, Floats, Release]]:
    """Noisy subspace iteration: each round releases A Q for the current basis Q and orthonormalises the result.

    Parameters
    ----------
    basis : ndarray of shape (D, width)
        The first Q, public, with orthonormal columns.
    shares : sequence of float
        Share of the budget of each round; not empty.
    ask : callable
        Makes the request of a round from Q and its share.
    read : callable, optional
        Makes A Q, of shape (D, width), from a release and its Q, where the release holds more than A Q.

    Returns
    -------
    tuple
        The last basis (D x width, in falling order of the singular values), the singular values of the last product, of
        shape (width,), and the last release.
    """
    for share in shares:
        release = yield ask(basis, share)
        product = release.value.reshape(basis.shape) if read is None else read(release, basis)
        # The left singular vectors span the product and order it. With Q close to eigenvectors, the singular values of
        # A Q are close to the eigenvalues.
        vectors, values, _right = np.linalg.svd(product, full_matrices=False)
        # The statistic refuses a basis that is not orthonormal to 1e-9; QR removes the rounding of the decomposition.
        basis = np.linalg.qr(vectors)[0]
    return basis, values, release


def leading_vectors(matrix: Floats, noise: float, count: int, *, shrink: bool) -> Floats:
    """The leading eigenvectors of a noisy symmetric matrix.

    Parameters
    ----------
    matrix : ndarray of shape (D, D)
        The released matrix A + E.
    noise : float
        s, in isometric coordinates.
    count : int
        The number of eigenvectors.
    shrink : bool
        Whether column j is multiplied by d_j^2/(d_j^2 + s^2), Wiener's filter, before the decomposition. d_j is the
        estimated diagonal entry of A. Columns without signal then add no noise to the eigenvectors.

    Returns
    -------
    ndarray of shape (D, count)
        Orthonormal vectors, the largest eigenvalue first.
    """
    weights = np.ones(len(matrix))
    if shrink and noise > 0:
        diagonal = np.diag(matrix)
        # Each diagonal entry has the noise s. Entries are shrunk towards their mean by the share of their variance that
        # noise explains (James and Stein), so that equal columns get equal weights.
        spread = float(np.var(diagonal))
        share = 1 - noise**2 / spread if spread > noise**2 else 0.0
        signal = np.maximum(np.mean(diagonal) + share * (diagonal - np.mean(diagonal)), 0) ** 2
        weights = signal / (signal + noise**2) if np.any(signal > 0) else weights
    from scipy.linalg import eigh  # a slow import, so it is left until it is needed

    # SciPy computes the last `count` eigenvectors only, which NumPy cannot. Eigenvalues come in rising order.
    last = len(matrix) - 1
    weighed = weights[:, None] * matrix * weights[None, :]
    # SciPy has a BLAS of its own, whose threads would compete with those of NumPy's.
    with one_thread():
        _rising, vectors = eigh(weighed, subset_by_index=(last - count + 1, last), overwrite_a=True, check_finite=False)
    return np.asarray(vectors[:, ::-1])


@dataclass(frozen=True, eq=False)
class DampedCoordinates:
    """Coordinates for the next release, and the earlier release expressed in them."""

    projection: Floats  # D x k, as in `Coordinates`
    reconstruction: Floats  # D x k
    known: Floats  # k x k, the earlier release in these coordinates
    noise: float  # s of the earlier release
    trace: float  # trace of the earlier release in damped coordinates, with the directions that were left out
    most: float  # largest factor by which damping can reduce the norm of a unit's matrix

    def scale(self, matrix: Floats) -> float:
        """The factor by which units weigh more in the release `matrix` (k x k) than in the earlier one.

        A damped matrix has a smaller norm, and normalising divides by it. The ratio of the traces estimates the factor;
        it is at least 1 and at most `most`.
        """
        return min(max(1.0, float(np.trace(matrix)) / max(self.trace, 1e-100)), self.most)


@dataclass(frozen=True, eq=False)
class ReplayedSpectra:
    """Simulated releases with the noise of a real one, in the basis of the estimated noise-free eigenvectors."""

    values: Floats  # (directions), the estimated spectrum without noise, falling
    vectors: Floats  # (simulations x directions x wanted), the leading eigenvectors of each simulation
    roots: Floats  # (simulations x wanted), the divisors that make the coordinates white
    inside: Floats  # (wanted), the share of each wanted direction that lies in these coordinates at all

    @classmethod
    def exact(cls, values: Floats) -> ReplayedSpectra:
        """One simulation without noise, for known eigenvalues `values` of shape (R,), all of them wanted."""
        R = len(values)
        return cls(values, np.eye(R)[None], np.ones((1, R)), np.ones(R))

    @property
    def share(self) -> Floats:
        """Mean share of each simulated vector that lies in the span of the wanted noise-free vectors, of shape
        (wanted,).

        In this basis the noise-free vectors are unit vectors, so squared entries are squared cosines.
        """
        wanted = self.vectors.shape[2]
        return np.asarray(np.mean(self.inside @ self.vectors[:, :wanted] ** 2, axis=0))


@dataclass(frozen=True, eq=False)
class NoisySpectrum:
    """Eigendecomposition of a release, with the effect of the noise on eigenvalues and eigenvectors."""

    vectors: Floats  # (D x D), one eigenvector a column, the largest eigenvalue first
    noisy_values: Floats  # (D), l: eigenvalues of A + E, falling
    values: Floats  # (D), x: estimated eigenvalues of A; 0 where l is below the edge
    forms: Floats  # (D), estimated value of v'A v along the noisy vector v; positive, to be divided by
    cosines: Floats  # (D), squared cosine of a noisy vector with its own direction; 0 where l is below the edge
    edge: float  # e

    @classmethod
    def from_release(cls, matrix: Floats, noise: float) -> NoisySpectrum:
        """Decompose a release. The formulas are in the module's model.

        Parameters
        ----------
        matrix : array of shape (D, D)
            A + E, symmetric.
        noise : float
            s, in isometric coordinates.
        """
        released, vectors = np.linalg.eigh(matrix)
        released, vectors = released[::-1], vectors[:, ::-1]
        edge = noise_edge(len(matrix), noise)
        raised = debiased(np.maximum(released, 0.0), edge)
        # The lower limit keeps divisors positive: 1e-12 of the largest eigenvalue without noise,
        # `TUNING.eigenvalue_floor` e with noise.
        raised = np.maximum(raised, max(1e-12 * max(float(raised[0]), 1e-100), TUNING.eigenvalue_floor * edge))
        real = np.where(released > edge, 1 - np.minimum(edge**2 / (4 * raised**2), 1), 0.0)
        values = np.where(released > edge, raised, 0.0)
        return cls(vectors, released, values, raised * np.maximum(real, TUNING.cosine_floor), real, edge)

    def damp(self, wanted: int, count: int | None = None) -> DampedCoordinates:
        """Coordinates for a second release in which strong directions are damped.

        Parameters
        ----------
        wanted : int
            The number of components.
        count : int, optional
            Keep this many of the strongest directions only; all by default.
        """
        # Eigenvalues above the cap are reduced to it, others stay. So the strongest directions remain the strongest. An
        # empty matrix without noise has the cap 0, which would divide by zero.
        cap = max(TUNING.damping_size * self.edge, TUNING.damping_margin * float(self.values[wanted - 1])) or 1.0
        root = np.sqrt(np.maximum(self.values, cap) / cap)
        trace, most = float(np.sum(self.noisy_values / root**2)), float(np.max(root)) ** 2
        noise = self.edge / math.sqrt(2 * len(root))
        if count is None or count >= len(root):
            # Symmetric roots V f V', so that the new coordinates keep the meaning of the columns.
            turn = self.vectors.T
            matrices = [(self.vectors * each) @ turn for each in (1 / root, root, self.noisy_values / root**2)]
            return DampedCoordinates(matrices[0], matrices[1], matrices[2], noise, trace, most)
        vectors, root, released = self.vectors[:, :count], root[:count], self.noisy_values[:count]
        # The retained directions were selected for their noise too, so their eigenvalues are too large on average. The
        # mean of the retained eigenvalues below the edge estimates that excess. Above the edge x times the cosine is
        # used.
        below = released[released <= self.edge]
        usual = float(np.mean(below)) if len(below) else self.edge
        known = np.maximum(released - usual, (self.values * self.cosines)[:count])
        return DampedCoordinates(vectors / root, vectors * root, np.diag(known / root**2), noise, trace, most)

    def span_share(self, count: int, strengths: Floats) -> Floats:
        """The share of directions with eigenvalues `strengths` that lies in the span of the strongest `count` vectors.

        The share in each of the other vectors is the formula for the bulk (`_bulk_overlap`), and their sum is lost. A
        random direction has the share `count`/D, which is the lower limit: the formula gives less if more than `count`
        eigenvalues exceed the edge. Returns an array of the shape of `strengths`.

        Parameters
        ----------
        count : int
            Number of the strongest vectors.
        strengths : array
            x, eigenvalues in the scale of this release.
        """
        # The formula holds up to the edge; eigenvalues beyond it are treated as if they were at the edge.
        others = np.minimum(self.noisy_values[count:], self.edge)
        lost = np.sum(_bulk_overlap(others, strengths[:, None], self.edge / 2), axis=1) / len(self.vectors)
        return np.asarray(np.maximum(1 - lost, min(count / len(self.vectors), 1.0)))

    def estimate_spectrum(self, rng: np.random.Generator) -> Floats:
        """Estimate the spectrum of A: the one that, with this noise, gives the released eigenvalues. Of shape (D,).

        - Above the edge: x = l - (s^2/2) times the sum over the bulk of 1/(l - l'), the repulsion by the eigenvalues l'
          of the bulk (s^2/2 is the variance off the diagonal). It is exact for large D, whatever the bulk is. The
          repulsion among the large eigenvalues is left out: with it, too much energy would seem lost on average,
          because the loss is a convex function of the distance.
        - In the bulk: a fixed-point iteration. Releases are simulated from the current estimate, and the difference
          between the released and the simulated eigenvalues is added to it.
        """
        noise = self.edge / math.sqrt(2 * len(self.vectors))
        above, middle = 0, 0.0
        # The bulk is a semicircle around the mean eigenvalue of the bulk, which depends on where the bulk ends. Ten
        # iterations are ample: the number above the edge is an integer that settles after a few.
        for _ in range(10):
            above = int(np.sum(self.noisy_values > middle + self.edge))
            middle = max(float(np.mean(self.noisy_values[above:])), 0.0) if above < len(self.noisy_values) else 0.0
        pushed = np.sum(1 / (self.noisy_values[:above, None] - self.noisy_values[None, above:]), axis=1)
        top = np.maximum(self.noisy_values[:above] - noise**2 / 2 * pushed, 0.0)
        # Eigenvalues near the edge are repelled most, which may invert their order; the minimum restores it.
        values = np.concatenate([np.minimum.accumulate(top), np.maximum(self.noisy_values[above:], 0.0)])
        most = values[above - 1] if above else math.inf
        for _ in range(TUNING.spectrum_steps):
            simulated = [
                np.linalg.eigvalsh(_simulate_release(values, noise, rng)) for _ in range(TUNING.spectrum_simulations)
            ]
            values[above:] += (self.noisy_values - np.mean(simulated, axis=0)[::-1])[above:]
            # A is positive semidefinite, and the bulk stays below the eigenvalues above the edge.
            values[above:] = np.clip(np.sort(values[above:])[::-1], 0.0, most)
        return values

    def replay(self, wanted: int, rng: np.random.Generator) -> ReplayedSpectra:
        """Simulate further releases, as if the vectors of this one were those of A.

        Parameters
        ----------
        wanted : int
            Number of leading vectors to record.
        rng : Generator
            With a public seed: the result is a function of the release.
        """
        order = len(self.vectors)
        if self.edge <= 0:
            return ReplayedSpectra(
                self.values, np.eye(order)[None, :, :wanted], np.sqrt(self.forms[None, :wanted]), np.ones(wanted)
            )
        values, noise = self.estimate_spectrum(rng), self.edge / math.sqrt(2 * order)
        spectra = [
            NoisySpectrum.from_release(_simulate_release(values, noise, rng), noise)
            for _ in range(min(max(TUNING.replay_entries // order**2, TUNING.replay_least), TUNING.replay_most))
        ]
        vectors = np.stack([spectrum.vectors[:, :wanted] for spectrum in spectra])
        return ReplayedSpectra(
            values, vectors, np.sqrt([spectrum.forms[:wanted] for spectrum in spectra]), np.ones(wanted)
        )

    def white_coordinates(self, wanted: int) -> tuple[Floats, Floats]:
        """White coordinates of the `wanted` strongest directions: projection and reconstruction, each D x wanted."""
        vectors, root = self.vectors[:, :wanted], np.sqrt(self.forms[:wanted])
        return vectors / root, vectors * root


def _simulate_release(values: Floats, noise: float, rng: np.random.Generator) -> Floats:
    """A simulated release: diag(`values`) plus noise of standard deviation s = `noise` in isometric coordinates.

    Parameters
    ----------
    values : array of shape (R,)
        Diagonal of the matrix without noise.
    noise : float
        s.
    rng : Generator
        Source of the simulated noise.
    """
    drawn = rng.normal(size=(len(values), len(values)))
    # (G + G')/2 has variance 1 on the diagonal and 1/2 off it, as isometric coordinates have.
    return np.asarray(np.diag(values) + noise * (drawn + drawn.T) / 2)


def compare_with_identity(matrix: Floats, noise: float) -> tuple[float, float, float]:
    """Compare a release with a multiple of the identity.

    Parameters
    ----------
    matrix : array of shape (R, R)
        A release in nearly white coordinates.
    noise : float
        Its s.

    Returns
    -------
    scale, relative, share : float
    """
    R = len(matrix)
    # The scale is at least the noise: a smaller trace is not distinguishable from zero.
    scale = max(float(np.trace(matrix)) / R, noise, 1e-100)
    apart, relative = matrix / scale - np.eye(R), noise / scale
    # Pure noise has a squared Frobenius norm of s^2 for each of the R (R + 1)/2 isometric coordinates.
    explained = relative**2 * R * (R + 1) / 2 / max(float(np.sum(apart**2)), 1e-300)
    return scale, relative, max(0.0, 1 - explained)


def whiten_again(matrix: Floats, noise: float) -> tuple[Floats, Floats]:
    """Whiten again: projection and reconstruction (each R x R) from a second release in nearly white coordinates.

    The deviation from the identity is multiplied by the share that noise does not explain, and the result is inverted.

    Parameters
    ----------
    matrix : array of shape (R, R)
        A release in nearly white coordinates.
    noise : float
        Its s.
    """
    R = len(matrix)
    scale, relative, share = compare_with_identity(matrix, noise)
    values, vectors = np.linalg.eigh(np.eye(R) + share * (matrix / scale - np.eye(R)))
    # An eigenvalue below the noise must not be inverted: its direction would dominate each unit's matrix.
    root = np.sqrt(np.maximum(values, max(TUNING.damping_size * noise_edge(R, relative), 1e-6)))
    return vectors / root, vectors * root


def correlation_variance(matrix: Floats, noise: float) -> float:
    """Variance of the correlations that remain after `whiten_again`.

    For deviations of variance t under noise of variance n, the share t/(t + n) is used, and the variance that remains
    is t n/(t + n): the share times n. Off the diagonal n is s^2/2. The share is estimated; one standard error is added
    to it, so that the result is not too optimistic.

    Parameters
    ----------
    matrix : array of shape (R, R)
        A release in nearly white coordinates.
    noise : float
        Its s.
    """
    _scale, relative, share = compare_with_identity(matrix, noise)
    numbers = len(matrix) * (len(matrix) + 1) / 2
    return min((share + (1 - share) * math.sqrt(2 / numbers)) * relative**2 / 2, 1.0)


def combine_releases(second: Floats, noise: float, damped: DampedCoordinates) -> tuple[Floats, float]:
    """Combine a release in damped coordinates with the earlier release, each weighted by its precision.

    Parameters
    ----------
    second : ndarray of shape (k, k)
        The second release.
    noise : float
        s of the second release.
    damped : DampedCoordinates
        The coordinates and the earlier release in them.

    Returns
    -------
    tuple
        The combined matrix (k x k) and its s.
    """
    # Without noise the second release is exact and needs no help.
    if noise <= 0 or damped.noise <= 0:
        return second, noise
    # Units weigh more in damped coordinates. The earlier release is multiplied by that factor, and its noise too. Its
    # noise is smaller along damped directions; the undamped value is used for all, which gives it too little weight.
    scale = damped.scale(second)
    weight = noise**2 / (noise**2 + (scale * damped.noise) ** 2)
    return second + weight * (scale * damped.known - second), noise * math.sqrt(1 - weight)


def best_count(columns: int, wanted: int, strength: float, noise: float, first: float, second: float) -> int:
    """The number of directions that a first release should leave to a second one.

    In fewer dimensions the second release has a smaller edge, and units keep their weight, since each is divided by the
    norm of its projection. But what lies in the other directions is lost. Fewer dimensions pay for weak directions,
    most of which lie in the vectors near the edge, not for strong ones.

    Parameters
    ----------
    columns : int
        D.
    wanted : int
        The number of components; at least twice as many directions are retained.
    strength : float
        x, the assumed eigenvalue of the weakest wanted direction.
    noise : float
        s of a release that takes the whole budget.
    first, second : float
        Shares of the two releases.
    """
    if noise <= 0:
        return columns
    # `half` is r = e/2 of the first release: e = s sqrt(2 D/first).
    counts, half = np.arange(1, columns + 1), noise * math.sqrt(columns / (2 * first))
    # Expected eigenvalues of the noise, falling: quantiles of Wigner's semicircle, by its distribution function.
    at = np.linspace(-1, 1, 4001)
    below = 0.5 + (at * np.sqrt(1 - at**2) + np.arcsin(at)) / math.pi
    values = 2 * half * np.interp(1 - (counts - 0.5) / columns, below, at)
    # Share of the direction inside the strongest k vectors: its own noisy vector, if x > r, and parts of the bulk.
    shares = max(0.0, 1 - (half / strength) ** 2) + np.cumsum(_bulk_overlap(values, strength, half)) / columns
    # Loss by the noise of both releases together in k dimensions: e^2/(4 x^2) with e^2 = 2 k s^2/precision.
    loss = noise**2 * counts / (2 * strength**2 * (first * shares**2 + second))
    energies = shares * np.maximum(1 - loss, 0.0)
    # The largest of equally good counts. If nothing can be found, `found` is zero, none passes and the limit decides.
    most = counts[energies > (1 - 1e-9) * np.max(energies)]
    return max(int(most[-1]) if len(most) else 1, min(TUNING.direction_ratio * wanted, columns))


def _bulk_overlap(values: Floats, strength: float | Floats, half: float) -> Floats:
    """D times the mean squared cosine between a bulk eigenvector of A + E and an eigenvector of A.

    r^2/(x^2 + r^2 - x l) for the symbols of the module docstring; the arrays are broadcast.

    Parameters
    ----------
    values : array
        l, eigenvalues of the release inside the bulk.
    strength : float or array
        x, an eigenvalue of A.
    half : float
        r, half the edge.
    """
    # The denominator is zero at l = e = 2 r and x = r only.
    return np.asarray(half**2 / np.maximum(strength**2 + half**2 - strength * values, 1e-9 * half**2 + 1e-300))
