"""The fit of an additive model to released sums, without data.

Model
-----
A unit i has t_i in [-1/2, 1/2] and x_i, shape (c,), with a 1 in one cell of each of p terms. Its linear predictor is
eta_i = theta_0 + x_i' theta, and its value s_i = 1/(1 + exp(-eta_i)) - 1/2 (classes) or eta_i (numbers). Released with
known noise are

    b = sum t_i x_i,    n = sum x_i,    m_r = sum s_i(theta_r) x_i,    and for numbers P_jk = sum y_ij y_ik,

products of scores y of the terms. The likelihood equations are m(theta) = b.

Curvature. dm/dtheta is about A = w (n, C), with C = sum x_i x_i' and w the weight of a unit in the likelihood: 1 for
numbers, at most 1/4 for classes. Within a term C is diagonal, the counts. Between terms the counts of pairs of cells
are not released, and independent terms have C_jk = n_j n_k'/N. For numbers the correlations R_jk of the scores are
added, the first term of a correspondence analysis (Greenacre, Theory and Applications of Correspondence Analysis,
1984, ch. 4):

    C_jk = n_j n_k'/N + R_jk (n_j g_j) (n_k g_k)'/N,    g_j the scores, centred and standardised.

Without it the first solution of collinear columns is a multiple of the right one. For classes the noise of R costs more
than R is worth (`Tuning.score_share`).

Rounds. What A does not contain, d = m(theta_r) - m(0) - A (theta_r - theta(0)), is the mean of the rounds' values, with
weights that fall with their age. For classes it is taken as it is, since most of it is the curve of the logistic
function. For numbers it is shrunk: d ~ N(0, sum_c kappa_c D_n K_c D_n) with the kernels K_c below and D_n the counts.

Solution. z = b - m(0) - d = A (theta - theta(0)) + noise, whose covariance V is that of the releases, of d, and of
sampling, A up to a factor. theta ~ N(0, K), K = sum_c tau_c K_c: for every term a rough part, and for an ordered term
also a smooth one, exp(-|difference of ranks|), and a straight line. The variances tau_c and kappa_c maximise the
marginal likelihood, the noise being known: no penalty is chosen, and small budgets give flat functions, not wild
ones. The steps are those of Zhou, Hu, Zhou and Lange (MM algorithms for variance components models, 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from scipy.special import logit

from zerosum.algorithms.additive.tuning import TUNING
from zerosum.arrays import Floats

_TINY = 1e-12  # a sum of squares below which there is nothing


@dataclass(frozen=True)
class Terms:
    """The cells of all terms.

    Attributes
    ----------
    sizes : tuple of int
        The number of cells of each term.
    ordered : tuple of bool
        Whether a term's cells but the last, of missing values, are intervals in their order.
    smooth : tuple of bool
        Whether a term has no rough part.
    slopes : tuple of int
        1 for a term that must rise, -1 for one that must fall, else 0.
    """

    sizes: tuple[int, ...]
    ordered: tuple[bool, ...]
    smooth: tuple[bool, ...]
    slopes: tuple[int, ...]

    @property
    def parts(self) -> list[slice]:
        """The cells of each term."""
        ends = np.cumsum([0, *self.sizes]).tolist()
        return [slice(low, high) for low, high in pairwise(ends)]

    @property
    def cells(self) -> int:
        """The number of all cells."""
        return sum(self.sizes)

    def kernels(self) -> Iterator[tuple[slice, Floats]]:
        """The parts of the prior covariance: the cells of a term, and a matrix over them."""
        for at, cells in enumerate(self.parts):
            k = self.sizes[at]
            straight = self.ordered[at] and k > 3
            if not (straight and self.smooth[at]):
                yield cells, np.eye(k)
            if straight:
                # Ranks of the cells but the last, of missing values, which has a rough part only.
                x = np.linspace(0, 1, k - 1)
                for part in (np.exp(-np.abs(x[:, None] - x)), np.outer(x - 0.5, x - 0.5)):
                    whole = np.zeros((k, k))
                    whole[:-1, :-1] = part
                    # A smooth term has no other part for missing values.
                    whole[-1, -1] = float(self.smooth[at])
                    yield cells, whole


@dataclass
class Fit:
    """The state between the releases.

    Parameters
    ----------
    terms : Terms
        The cells.
    logistic : bool
        Whether the response is a class.
    sums : array of shape (c,)
        b, released.
    counts : array of shape (c,)
        n, released.
    units : float or None
        N, if it is public.
    noise : float
        Standard deviation of the noise of b; that of n is twice it.
    rounds : list of tuple
        m_r, theta_r and the noise of each round so far.
    slack : float
        w for numbers: 1, or more where moves show that the curvature is larger.
    """

    terms: Terms
    logistic: bool
    sums: Floats
    counts: Floats
    units: float | None
    noise: float
    rounds: list[tuple[Floats, Floats, float]] = field(default_factory=list)
    slack: float = 1.0

    def __post_init__(self) -> None:
        parts = self.terms.parts
        if self.units is None:
            # Every term's counts add up to N, with variance in proportion to its number of cells.
            totals = np.array([self.counts[cells].sum() for cells in parts])
            precision = 1 / np.array(self.terms.sizes)
            self.units = max(float(precision @ totals / precision.sum()), 1.0)
        self.size = float(self.units)
        # The last cell of a term, of missing values, has no effect where the release does not show that it has units.
        self.empty = [
            cells.stop - 1
            for cells in parts
            if not self.counts[cells.stop - 1] > TUNING.missing_evidence * 2 * self.noise
        ]
        self.counts = self._plausible(self.counts)
        mean = np.mean([self.sums[cells].sum() for cells in parts]) / self.size
        # Away from the ends, where the logit is infinite.
        self.mean = float(np.clip(mean, -TUNING.mean_most, TUNING.mean_most))
        self.kernels = list(self.terms.kernels())
        self.tau = np.full(len(self.kernels), TUNING.tau_start)
        self.kappa = np.full(len(self.kernels), TUNING.kappa_start)
        self.residual = TUNING.residual_start
        self.origin = np.append(logit(self.mean + 0.5) if self.logistic else self.mean, np.zeros(self.terms.cells))
        self.theta = self.origin
        self.variance = self.noise**2  # of the noise of a cell in the likelihood equations
        self.cross = np.outer(self.counts, self.counts) / self.size
        for cells in parts:
            self.cross[cells, cells] = np.diag(self.counts[cells])
        self._first()

    def _plausible(self, counts: Floats) -> Floats:
        """Counts of at least `Tuning.count_least` that add up to N in every term."""
        found = np.nan_to_num(counts, nan=0.0, posinf=self.size, neginf=0.0)
        for _ in range(2):  # the second pass mends what the limit of the first has added
            for cells in self.terms.parts:
                own = found[cells]
                own = np.maximum(own + (self.size - own.sum()) / own.size, TUNING.count_least)
                found[cells] = own * self.size / own.sum()
        return found

    # ---- scores --------------------------------------------------------------------------------------------------

    def scores(self) -> Floats:
        """Scores of all cells, shape (c,), in [-1, 1]: the effect, standardised and clipped."""
        found = np.zeros(self.terms.cells)
        for cells in self.terms.parts:
            share = self.counts[cells] / self.size
            centred = self.theta[1:][cells] - share @ self.theta[1:][cells]
            size = np.sqrt(share @ centred**2)
            if size > _TINY:
                found[cells] = np.clip(centred / (TUNING.score_limit * size), -1, 1)
        return found

    def take_scores(self, scores: Floats, table: Floats, noise: float) -> None:
        """Read the products of scores: the curvature has the correlations of the terms from now on.

        Parameters
        ----------
        scores : array of shape (c,)
            As released.
        table : array of shape (p, p)
            Their products.
        noise : float
            Standard deviation of the noise of each product.
        """
        parts, share = self.terms.parts, self.counts / self.size
        means = np.array([share[cells] @ scores[cells] for cells in parts])
        squares = np.array([share[cells] @ scores[cells] ** 2 for cells in parts])
        stds = np.sqrt(np.maximum(squares - means**2, 0))
        # Terms without spread have no correlations.
        inverse = np.where(stds > TUNING.spread_least, 1 / np.maximum(stds, TUNING.spread_least), 0.0)
        scale = np.outer(inverse, inverse)
        found = (table / self.size - np.outer(means, means)) * scale
        # Shrinkage of each correlation by its own noise (positive-part James-Stein).
        variance = (noise / self.size * scale) ** 2
        found *= np.maximum(1 - variance / np.maximum(found**2, _TINY), 0)
        found = np.clip(found, -TUNING.correlation_most, TUNING.correlation_most)
        np.fill_diagonal(found, 1.0)
        # The noise may leave no correlation matrix: negative eigenvalues are raised, and the diagonal is scaled to 1.
        values, vectors = np.linalg.eigh(found)
        found = (vectors * np.maximum(values, TUNING.eigenvalue_least)) @ vectors.T
        found /= np.sqrt(np.outer(np.diag(found), np.diag(found)))
        bases = [
            self.counts[cells] * (scores[cells] - mean) * each
            for cells, mean, each in zip(parts, means, inverse, strict=True)
        ]
        for j, one in enumerate(parts):
            for k, other in enumerate(parts):
                if j != k:
                    self.cross[one, other] += found[j, k] * np.outer(bases[j], bases[k]) / self.size
        self._first()

    # ---- solution ------------------------------------------------------------------------------------------------

    def _first(self) -> None:
        """theta from the responses alone."""
        c, weight = self.terms.cells, 0.25 - self.mean**2 if self.logistic else 1.0
        self._solve(np.zeros(c), np.zeros((c, c)), weight, TUNING.steps[0])

    @property
    def _weight(self) -> float:
        """w in rounds."""
        return TUNING.curvature if self.logistic else self.slack

    def take_round(self, sums: Floats, noise: float) -> None:
        """Read a round's model sums at the present theta, and solve again.

        Parameters
        ----------
        sums : array of shape (c,)
            m_r.
        noise : float
            Standard deviation of their noise.
        """
        self.rounds.append((sums, self.theta, noise))
        if not self.logistic:
            self._slacken()
        share = TUNING.memory ** np.arange(len(self.rounds) - 1, -1, -1.0)
        share /= share.sum()
        at = np.sum([w * theta for w, (_, theta, _) in zip(share, self.rounds, strict=True)], axis=0)
        value = np.sum([w * own for w, (own, _, _) in zip(share, self.rounds, strict=True)], axis=0)
        missed = value - self.mean * self.counts - self._weight * self._moved(at - self.origin)
        variance = float(share**2 @ np.array([each**2 for _, _, each in self.rounds]))
        self.variance = self.noise**2 + variance
        error = variance * np.eye(self.terms.cells)
        if not self.logistic:
            missed, error = self._shrunk(missed, error)
        self._solve(missed, error, self._weight, TUNING.steps[1])

    def _moved(self, move: Floats) -> Floats:
        """The change of m by a move of theta, over the weight."""
        return np.asarray(self.counts * move[0] + self.cross @ move[1:])

    def _slacken(self) -> None:
        """Raise the curvature if the last move has changed m by more than the curvature says.

        Collinearity that the scores do not show makes the curvature too small, and the rounds would overshoot more and
        more, in the direction in which it is smallest against the truth. That direction is then the last move.
        """
        sums, theta, _ = self.rounds[-1]
        before = (self.mean * self.counts, self.origin) if len(self.rounds) < 2 else self.rounds[-2][:2]
        move = theta - before[1]
        expected = move[1:] @ self._moved(move)
        if expected > _TINY:
            ratio = float(move[1:] @ (sums - before[0])) / expected
            # At most the number of terms, which is the curvature of terms that are all the same.
            self.slack = float(np.clip(ratio, self.slack, max(self.slack, len(self.terms.sizes))))

    def _shrunk(self, missed: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Mean and covariance of d, given its noisy value.

        Parameters
        ----------
        missed : array of shape (c,)
            The value.
        noise : array of shape (c, c)
            Covariance of its noise.
        """

        from scipy.linalg import cho_solve  # slow import, so it is left until it is needed

        D = np.diag(self.counts)
        self.kappa, prior, factor = _variances(
            missed, noise, D, self.kernels, self.kappa, TUNING.steps[1], TUNING.kappa_least
        )
        K = D @ prior @ D
        gain = cho_solve(factor, K).T
        return gain @ missed, K - gain @ K

    def _solve(self, missed: Floats, error: Floats, weight: float, steps: int) -> None:
        """theta, given d.

        Parameters
        ----------
        missed : array of shape (c,)
            d.
        error : array of shape (c, c)
            Covariance of its error.
        weight : float
            w of the curvature.
        steps : int
            Steps of the marginal likelihood.
        """

        from scipy.linalg import cho_solve  # slow import, so it is left until it is needed

        c = self.terms.cells
        A = weight * np.column_stack([self.counts, self.cross])
        z = self.sums - self.mean * self.counts - missed + A @ self.origin
        # The last term keeps the covariance positive along the differences between terms' totals, which have no
        # sampling error.
        sampling = A[:, 1:] + TUNING.ridge * np.diag(A[:, 0])
        fixed = self.noise**2 * np.eye(c) + error + TUNING.constant_variance * np.outer(A[:, 0], A[:, 0])
        C = A[:, 1:]
        if self.logistic:
            # The variance of a class is its weight.
            self.tau, prior, factor = _variances(
                z, fixed + sampling, C, self.kernels, self.tau, steps, TUNING.tau_least
            )
        else:
            start = np.append(self.tau, self.residual)
            found, prior, factor = _variances(z, fixed, C, self.kernels, start, steps, TUNING.tau_least, sampling)
            self.tau, self.residual = found[:-1], float(found[-1])
        K = np.zeros((c + 1, c + 1))
        K[0, 0] = TUNING.constant_variance
        K[1:, 1:] = prior
        gain = K @ cho_solve(factor, A).T
        self.theta = gain @ z
        self._straighten()

    def centred(self) -> tuple[float, Floats]:
        """The constant, and effects with mean 0 over the units in every term; 0 for missing values that do not show."""
        constant, effects = float(self.theta[0]), self.theta[1:].copy()
        for cells in self.terms.parts:
            mean = float(self.counts[cells] @ effects[cells]) / self.size
            constant, effects[cells] = constant + mean, effects[cells] - mean
        effects[self.empty] = 0.0
        return constant, effects

    @property
    def cell_noise(self) -> Floats:
        """What the noise of a cell's own sums would move its effect by, were it the only information; shape (c,).

        Not an error of the effect: that is smaller by what neighbours and the prior add, and larger by the errors of
        columns that move together with this one.
        """
        weight = 0.25 - self.mean**2 if self.logistic else 1.0
        return np.asarray(np.sqrt(self.variance) / (weight * self.counts))

    def _straighten(self) -> None:
        """Make the functions that must rise or fall do so: weighted isotonic regression, with the counts as weights."""

        from scipy.optimize import isotonic_regression  # slow import, so it is left until it is needed

        for cells, slope in zip(self.terms.parts, self.terms.slopes, strict=True):
            if slope:
                # Without the cell of missing values.
                own = slice(cells.start, cells.stop - 1)
                found = isotonic_regression(self.theta[1:][own], weights=self.counts[own], increasing=slope > 0)
                self.theta[1:][own] = found.x


def _variances(
    z: Floats,
    fixed: Floats,
    M: Floats,
    kernels: Sequence[tuple[slice, Floats]],
    start: Floats,
    steps: int,
    least: float,
    further: Floats | None = None,
) -> tuple[Floats, Floats, tuple[Floats, bool]]:
    """Variances that raise the marginal likelihood of z ~ N(0, S), S = fixed + M K M' + r further, K = sum_c tau_c K_c.

    MM steps: tau_c <- tau_c sqrt(z'S^-1 M K_c M'S^-1 z/tr(S^-1 M K_c M')), and r likewise.

    Parameters
    ----------
    z : array of shape (c,)
        The value.
    fixed : array of shape (c, c)
        The known part of its covariance.
    M : array of shape (c, c)
        The map from effects to z.
    kernels : sequence of (slice, array)
        The cells of each K_c, and its entries there; it is 0 elsewhere.
    start : array
        Variances to start from, r the last one if there is a further part.
    steps : int
        Their number.
    least : float
        Least variance, since 0 would stay 0.
    further : array of shape (c, c), optional
        A further part of the covariance.

    Returns
    -------
    variances : array
        tau, and r.
    prior : array of shape (c, c)
        K.
    factor : tuple
        The Cholesky factor of S, as `cho_solve` takes it.
    """

    from scipy.linalg import cho_factor, cho_solve  # slow import, so it is left until it is needed

    tau = start
    for step in range(steps + 1):
        K = np.zeros_like(fixed)
        for t, (cells, kernel) in zip(tau.tolist(), kernels, strict=False):
            K[cells, cells] += t * kernel
        S = fixed + M @ K @ M.T
        if further is not None:
            S += tau[-1] * further
        S[np.diag_indices_from(S)] += TUNING.jitter * np.trace(S) / len(S)
        factor: tuple[Floats, bool] = cho_factor(S, check_finite=False)
        if step < steps:
            q = cho_solve(factor, z)
            u, G = M.T @ q, M.T @ cho_solve(factor, M)
            explained = [u[cells] @ kernel @ u[cells] for cells, kernel in kernels]
            expected = [np.vdot(G[cells, cells], kernel) for cells, kernel in kernels]
            if further is not None:
                explained.append(q @ further @ q)
                expected.append(np.trace(cho_solve(factor, further)))
            tau = np.maximum(tau * np.sqrt(np.maximum(explained, _TINY) / np.maximum(expected, _TINY)), least)
    return tau, K, factor
