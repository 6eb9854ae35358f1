"""The centre of the rows and the clip of PCA, from releases of augmented rows and histograms of norms.

Everything here is post-processing of releases and costs no privacy. `program` makes the requests.

Symbols
-------
D
    Number of columns; K is the number of components, n the number of units.
z (D)
    A row less a public point (the current centre), divided by the public scale.
a
    The lift: a public constant that is appended to each row as a last column, u = (z, a).
w_i
    Weight of unit i. Its matrix, the mean of u u' over its rows, is divided by max(c, its Frobenius norm), with c the
    clip. Its norm is then at most 1, so replacing a unit moves the sum by at most sqrt(2).
s
    Standard deviation of the noise in isometric coordinates (`kernel.coordinates`). A diagonal entry of the matrix has
    the standard deviation s, an entry off the diagonal s/sqrt(2).

Model
-----
One release is the sum over units of w_i u u', plus noise. It has three blocks::

    [ M   v ]     M (D x D): sum of w z z'      v (D): sum of w a z (cross block)
    [ v'  W ]     W (number): sum of w a^2 (corner)

- The weighted mean of z is a v/W. The centre moves there if v is clear of the noise (`AugmentedMoments.mean_offset`).
- M - v v'/W, the Schur complement of W, is the second moment about the weighted mean
  (`AugmentedMoments.centred_matrix`). An error of the centre is therefore subtracted, and does not appear as a
  component.
- The clip is a quantile of the released norms, chosen by the predicted loss of energy (`choose_clip`).
- A component counts as found if its eigenvalue exceeds the edge of the noise and the edge of the Marchenko-Pastur law
  of isotropic units (`count_components`, `count_product_components`).

The edge of the noise alone is e = s sqrt(2 D) (Wigner's semicircle, see `spectrum`).

References
----------
- W. James and C. Stein, Estimation with quadratic loss, 1961 (shrinkage of v).
- V. Marchenko and L. Pastur, Distribution of eigenvalues for some sets of random matrices, 1967 (isotropic units).
- C. Tracy and H. Widom, On orthogonal and symplectic matrix ensembles, 1996 (largest eigenvalue of noise).
- docs/pca.md describes the releases and has the benchmark (`benchmarks/heldout.py`).

Tuned constants are in `tuning`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerosum.algorithms.histogram import nearest_probabilities
from zerosum.algorithms.pca.spectrum import debiased, noise_edge
from zerosum.algorithms.pca.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.compute.threads import one_thread
from zerosum.kernel import coordinates

# Riemann zeta(1.5) = sum over k of k^-1.5, which makes the assumed spectrum add up to the number of units. It belongs
# to `TUNING.spectrum_exponent`.
ZETA = 2.612


@dataclass(frozen=True, eq=False)
class AugmentedMoments:
    """One release of augmented rows, split into its blocks (see the module's model).

    Attributes
    ----------
    matrix : ndarray of shape (D, D)
        M, the noisy second moment about the point at which the release was taken; of shape (0, 0) if only the last
        column was released.
    cross : ndarray of shape (D,)
        v, the noisy sum of w a z.
    corner : float
        W, the noisy sum of w a^2.
    noise : float
        s, the standard deviation of the noise in isometric coordinates. Each entry of `cross` has variance s^2/2.
    """

    matrix: Floats
    cross: Floats
    corner: float
    noise: float

    @classmethod
    def from_release(cls, released: Floats, columns: int, noise: float) -> AugmentedMoments:
        """Split a release of the whole matrix.

        Parameters
        ----------
        released : array of shape ((D + 1) (D + 2)/2,)
            Isometric coordinates of a symmetric matrix of order D + 1.
        columns : int
            D.
        noise : float
            Standard deviation of each coordinate.
        """
        whole = coordinates.unpack(released, columns + 1)
        return cls(whole[:-1, :-1], whole[:-1, -1], float(whole[-1, -1]), noise)

    @classmethod
    def from_column(cls, released: Floats, columns: int, noise: float) -> AugmentedMoments:
        """Split a release of the last column alone.

        The matrix is empty. `centred_matrix`, `edge` and `count_above_noise` must not be called on such a release.

        Parameters
        ----------
        released : array of shape (D + 1,)
            v, then W.
        columns : int
            D.
        noise : float
            Standard deviation of each entry.
        """
        # The class has variance s^2/2 in each entry of v, so s is sqrt(2) times the noise of an entry here. The noise
        # of the corner is then overstated by sqrt(2), which only makes the tests of the corner stricter.
        return cls(np.empty((0, 0)), released[:columns], float(released[columns]), math.sqrt(2) * noise)

    @property
    def _shrinkage(self) -> float:
        """The factor k in [0, 1] by which v is shrunk: 1 - D (s^2/2)/|v|^2, or 0 if that is negative.

        James and Stein's estimator with D instead of D - 2 in the numerator.
        """
        square = float(self.cross @ self.cross)
        return max(0.0, 1 - len(self.cross) * self.noise**2 / 2 / square) if square > 0 else 0.0

    def mean_offset(self, lift: float) -> Floats:
        """The weighted mean of z, shrunk: k a v/W, of shape (D,), in scaled units. `lift` is a.

        Zero if the mean is not significant. The caller adds the result to the centre of this release.
        """
        columns = len(self.cross)
        # Pure noise gives |v|^2 = (s^2/2) chi^2_D, with mean D s^2/2 and relative deviation sqrt(2/D). The
        # limit is `mean_significance` deviations above. W is a denominator, so it must also be clear of its own noise.
        chance = columns * self.noise**2 / 2 * (1 + TUNING.mean_significance * math.sqrt(2 / columns))
        if not (self.corner > TUNING.corner_significance * self.noise and float(self.cross @ self.cross) > chance):
            return np.zeros(columns)
        return self._shrinkage * lift / self.corner * self.cross

    def centred_matrix(self, *, exact: bool = False) -> Floats:
        """The second moment about the weighted mean, M - k^2 v v'/W, of shape (D, D).

        With `exact` k is 1, which gives the exact Schur complement. Counting components needs that form: a remainder
        of the mean could pass for a component. The shrunk form has less noise and is used for the components
        themselves.
        """
        # Without a reliable denominator nothing is subtracted, as in `mean_offset`.
        if not self.corner > TUNING.corner_significance * self.noise:
            return self.matrix
        shrinkage = 1.0 if exact else self._shrinkage
        part = np.outer(shrinkage**2 / self.corner * self.cross, self.cross)
        return np.subtract(self.matrix, part, out=part)

    def centred_product(self, product: Floats, basis: Floats) -> Floats:
        """`centred_matrix` for the subspace solver: M Q - k^2 v (v'Q)/W.

        Parameters
        ----------
        product : array of shape (D, width)
            M Q; M itself is not known.
        basis : array of shape (D, width)
            Q.
        """
        if not self.corner > TUNING.corner_significance * self.noise:
            return product
        return np.asarray(product - self._shrinkage**2 / self.corner * np.outer(self.cross, self.cross @ basis))

    @property
    def tilt(self) -> float:
        """|t| with t = v/W: the distance from the centre of this release to the weighted mean, in units of the lift a.

        The correction multiplies the noise of v by t, so a large tilt makes the corrected matrix noisier (`edge`).
        """
        return (
            float(np.linalg.norm(self.cross)) / self.corner
            if self.corner > TUNING.corner_significance * self.noise
            else 0.0
        )

    @property
    def edge(self) -> float:
        """The largest eigenvalue that noise has in the fully corrected matrix, in the limit of large D.

        To first order the noise of M - v v'/W is [I, -t] E [I, -t]', with E the noise of the release. In an orthonormal
        basis that contains t/|t|, this is a Wigner matrix in which one row and column are multiplied by
        sqrt(1 + |t|^2). An outlier appears if |t| > 1. It solves x = (1 + |t|^2) (x - sqrt(x^2 - e^2))/2, so
        x = e (|t| + 1/|t|)/2, with e the edge of the semicircle.
        """
        more = max((self.tilt + 1 / self.tilt) / 2, 1.0) if self.tilt > 1 else 1.0
        return more * noise_edge(len(self.matrix), self.noise)

    def replace_last(self, vectors: Floats, mean: Floats) -> Floats:
        """Replace the last component by the direction of the mean, if that captures more.

        Units of different sizes (counts, intensities) vary along their mean, so the mean is a plausible component. A
        direction that does not come from this matrix has a quadratic form with noise of standard deviation s only. An
        eigenvector is selected for its noise as well, and has to exceed the edge e of all eigenvalues.

        Parameters
        ----------
        vectors : ndarray of shape (D, K)
            Orthonormal components, the strongest first. Only the last may be replaced.
        mean : ndarray of shape (D,)
            The direction of the mean, of any length, in scaled units.

        Returns
        -------
        ndarray of shape (D, K)
            `vectors`, or `vectors` with another last column.
        """
        rest, matrix, size = vectors[:, :-1], self.centred_matrix(), float(np.linalg.norm(mean))
        # Two steps of Gram-Schmidt: the second removes what rounding leaves after the first.
        for _ in range(2):
            mean = mean - rest @ (rest.T @ mean)
        left = float(np.linalg.norm(mean))
        # A mean inside the span of the other components adds no direction.
        if not left > 1e-6 * size:
            return vectors
        mean, last = mean / left, vectors[:, -1]
        # `level` is the average eigenvalue: what a random direction holds.
        level, value = float(np.trace(matrix)) / len(matrix), float(mean @ matrix @ mean)
        expected, above = level, float(last @ matrix @ last) - level
        # Expected value along the last component. If its noisy value l exceeds the edge, l came from an eigenvalue x,
        # and the noisy vector has the share 1 - e^2/(4 x^2) of it, which is x - e^2/(4 x) in all (see `spectrum`). If
        # the corner is not clear of its noise, the mean may have caused a large value, and only the level counts.
        if self.corner > TUNING.corner_certainty * self.noise and above > self.edge:
            eigenvalue = float(debiased(np.array(above), self.edge))
            expected += eigenvalue - self.edge**2 / (4 * eigenvalue)
        if not value > max(expected, level + TUNING.mean_direction_significance * self.noise):
            return vectors
        return np.column_stack([rest, mean])

    def count_above_noise(self, most: int) -> int:
        """The number of components, at most `most`, that exceed the noise and the spectrum of isotropic units.

        If the corner is not clear of its noise, the matrix cannot be corrected for the mean. The mean adds a positive
        semidefinite matrix of rank one. By Weyl's interlacing inequalities it adds at most one large eigenvalue, so one
        is subtracted from the count.
        """
        certain = self.corner > TUNING.corner_certainty * self.noise
        values = np.asarray(
            np.linalg.eigvalsh(self.centred_matrix(exact=True) if certain else self.matrix)[::-1], np.float64
        )
        count = count_components(values, self.noise, most + 1, self.tilt if certain else 0.0)
        return min(most, count if certain else max(count - 1, 0))


def count_components(values: Floats, noise: float, most: int, tilt: float = 0.0) -> int:
    """The number of leading eigenvalues that neither noise nor the sampling of isotropic units explains.

    Eigenvalues are tested one after the other. After k accepted ones, d = D - k are left, with the sum T. The null
    hypothesis is T isotropic units of trace 1 in d dimensions, plus noise. Its eigenvalues lie around T/d (1 + d/T)
    (Marchenko and Pastur: T/d (1 +- sqrt(d/T))^2). The last eigenvalue has no others to be compared with, so it only
    has to exceed the noise.

    Parameters
    ----------
    values : ndarray of shape (D,)
        All eigenvalues of a sum of units' matrices, in falling order, in numbers of units.
    noise : float
        s, the standard deviation of the noise in isometric coordinates.
    most : int
        Count no further than this.
    tilt : float
        `AugmentedMoments.tilt` of a matrix that was fully corrected for the mean; 0 for a matrix that was not.

    >>> count_components(np.array([900.0, 100.0]), 1.0, 2), count_components(np.array([500.0, 500.0]), 1.0, 2)
    (2, 0)
    """
    columns = len(values)
    for k in range(min(most, columns)):
        d = columns - k
        # A trace of d noisy diagonal entries has the standard deviation s sqrt(d). An upper limit
        # (`trace_margin` deviations) keeps the test on the safe side.
        trace = max(float(np.sum(values[k:])), 0.0) + TUNING.trace_margin * noise * math.sqrt(d)
        level = trace / d if d > 1 else 0.0
        # Half the width of the spectrum. The semicircle of the noise (s sqrt(2 d)) and the Marchenko-Pastur law
        # (2 T/d sqrt(d/T)) are added in squares, as for two semicircles; that is an approximation.
        end = math.sqrt(2 * d * noise**2 + 4 * level**2 * d / max(trace, 1.0))
        # The correction for the mean may have an outlier of its own, see `AugmentedMoments.edge`.
        if tilt > 1:
            end = max(end, noise * math.sqrt(2 * d) * (tilt + 1 / tilt) / 2)
        # 1 + x d^(-2/3): room for the Tracy-Widom fluctuation of the largest eigenvalue, as in `spectrum.matrix_edge`.
        # The last term is the corner's noise, `tilt_margin` deviations, which the correction multiplies by |t|^2.
        margin = 1 + TUNING.matrix_edge_margin * d ** (-2 / 3)
        chance = level * (1 + d / max(trace, 1.0)) + end * margin + TUNING.tilt_margin * tilt**2 * noise
        if not values[k] > chance:
            return k
    return min(most, columns)


def count_product_components(values: Floats, edge: float, columns: int, units: float) -> int:
    """`count_components` for the subspace solver, which knows the leading values only.

    The trace is not released. The sum of all eigenvalues is at most the number of units, since no unit has a trace
    above 1 where units are single rows; each accepted value is subtracted from it.

    Parameters
    ----------
    values : ndarray of shape (K,)
        Leading singular values of the last product, in falling order.
    edge : float
        Largest singular value of pure noise (`spectrum.product_edge`).
    columns : int
        D.
    units : float
        The number of units; 0 if unknown, which leaves the test against the noise alone.

    >>> count_product_components(np.array([900.0, 30.0]), 10.0, 100, 1000.0)
    2
    >>> count_product_components(np.array([13.0, 12.0]), 1.0, 100, 1000.0)
    0
    """
    left = units
    for k, value in enumerate(values.tolist()):
        # Upper end of the Marchenko-Pastur law: T/d (1 + sqrt(d/T))^2 = (sqrt(T/d) + 1)^2, with d = columns - k.
        chance = (math.sqrt(left / (columns - k)) + 1) ** 2 if left > 0 else 0.0
        if not value > chance + edge:
            return k
        left = max(left - value, 0.0)
    return len(values)


@dataclass(frozen=True, eq=False)
class Norms:
    """Distribution of the Frobenius norms of the units' matrices, from a noisy histogram.

    Attributes
    ----------
    edges : ndarray of shape (bins + 1,)
        Edges of the bins, evenly spaced in the logarithm. A norm is a squared length: of a single row z it is |z|^2.
    shares : ndarray of shape (bins,)
        Fraction of the units in each bin; not negative, sum 1.
    """

    edges: Floats
    shares: Floats

    @classmethod
    def from_counts(cls, edges: Floats, released: Floats, units: float | None) -> Norms:
        """From noisy counts, projected to the simplex, since noise makes some of them negative.

        Parameters
        ----------
        edges : array of shape (bins + 1,)
            Rising edges of the bins of norms.
        released : array of shape (bins,)
            Noisy counts.
        units : float, optional
            n where it is public; else the sum of the noisy counts estimates it.
        """
        count = units if units is not None else float(np.sum(released))
        return cls(edges, nearest_probabilities(released, max(count, 1.0)))

    def quantile(self, q: float) -> float:
        """The norm that the fraction `q` of the units does not exceed, interpolated in the logarithm within a bin."""
        below = np.concatenate([[0.0], np.cumsum(self.shares)])
        # Rounding may leave the sum of the shares just below 1; q = 1 must still fall in a bin.
        below[-1] = max(below[-1], 1.0)
        at = min(int(np.searchsorted(below[1:], q - 1e-12)), len(self.shares) - 1)
        part = min(max((q - below[at]) / max(below[at + 1] - below[at], 1e-12), 0.0), 1.0)
        return float(np.exp(np.log(self.edges[at]) + part * np.log(self.edges[at + 1] / self.edges[at])))

    def mean_contribution(self, clip: float, square: float) -> float:
        """Mean norm of z z' that a unit contributes: the mean over units of r/max(c, r + a^2), with r its norm.

        Of a single row, r + a^2 is exactly the norm of u u'; of several rows it is an upper bound.

        Parameters
        ----------
        clip : float
            c.
        square : float
            a^2.
        """
        # The mean over the norms in a bin has no closed form. Five points per bin, evenly spaced in the logarithm
        # (midpoint rule): r varies by a factor of 1.4 within a bin.
        steps = np.log(self.edges[1:] / self.edges[:-1])[:, None] * np.array([0.1, 0.3, 0.5, 0.7, 0.9])
        inside = np.exp(np.log(self.edges[:-1])[:, None] + steps)
        return float(np.sum(self.shares * np.mean(inside / np.maximum(clip, inside + square), axis=1)))


@dataclass(frozen=True, eq=False)
class CentringResult:
    """Result of the centring rounds."""

    center: Floats  # (D), in the units of the columns
    releases: list[AugmentedMoments]  # the centring releases that hold the whole matrix; if none does, the last release
    contributions: Floats  # for each release that holds the whole matrix: mean fraction of a unit's centred norm in it
    norms: Norms  # norms about `center`
    median: float  # median of `norms`
    units: float  # number of units: public, or the sum of the last histogram


@dataclass(frozen=True)
class ClipChoice:
    """The clip of the main release."""

    clip: float  # c, a Frobenius norm
    quantile: float  # the quantile of the norms that c is; 0 if each unit is divided by its own norm
    contribution: float  # mean norm that a unit contributes at this clip (`Norms.mean_contribution`)
    adds_centring: bool  # whether the centring releases are added to the main one


def choose_clip(
    release: AugmentedMoments,
    norms: Norms,
    square: float,
    small: Floats,
    share: float,
    left: float,
    units: float,
    components: int,
) -> ClipChoice:
    """Choose the clip of the main release: the quantile with the smallest predicted loss of captured energy.

    A loose clip keeps the units' sizes as weights, as in the ordinary second moment. A tight clip makes all units
    equal: this changes the components (`TUNING.normalisation_loss`), but each unit contributes more relative to the
    noise. The predicted loss of an eigenvalue l_k is min(1, (h/(f l_k))^2), with h half the edge of the noise and f the
    mean contribution of a unit. The first-order error of an eigenvector has this form (1 - e^2/(4 x^2) in `spectrum`).

    Parameters
    ----------
    release : AugmentedMoments
        The last centring release. Its spectrum is used if it holds the whole matrix.
    norms : Norms
        Norms about the centre.
    square : float
        a^2 of the main release.
    small : ndarray of shape (number of centring releases with the whole matrix,)
        `CentringResult.contributions`; empty if there is none.
    share : float
        Share of one centring release, where all releases but the histograms have the share 1.
    left : float
        Share of the main release, in the same unit.
    units : float
        n.
    components : int
        K.
    """
    # Without noise there is nothing to gain: the clip is the largest norm, which clips no unit.
    if release.noise == 0:
        clip = norms.quantile(1.0) + square
        return ClipChoice(clip, 1.0, norms.mean_contribution(clip, square), adds_centring=False)
    # The spectrum l_k, k = 1..K, in numbers of units. Unknown eigenvalues are taken to fall as k^-1.5, with sum n.
    places = np.arange(1, components + 1)
    visible, guess = np.zeros(components), units * places**-TUNING.spectrum_exponent / ZETA
    if len(small):
        # Idle BLAS threads would keep spinning while the sites of this process need the cores for the main release.
        with one_thread():
            values = np.linalg.eigvalsh(release.centred_matrix(exact=True))[::-1][:components]
        # Eigenvalues above the edge are corrected for the noise and divided by the mean contribution of a unit. An
        # eigenvalue below half the edge has no visible counterpart (phase transition of spiked Wigner matrices), so the
        # assumed ones are at most that.
        visible = np.where(values > release.edge, debiased(np.maximum(values, 0.0), release.edge), 0.0) / small[-1]
        guess = np.minimum(guess, release.edge / 2 / small[-1])
    count = int(np.sum(visible > 0))
    # The assumed part continues the last visible eigenvalue.
    if count:
        guess = np.minimum(guess, visible[count - 1] * (places / count) ** -TUNING.spectrum_exponent)
    spectrum = np.where(visible > 0, visible, guess)
    # Each unit adds at most 1 to the sum.
    spectrum = np.maximum(spectrum * min(1.0, units / max(float(np.sum(spectrum)), 1e-300)), 1e-300)
    # r of a release that takes the share 1: noise falls as 1/sqrt(share).
    radius = noise_edge(len(release.cross), release.noise * math.sqrt(share)) / 2
    # Signal to noise adds in squares: a release of share p and mean contribution f adds p f^2.
    before = share * float(np.sum(small**2))
    best: tuple[float, ClipChoice] | None = None
    least = TUNING.contribution_least * norms.mean_contribution(square, square)
    for q in TUNING.clip_quantiles:
        # The norm of u u' is at least a^2, so c = a^2 divides each unit by its own norm.
        clip = norms.quantile(q) if q else square
        contribution = norms.mean_contribution(clip, square)
        # The contribution falls as the clip grows: all further quantiles are below the limit too.
        if best is not None and contribution < least:
            break
        main = left * contribution**2
        for adds_centring in (False, True) if len(small) else (False,):
            strength = math.sqrt(main + adds_centring * before)
            other = before / (before + main) if adds_centring else 0.0
            lost = np.sum(spectrum * np.minimum(1, (radius / np.maximum(strength * spectrum, 1e-300)) ** 2))
            # The second term is the penalty for normalising: 1 - q in the main release, 1 in the centring releases,
            # whose units are always normalised. K^-1.5 is a part of the tuned penalty without a derivation.
            penalty = TUNING.normalisation_loss * components**-TUNING.normalisation_exponent
            cost = float(lost / np.sum(spectrum)) + penalty * ((1 - q) * (1 - other) + other)
            if best is None or cost < best[0]:
                best = cost, ClipChoice(clip, q, contribution, adds_centring)
    assert best is not None  # noqa: S101 the first quantile is always tried
    return best[1]
