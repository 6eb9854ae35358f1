"""The rounds of a Cox regression: the next request, and what a release changes. Free post-processing.

The model and its symbols are those of `zerosum.algorithms.cox.program`. A round goes in this order: `Fit.step` gives
the statistic at the present theta; `Fit.take` adds the released score to the scores so far, combines the Hessian with
the released second moments, takes the posterior mean of theta given all scores, and whitens the covariates for the next
round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from zerosum.algorithms.cox.baseline import Exits, bent, parts_of, uncover
from zerosum.algorithms.cox.bounds import chosen_bounds
from zerosum.algorithms.cox.estimation import Score, evidence, inverted, likely_size, merged, positive, shrunk_moments
from zerosum.algorithms.cox.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.kernel.request import Release
from zerosum.statistics.cox_step import CoxStep

if TYPE_CHECKING:
    from zerosum.algorithms.cox.program import CoxRegressionProgram

# Largest absolute logarithm of the baseline of a part or a stratum over that of the table. Priors have deviations of at
# most 2. Chosen by hand.
_STEEPEST = 20.0


def second_moments(part: float, *, first: bool) -> dict[str, Any]:
    """Weights of a part of the time and of second moments, and whether these are of all rows.

    Parameters
    ----------
    part : float
        a, the weight of a part of the time in a row of norm at most 1.
    first : bool
        Whether it is the first round.
    """
    curvature = TUNING.first_curvature if first else TUNING.curvature
    return {"part_weight": part, "curvature": curvature, "all_rows": first}


@dataclass(eq=False)
class Fit:
    """State of the rounds. theta = (coefficients of u (p), parts (K), strata but the first (G - 1)).

    The order of calls is `step` and `take` for each round. Symbols are those of `zerosum.algorithms.cox.program`.

    Parameters
    ----------
    plan : CoxRegressionProgram
        The public parameters.
    exits : Exits
        Marginal hazards, events and units from the table of exits.
    center, scale, size : array of shape (p,)
        Frame of the covariates, and mean square of each scaled covariate (`CoxRegressionProgram._frame`).
    size_error : array of shape (p,)
        Relative standard deviation of the noise of `size`.
    size_least : array of shape (p,)
        A low size that the release allows.
    table_noise : float
        Standard deviation of the noise of an entry of the table.
    noise : float
        Standard deviation of a sum of sensitivity 2 that takes the budget of all rounds.

    Attributes
    ----------
    bounds : Bounds
        B and C.
    hessian : array of shape (m, m)
        H, in the coordinates of theta.
    loose : array of shape (m, m)
        Relative standard deviations of the errors of H, over the roots of its diagonal entries.
    whitening, mean : array of shape (p, p) and (p,)
        T and the mean of u among events.
    outweighed : array of shape (p,)
        Share of the information about each coefficient that is lost, beyond the mean of all columns, as rows of unusual
        covariates weigh less.
    drifting : array of shape (p,)
        Product of the factors by which rounds widened the errors of a column's means by part.
    kept : float
        Number of events that stopping and weighting leave.
    tau, smooth : float
        Prior deviation of the coefficients, and of the change of the baseline from part to part.
    spread : float
        Standard deviation of the predictor u.b, by which `uncover` corrects the marginal hazards.
    """

    plan: CoxRegressionProgram
    exits: Exits
    center: Floats
    scale: Floats
    size: Floats  # mean square of each scaled covariate
    size_error: Floats  # its relative error
    size_least: Floats  # a low plausible size
    table_noise: float
    noise: float
    parts: tuple[int, ...] = ()
    theta: Floats = field(default_factory=lambda: np.zeros(0))
    hessian: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    rounds: list[Score] = field(default_factory=list)
    spread: float = 0.0

    def __post_init__(self) -> None:
        p, G = len(self.center), len(self.exits.units)
        self.parts = parts_of(np.sum(self.exits.events, axis=0), self.plan.parts)
        self.p, self.K, self.G = p, len(self.parts), G
        self.theta = np.zeros(p + self.K + G - 1)
        self.tau, self.smooth = math.exp(TUNING.size_log), TUNING.smooth
        self.whitening, self.mean = np.eye(p), np.zeros(p)
        self.kept = self.exits.total  # events that are left after stopping and weighting
        self.loose = np.zeros((0, 0))
        self.outweighed, self.drifting = np.zeros(p), np.ones(p)
        self.dark = TUNING.loose
        ends = self.exits.hazards[:, -1]
        end = float(ends @ self.exits.units / np.sum(self.exits.units))
        constants = TUNING.part_size**2 + self.stratum_size**2
        self.bounds = chosen_bounds(p, constants, self.exits.total, end, self.noise)

    @property
    def stratum_size(self) -> float:
        """Constant of a stratum; a single one repeats what the parts of the time tell."""
        return TUNING.stratum_size if self.G > 1 else TUNING.single_size

    # ---- a round ---------------------------------------------------------------------------------------------------

    def hazards(self) -> Floats:
        """Cumulative baseline hazards (G, bins + 1) for u = 0 at theta."""
        base = uncover(self.exits.hazards, self.spread)
        # A guard against overflow by noise: a round with hazards that are not finite could not be asked for.
        logarithms = np.clip(self.theta[self.p :], -_STEEPEST, _STEEPEST)
        strata = np.concatenate([[0.0], logarithms[self.K :]])
        found = bent(base, self.parts, logarithms[: self.K])
        return np.asarray(found * np.exp(strata)[:, None])

    def score_bins(self, count: int) -> tuple[Floats, Floats]:
        """Coefficients of v in the linear predictor, and the cuts between bins of about equal size.

        Parameters
        ----------
        count : int
            Number of bins; the predictor is taken for normal.
        """
        from scipy.stats import norm  # heavy: loaded when it is used

        slopes = self.theta[: self.p] / self.scale
        # A prior without effects has no spread; the cuts must rise.
        spread = max(self.spread, 1e-3)
        quantiles = norm.ppf(np.arange(1, count) / count)
        return slopes, float(slopes @ self.center) + spread * quantiles

    def step(self, *, first: bool, since: float = 0.0) -> CoxStep:
        """The statistic of the next round.

        The statistic sees v in [-1, 1]. With u = (v - center)/scale its linear predictor is slopes.v - slopes.center,
        and z = T (u - mean)/C = W v + o with W = T/(scale C) and o = -W center - T mean/C.

        Parameters
        ----------
        first : bool
            Whether it is the first round, whose second moments are of all rows.
        since : float
            Time from which on units are observed.
        """
        clip, slopes = self.bounds.clip, self.theta[: self.p] / self.scale
        matrix = self.whitening / self.scale / clip
        return self.plan.step_statistic(
            coefficients=slopes,
            # eta is slopes.v; the center is part of the baseline. Both limits are guards against overflow by noise.
            hazards=np.minimum(self.hazards() * np.exp(-np.clip(slopes @ self.center, -20, 20)), 1e6),
            parts=self.parts,
            matrix=matrix,
            shift=-matrix @ self.center - self.whitening @ self.mean / clip,
            bound=self.bounds.stop,
            stratum_weight=self.stratum_size / clip,
            since=since,
            **second_moments(TUNING.part_size / clip, first=first),
        )

    def map(self) -> Floats:
        """P (p + K + G, m): the numbers of a row in a release, times the clip, from those of theta."""
        p, K, G = self.p, self.K, self.G
        found = np.zeros((p + K + G, p + K + G - 1))
        found[:p, :p] = self.whitening
        # Every row is in one part, so that the mean is subtracted by the parts.
        found[:p, p : p + K] = -np.outer(self.whitening @ self.mean, np.ones(K))
        found[p : p + K, p : p + K] = TUNING.part_size * np.eye(K)
        found[p + K + 1 :, p + K :] = self.stratum_size * np.eye(G - 1)
        # The first stratum is where no other is: its constant is that of the parts minus the other strata.
        found[p + K, p : p + K] = self.stratum_size
        found[p + K, p + K :] = -self.stratum_size
        return found

    def take(self, step: CoxStep, release: Release, *, first: bool) -> None:
        """Learn from the release of a round.

        Parameters
        ----------
        step : CoxStep
            The statistic of the round, at the present theta.
        release : Release
            Score and second moments with noise.
        first : bool
            Whether it is the first round, whose second moments are of all rows and give no Hessian of events.
        """
        p, clip, noise = self.p, self.bounds.clip, release.noise_std
        score, moments = step.split(release.value)
        # A release has G + K constants where theta has K + G - 1: Q' takes the part of it that theta can explain, and
        # leaves the noise independent.
        Q, R = np.linalg.qr(self.map())
        inverse = np.linalg.inv(R)
        # In the units of z before it was divided by the clip.
        own = inverse @ (Q.T @ (clip * score))
        # `split` multiplies scores by B; z was divided by C.
        gradient_noise = clip * self.bounds.stop * noise
        if first:
            self._first_hessian(step, clip**2 * moments, clip**2 * noise / step.curvature)
            self._tilt(own[:p], gradient_noise * np.sqrt(np.sum(inverse[:p] ** 2, axis=1)))
            root = np.sqrt(np.diag(R @ self.hessian @ R.T))
            # No Hessian of events was released yet: its whole error is that of the guess from all people.
            blur = self.loose * np.outer(root, root)
        else:
            error = clip**2 * self.bounds.stop * noise / step.curvature
            blur = self._hessian(Q.T @ (clip**2 * moments) @ Q, R, error)
        self.rounds.append(Score(self.theta.copy(), own, inverse, gradient_noise, blur))
        # The errors of moved scores depend on the maximiser: a few iterations, of a fixed number.
        for _ in range(5):
            J, y = self.merged()
            self.theta = inverted(J + self.prior(self.tau)) @ y
        # Empirical Bayes: both prior deviations follow from the releases, and the posterior mean from them.
        self.tau = likely_size(J, y, p)
        weights, found = self.smoothness(J, y)
        self.smooth = float(found[int(np.argmax(weights))])
        self.theta = inverted(J + self.prior(self.tau)) @ y
        b = self.theta[:p]
        # Variance of the predictor among events; `uncover` takes it for that of the units.
        self.spread = math.sqrt(max(float(b @ self.own_moments() @ b), 0.0))
        self._whiten()

    def merged(self) -> tuple[Floats, Floats]:
        """Information of all rounds so far."""
        return merged(self.rounds, self.hessian, self.theta, slice(self.p, self.p + self.K))

    def prior(self, tau: float | Floats, smooth: float | None = None) -> Floats:
        """Prior precision of theta.

        Parameters
        ----------
        tau : float or array of shape (p,)
            Prior deviation of a coefficient of u.
        smooth : float, optional
            Prior deviation of the change of the baseline from part to part; by default the present one.

        Returns
        -------
        array of shape (m, m)
        """
        smooth = self.smooth if smooth is None else smooth
        coefficients = np.broadcast_to(np.asarray(tau, dtype=np.float64) ** -2, (self.p,))
        # Parts get their precision below; 0 here.
        found = np.diag(np.concatenate([coefficients, np.zeros(self.K), np.full(self.G - 1, TUNING.constant**-2)]))
        # A random walk over the parts: neighbours are alike, and none is far from the table. Where neighbours differ
        # much, the table is far off.
        steps = np.diff(np.eye(self.K), axis=0)
        parts = slice(self.p, self.p + self.K)
        found[parts, parts] = np.eye(self.K) / (TUNING.shift**2 + smooth**2) + steps.T @ steps / smooth**2
        return found

    @property
    def weak(self) -> Floats:
        """Prior deviation of the coefficients behind the intervals: `TUNING.weak` per deviation of a column."""
        return np.asarray(TUNING.weak / np.sqrt(np.clip(self.size, TUNING.size_least, 1.0)))

    def smoothness(self, J: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Posterior weights of the deviations of the walk over the parts, and these deviations.

        Where follow-up depends on the covariates, the table is far from the baseline and the walk is rough.

        Parameters
        ----------
        J, y : array of shape (m, m) and (m,)
            Information and weighted estimate of `estimation.merged`.
        """
        factors = np.array(TUNING.smooth_factors)
        # The logarithm of the factor has a standard normal prior.
        found = [evidence(J, y, self.prior(self.tau, TUNING.smooth * each)) for each in TUNING.smooth_factors]
        density = np.array(found) - 0.5 * np.log(factors) ** 2
        weight = np.exp(density - np.max(density))
        return weight / np.sum(weight), TUNING.smooth * factors

    def eigenvalues(self) -> tuple[Floats, Floats, Floats, float]:
        """Eigenvalues and eigenvectors of the correlations of the covariates among events, their standard deviations,
        and the error of an eigenvalue."""
        own = self.own_moments()
        root = np.sqrt(np.maximum(np.diag(own), 1e-12))
        values, vectors = np.linalg.eigh(own / np.outer(root, root))
        # Errors of the entries are independent, so that c' E c has about the deviation of one of them for a unit c.
        return np.maximum(values, 1e-9), vectors, root, float(np.mean(self.loose[: self.p, : self.p]))

    def own_moments(self) -> Floats:
        """Covariance of the covariates among events, parts and strata taken out: (p, p) per event."""
        H, p = self.hessian, self.p
        # Schur complement: the information about b that is left when parts and strata are estimated as well.
        across = np.linalg.solve(H[p:, p:], H[p:, :p])
        return np.asarray((H[:p, :p] - H[:p, p:] @ across) / self.kept)

    def _whiten(self) -> None:
        """Center and whitening of the next round: means and correlations of the covariates among events."""
        H, p, K = self.hessian, self.p, self.K
        self.mean = np.sum(H[:p, p : p + K], axis=1) / np.sum(np.diag(H)[p : p + K])
        covariance = self.own_moments()
        # Floors of a variance and of an eigenvalue of the correlations, so that noise is not enlarged without limit.
        root = np.sqrt(np.maximum(np.diag(covariance), TUNING.variance_floor))
        values, vectors = np.linalg.eigh(covariance / np.outer(root, root))
        # Correlations go and scales stay, so that noise falls where it matters least.
        self.whitening = (
            root[:, None] * ((vectors * np.maximum(values, TUNING.whiten_floor) ** -0.5) @ vectors.T) / root
        )

    def _first_hessian(self, step: CoxStep, moments: Floats, noise: float) -> None:
        """The first Hessian: events times the second moments of all people.

        A round of `all_rows` has sum w x x' over all people, without the times. If covariates of events are those of
        all people, H is that mean times the number of events, with the events by stratum and part from the table. The
        errors of this guess are `TUNING.loose` and `TUNING.loose_parts`.

        Parameters
        ----------
        step : CoxStep
            The statistic of the first round.
        moments : array of shape (p + K + G, p + K + G)
            Its second moments, times C^2.
        noise : float
            Standard deviation of the noise of a diagonal entry of `moments`.
        """
        p, K, G = self.p, self.K, self.G
        units = float(np.sum(self.exits.units))
        size2 = self.stratum_size**2
        # Every row has the square of the constant in one stratum: their sum over that square is the sum of weights.
        measured = float(np.sum(np.diag(moments)[p + K :])) / size2
        # The posterior mean under a normal prior about the weights of normal rows.
        blur, prior = noise * math.sqrt(G) / size2, TUNING.weight_error * units
        guess = self.bounds.first_weight * units
        weight = guess + (measured - guess) * prior**2 / (prior**2 + blur**2)
        weight = float(np.clip(weight, TUNING.weight_least * units, units))
        self._weigh_columns(np.diag(moments)[:p] / weight, noise / weight)
        # Rows weigh more in the later rounds.
        more = min(weight * self.bounds.weight / self.bounds.first_weight, units)
        if G == 1:
            # One stratum: its constant is a further column, whose products are the means.
            chosen = np.r_[np.arange(p), p + K]
            low = np.concatenate([np.clip(0.5 * self.size, 0.01, 0.3), [0.3 * size2]])
            found, rough = shrunk_moments(moments[np.ix_(chosen, chosen)], noise, weight, low)
            # The last row and column are the constant times its size.
            own, mean = found[:p, :p], found[:p, p:] / self.stratum_size
        else:
            found, rough = shrunk_moments(moments[:p, :p], noise, weight, np.clip(0.5 * self.size, 0.01, 0.3))
            share = np.maximum(np.diag(moments)[p + K :] / size2, 0.02 * units / G)
            # Means by stratum. Each keeps the share of its square in the sum of that and the variance of its noise.
            across = moments[:p, p + K :] / share
            spread = noise / math.sqrt(2) / share
            own, mean = found, across * across**2 / (across**2 + spread**2)
        self.dark = math.hypot(TUNING.loose, rough)
        self.kept = self.exits.total * more / units
        # Events by stratum and part of the time, from the table.
        cells = np.add.reduceat(self.exits.events, [0, *self.parts[:-1]], axis=1) * more / units
        cells = np.maximum(cells, 1e-3 * self.kept / (K * G))
        H = np.zeros((p + K + G - 1,) * 2)
        # Blocks of H per event: E[u u'], means of u by part and stratum, and the events themselves.
        H[:p, :p] = own * np.sum(cells)
        H[:p, p : p + K] = mean @ cells
        H[p : p + K, p : p + K] = np.diag(np.sum(cells, axis=0))
        H[p : p + K, p + K :] = cells[1:].T
        H[:p, p + K :] = mean[:, 1:] * np.sum(cells[1:], axis=1)
        H[p + K :, p + K :] = np.diag(np.sum(cells[1:], axis=1))
        H = np.triu(H) + np.triu(H, 1).T
        # Blocks from different sources need not be consistent.
        self.hessian = positive(H, np.maximum(np.diag(H), 1e-6) * TUNING.first_floor)
        # What is not known yet: moments of events may differ from those of all people, and means drift with the time.
        loose = np.full_like(H, 1.0) * self.dark
        loose[:p, p:] = loose[p:, :p] = TUNING.loose_parts
        self.loose = loose

    def _weigh_columns(self, weighted: Floats, noise: float) -> None:
        """Find how much of each column's information is with rows that weigh less.

        A column of long tails has its variance with few people, whose rows are long: its weighted mean square is below
        that of all people. The ratio is drawn to 1 by its noise.

        Parameters
        ----------
        weighted : array of shape (p,)
            Noisy mean squares of the scaled covariates of all people, by weight.
        noise : float
            Standard deviation of their noise.
        """
        error = np.hypot(noise / self.size, weighted / self.size * self.size_error)
        prior = TUNING.weight_error**2
        ratio = 1 + (weighted / self.size - 1) * prior / (prior + error**2)
        self.outweighed = np.clip(1 - ratio, 0, 1)

    def _tilt(self, score: Floats, noise: Floats) -> None:
        """Move the first Hessian half of the way to the solution.

        One Newton step from b = 0 with the moments of all people goes too far where a level is rare among all and
        frequent among events, and not far enough the other way round. A two-valued column with the share p0 among all
        and p1 among events has the logarithm of its odds ratio as solution, and to third order

            log(p1 (1 - p0)/(p0 (1 - p1))) = (p1 - p0)/((p0 (1 - p0) + p1 (1 - p1))/2),

        so that the mean of both variances is the Hessian of the whole step. The means of the columns among events are
        half of the way from those of all people as well.

        Parameters
        ----------
        score : array of shape (p,)
            Score of the coefficients at b = 0.
        noise : array of shape (p,)
            Standard deviations of its noise.
        """
        p, H = self.p, self.hessian
        # Difference of the means of u, events less all people; a difference within its noise is shrunk.
        apart = score / self.kept * score**2 / (score**2 + noise**2)
        # Shares from means of v in [-1, 1].
        before = np.clip((1 + self.center) / 2, TUNING.share_least, 1 - TUNING.share_least)
        after = np.clip(before + self.scale * apart / 2, TUNING.share_least, 1 - TUNING.share_least)
        ratio = (1 + after * (1 - after) / (before * (1 - before))) / 2
        ratio = np.where(self.plan.binary, np.clip(ratio, 1 / TUNING.tilt_most, TUNING.tilt_most), 1.0)
        events = np.diag(H)[p : p + self.K]
        mean = np.where(self.plan.binary, apart / 2, 0.0)
        root = np.sqrt(ratio)
        H[:p, :p] = H[:p, :p] * np.outer(root, root) + self.kept * np.outer(mean, mean)
        H[:p, p : p + self.K] += np.outer(mean, events)
        H[p : p + self.K, :p] = H[:p, p : p + self.K].T
        self.hessian = positive(H, np.maximum(np.diag(H), 1e-6) * TUNING.first_floor)

    def _hessian(self, measured: Floats, R: Floats, error: float) -> Floats:
        """Combine the Hessian with that of a round, entry by entry; returns the errors that are left, in R's units.

        Each entry is the posterior mean of a normal model: the guess R H R' with the relative error `loose`, the
        measurement with the noise of the release. The relative error of the result is widened by `TUNING.loose`/2,
        since H belongs to another theta in the next round.

        Parameters
        ----------
        measured : array of shape (m, m)
            Released second moments in the coordinates of R, R H R' and noise.
        R : array of shape (m, m)
            Triangular factor of P.
        error : float
            Standard deviation of the noise of a diagonal entry of `measured`.

        Returns
        -------
        array of shape (m, m)
            Standard deviations of the errors of the entries of R H R'.
        """
        p = self.p
        guess = R @ self.hessian @ R.T
        # Overall size first: the round measures how many events are left.
        unit = float(np.trace(measured) / np.trace(guess))
        # A trace adds m independent diagonal entries. The ratio has the prior N(1, weight_error^2).
        variance = len(guess) * error**2 / float(np.trace(guess)) ** 2
        prior = TUNING.weight_error**2
        factor = max((1 * variance + unit * prior) / (variance + prior), 0.05)
        guess = guess * factor
        root = np.sqrt(np.abs(np.diag(guess)))
        self._loosen_parts(measured - guess, root, error**2 / 2)
        spread = self.loose * np.outer(root, root)
        # Noise of an entry off the diagonal (isometric coordinates), taken for the diagonal as well.
        rho = spread**2 / (spread**2 + error**2 / 2)
        found = guess + rho * (measured - guess)
        inverse = np.linalg.inv(R)
        self.hessian = inverse @ positive(found, np.maximum(np.diag(guess), 1e-9) * TUNING.floor) @ inverse.T
        self.kept = float(np.sum(np.diag(self.hessian)[p : p + self.K]))
        # Posterior deviation of a normal model.
        left: Floats = spread * np.sqrt(1 - rho)
        self.loose = np.sqrt(self.loose**2 * (1 - rho) + (TUNING.loose / 2) ** 2)
        return left

    def _loosen_parts(self, apart: Floats, root: Floats, noise: float) -> None:
        """Widen the errors of the means of a column by part where a round is farther from the guess than they allow.

        Where follow-up depends on a column, its mean drifts from part to part, by far more than that of other columns.
        The K entries of a column have errors of one relative deviation, `loose` times an unknown factor with a
        log-normal prior; `loose` becomes the root of its posterior mean square.

        Parameters
        ----------
        apart : array of shape (m, m)
            Measured less guessed second moments.
        root : array of shape (m,)
            Roots of the diagonal of the guess.
        noise : float
            Variance of the noise of an entry of `apart`.
        """
        p, parts = self.p, slice(self.p, self.p + self.K)
        factors = np.array(TUNING.parts_factors)[:, None, None]
        variance = (factors * self.loose[:p, parts] * np.outer(root[:p], root[parts])) ** 2 + noise
        density = -0.5 * np.sum(np.log(variance) + apart[:p, parts] ** 2 / variance, axis=2)
        # The prior of the factors falls with a power, so that its mean square is near 1.
        density -= TUNING.parts_power * np.log(factors[:, :, 0])
        weight = np.exp(density - np.max(density, axis=0))
        widened = np.sqrt(np.sum(weight * factors[:, :, 0] ** 2, axis=0) / np.sum(weight, axis=0))
        self.drifting = self.drifting * widened
        self.loose[:p, parts] *= widened[:, None]
        self.loose[parts, :p] = self.loose[:p, parts].T
