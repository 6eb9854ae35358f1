"""From the releases of a linear regression to its coefficients and their errors. Free post-processing.

Model
-----
Rounds have two levels of clips. The opening rounds clip rows and residuals tightly: little noise, but a gradient with a
bias where errors are skewed or the mean is not linear. The closing rounds clip as widely as their noise pays for. At
coefficients w the released gradient of a level is, as a mean over units,

    g = slope H (w* - w) + bias + noise,    H the Hessian, w* the fit to the pooled data, each of width D.

`joined_levels` moves the opening gradient to the coefficients of the closing one. The difference of the two estimates
the bias of the opening level by coordinate. The two gradients are then averaged by inverse mean squared error. The bias
of the closing level, which no release shows, enters as a variance, in proportion to the bias that was seen.

`linear_posterior` gives the posterior of w* with a prior N(center, tau^2 I) whose tau is learned from the releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from zerosum.algorithms.regression.base import Frame, shrunk
from zerosum.algorithms.regression.inference import relative_clip, unclipped_share
from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats


def residual_bias(clip: float) -> float:
    """Typical bias of a coordinate of the gradient from residuals clipped at `clip` standard deviations.

    In standard deviations of the residuals, for a feature of mean square 1. The model a exp(-k (clip - least)) has two
    constants, which are root mean squares over made-up data (`TUNING.residual_bias`).

    Parameters
    ----------
    clip : float
        Bound of the residuals, over their standard deviation.
    """
    size, rate = TUNING.residual_bias
    least, most = TUNING.closing_residual_clip
    return size * (math.exp(-rate * (clip - least)) if clip < most else 0.0)


def row_bias(room: float) -> float:
    """The same from rows clipped at a squared norm of `room` times the average, in the same units.

    Parameters
    ----------
    room : float
        Squared norm at which rows are clipped, over the mean square of the rows.
    """
    size, rate = TUNING.row_bias
    least, most = TUNING.closing_room
    return size * (math.exp(-rate * (room - least)) if room < most else 0.0)


@dataclass(eq=False)
class Level:
    """Rounds with equal clips: sums over the rounds, with weight 1/bound^2 where the noise grows with the bound."""

    frame: Frame
    room: float  # squared clip of rows over their mean square; infinite if no row is longer than the clip
    turns: int = 0
    squares: float = 0.0  # sum of 1/bound^4
    moments: Floats = field(default_factory=lambda: np.zeros(0))  # (D, D), sum over rounds
    at: Floats = field(default_factory=lambda: np.zeros(0))  # (D,), weighted sum of the coefficients
    gradient: Floats = field(default_factory=lambda: np.zeros(0))  # (D,), weighted sum
    weight: float = 0.0  # sum of 1/bound^2 over the counted rounds
    steps: float = 0.0  # sum of bound^2 over all rounds
    square: float = 1.0  # released mean square of the clipped residuals, average with weights 1/bound^4
    bound: float = 1.0  # of the last round
    hessian_noise: float = 0.0  # of a diagonal entry of the moments of one round
    gradient_noise: float = 0.0  # of an entry of the gradient of one round, over the bound

    def add(
        self,
        at: Floats,
        bound: float,
        second: Floats,
        gradient: Floats,
        square: float,
        scale: float,
        noise: float,
        counted: bool = True,
    ) -> None:
        """Adds a round.

        Parameters
        ----------
        at, bound : coefficients (D,) and bound of the round.
        second, gradient, square : released moments (D, D), gradient (D,) and mean square of the residuals, all means.
        scale : factor from a coordinate of x in the release to the features.
        noise : standard deviation of a coordinate of the release, over the units.
        counted : whether the gradient is part of the average; the moments always are.
        """
        if not self.turns:
            width = len(at)
            self.moments, self.at, self.gradient = np.zeros((width, width)), np.zeros(width), np.zeros(width)
        self.turns += 1
        self.moments = self.moments + second
        # in directions that move slowly, the noise of every step remains
        self.steps += bound**2
        if counted:
            self.at = self.at + at / bound**2
            self.gradient = self.gradient + gradient / bound**2
            self.weight += bound**-2
        # The noise of the mean square is in proportion to bound^2.
        # Running mean with weights of inverse variance: bound^-4.
        share = 1.0 if self.turns == 1 else bound**-4 / (self.squares + bound**-4)
        self.square += share * (square - self.square)
        self.squares, self.bound = self.squares + bound**-4, bound
        self.hessian_noise = scale**2 * noise
        # an entry of the gradient is an off-diagonal entry of the joint matrix: 1/sqrt(2) of a coordinate's noise. Rows
        # and residuals have the factor sqrt(2) of `ResidualMoment.scales` each.
        self.gradient_noise = scale * math.sqrt(2) * noise / math.sqrt(2)

    @property
    def std(self) -> float:
        """Standard deviation of the residuals before they were clipped, if they were normal."""
        size = float(np.clip(self.square, 1e-6, self.bound**2))
        return max(math.sqrt(size), self.bound / relative_clip(size, self.bound))

    @property
    def cut(self) -> float:
        """Bound of the residuals in their standard deviations."""
        return self.bound / self.std

    @property
    def bias(self) -> float:
        """Typical bias of a coordinate of the gradient for a feature of mean square 1, in half ranges."""
        return self.std * math.hypot(residual_bias(self.cut), row_bias(self.room))

    @property
    def slope(self) -> float:
        """Share of the residuals within the bound: the factor by which clipping reduces the gradient."""
        return max(unclipped_share(max(self.square, 0.0), self.bound), TUNING.slope_least)

    @property
    def unseen(self) -> float:
        """Share of the sampling variance by which a fit with these clips differs from the fit without."""
        shares = []
        for (size, rate), (least, most), clip in (
            (TUNING.unseen_residuals, TUNING.closing_residual_clip, self.cut),
            (TUNING.unseen_rows, TUNING.closing_room, self.room),
        ):
            shares.append(size * math.exp(-rate * (clip - least)) if clip < most else 0.0)
        return sum(shares)


def mean_moments(opening: Level, closing: Level) -> tuple[Floats, float]:
    """Average of the moments of all rounds, and the noise of a diagonal entry of it.

    The tight clip shortens rows, so that the opening moments are scaled to the trace of the closing ones. What differs
    beyond the scale counts as noise of them.

    Parameters
    ----------
    opening, closing : Level
        Sums of both levels; the opening one has at least one round.

    Returns
    -------
    moments : array of shape (D, D)
    noise : float
        Standard deviation of a diagonal entry.
    """
    first = opening.moments / opening.turns
    if not closing.turns:
        return first, opening.hessian_noise / math.sqrt(opening.turns)
    last = closing.moments / closing.turns
    ratio = float(np.clip(np.trace(last) / max(float(np.trace(first)), 1e-12), 1.0, TUNING.trace_ratio_most))
    before = (ratio * opening.hessian_noise) ** 2 / opening.turns
    mismatch = (TUNING.moments_mismatch * float(np.mean(np.abs(np.diag(last))))) ** 2 if ratio > 1 else 0.0
    after = closing.hessian_noise**2 / closing.turns
    # Weights of inverse mean squared error. The mismatch decides the weights but is no noise of the result.
    share = (before + mismatch) / max(before + mismatch + after, 1e-300)
    return share * last + (1 - share) * ratio * first, math.sqrt(share**2 * after + (1 - share) ** 2 * before)


def positive(values: Floats, damping: float) -> Floats:
    """Positive eigenvalues for a damped Newton step.

    The moment matrix is positive semidefinite, so negative eigenvalues are noise and become 0. Then `damping` is added
    to all; a relative 1e-9 keeps the division finite without noise.

    Parameters
    ----------
    values : (width,), eigenvalues of the averaged moment matrix.
    damping : in the same units; about the spectral norm of the noise of that matrix.
    """
    return np.maximum(values, 0.0) + max(damping, 1e-9 * max(float(np.max(np.abs(values))), 1e-12))


@dataclass(frozen=True, eq=False)
class LinearFit:
    """The estimate of a linear regression, and covariances of its error."""

    mean: Floats  # (D,)
    pooled: Floats  # (D, D), about the regression on the pooled data
    population: Floats  # (D, D)


def linear_fit(
    opening: Level, closing: Level, center: Floats, prior: float, units: float, constant: float
) -> LinearFit:
    """Coefficients after the last step, and their errors by direction.

    Let the columns of B be eigenvectors of the noisy Hessian with eigenvalues e. Along one of them the true eigenvalue
    t is N(e, s^2), positive. After the T opening steps with damping h what is left of the way to w* is

        d = (1 - f) (w* - center) + (f/t) noise,    f = 1 - (1 - t/(e + h))^T,

    and the last step with damping h' makes it (1 - k) d + (k/t) noise', k = t/(e + h'). The mean square of the error is
    averaged over t on a grid. So it is continuous in e: no eigenvalue exists at which a direction is dropped.

    Parameters
    ----------
    opening : at least one round.
    closing : any number of rounds, all at the same coefficients.
    center : (D,), first coefficients.
    prior : standard deviation of the effect of a typical change of one feature (its root mean square).
    units : number of units.
    constant : value of the constant column, which is the last; 0 without one.
    """
    width = len(center)
    hessian, blur = mean_moments(opening, closing)
    values, basis = np.linalg.eigh(hessian)
    damping = blur * math.sqrt(width)
    last = positive(values, damping * TUNING.last_damping)

    # Noise alone spreads the eigenvalues of k empty directions over a semicircle of radius blur sqrt(2 k); k is a
    # smooth count of the eigenvalues that do not exceed that radius for all D.
    floor = max(blur, 1e-9 * max(float(np.max(np.abs(values))), 1e-12))
    # The fourth power makes the count continuous in the eigenvalues; chosen by hand, no benchmark recorded.
    vanishing = 1 / (1 + (np.maximum(values, 0.0) / (floor * math.sqrt(2 * width))) ** 4)
    scale = floor * np.sqrt(1 + (np.sum(vanishing) - vanishing) / 2)
    # The prior of a true eigenvalue is between uniform and uniform on a logarithmic scale: small ones, of nearly
    # collinear directions, are more probable than in proportion. The nodes are uniform on the logarithmic scale.
    high = np.maximum(values, 0.0) + 4 * scale
    low = np.minimum(np.maximum(values - 4 * scale, TUNING.eigenvalue_least * np.mean(np.abs(values))), high / 2)
    nodes = (np.arange(TUNING.eigenvalue_nodes) + 0.5) / TUNING.eigenvalue_nodes
    true = low[:, None] * (high / low)[:, None] ** nodes  # (D, nodes)
    mass = -0.5 * ((true - values[:, None]) / scale[:, None]) ** 2
    mass += (1 - TUNING.eigenvalue_exponent) * np.log(true)
    mass = np.exp(mass - np.max(mass, axis=1, keepdims=True))
    mass /= np.sum(mass, axis=1, keepdims=True)
    typical = np.sum(mass * true, axis=1)  # (D,), mean of the true eigenvalue
    # A bias of the gradient is the mean of u times a residual that was cut off: along a direction its square is between
    # the mean square of u there and the average one; their geometric mean is taken.
    shape = np.sqrt(typical * float(np.mean(typical)))
    if constant > 0:
        # skewed residuals that are clipped always shift the intercept, other coefficients only if the skewness changes
        shape = shape * (1 + TUNING.intercept_bias * basis[-1] ** 2)

    at, before = opening.at / opening.weight, opening.gradient / opening.weight
    # Clipped residuals make the gradient smaller by `slope`: divided by it, the noise grows.
    before_noise = opening.gradient_noise**2 / opening.weight / opening.slope**2
    before_bias = opening.bias**2 * shape
    if closing.turns:
        # the gradient of least squares is linear: it changes by the Hessian times the way
        place = closing.at / closing.weight
        way = place - at
        moved = basis.T @ (before / opening.slope - hessian @ way)
        moved_noise = before_noise + blur**2 / 2 * float(way @ way)
        own = basis.T @ closing.gradient / closing.weight / closing.slope
        own_noise = closing.gradient_noise**2 / closing.weight / closing.slope**2
        gradient, variance, factor = _averaged(
            moved, moved_noise, own, own_noise, (opening.bias - closing.bias) ** 2 * shape
        )
        variance = variance + factor * closing.bias**2 * shape
        before_bias = factor * before_bias
        at = place
    else:
        gradient, variance = basis.T @ before / opening.slope, before_noise + before_bias
    # The last step, shrunk by the share of the gradient that is noise (James and Stein); with no closing rounds its
    # gradient is that of the steps before, and it is taken whole.
    trust, released = 1.0, None
    if closing.turns:
        released = (basis @ own, math.sqrt(own_noise))
        size = float(np.sum(gradient**2 / last))
        # The step is gradient/last; in the metric of `last` its squared length is the sum of gradient^2/last, and that
        # of its noise the sum of variance/last.
        trust = max(0.0, 1 - float(np.sum(variance / last)) / size) if size > 0 else 1.0
    # Mean square of what the opening steps leave, and of the error after the last step, by direction and true
    # eigenvalue. Where a direction moves slowly, the noise of all steps remains; else that of the average.
    turns = np.arange(1, opening.turns + 1)
    # the damping of a round falls with the root of the number of rounds before it
    slow = np.maximum(values, 0.0)[:, None] + opening.hessian_noise * math.sqrt(width) / np.sqrt(turns)
    slow = np.maximum(slow, 1e-300)
    left = np.prod(np.clip(1 - true[:, :, None] / slow[:, None, :], -1.0, 1.0), axis=2)  # 1 - f
    # prior variance along a direction, from that of standardised coefficients
    sizes = _squares(hessian, blur)
    wide = prior**2 * np.sum(basis**2 / sizes[:, None], axis=0)
    summed = opening.gradient_noise**2 * opening.steps / opening.turns**2 / opening.slope**2
    noise = np.maximum(before_noise, summed * np.abs(left)) + before_bias[:, None]
    gains = (1 - left) / true
    # What the noise of the opening steps adds to the mean square of the predictions, without bias
    moments = moderated(hessian, blur)
    plain = np.sum(mass * gains**2 * (noise - before_bias[:, None]), axis=1)
    added = float(np.maximum(np.sum(basis * (moments @ basis), axis=0), 0.0) @ plain)
    found = at + trust * basis @ (gradient / last)
    kept, way = _share_kept(at, released, moments, added, constant)
    short = at - (1 - kept) * way + kept * (found - at)
    found, shift = short, found - short
    final = trust * true / last[:, None]
    rest = 1 - final
    observed = rest**2 * gains**2 * noise + trust**2 * variance[:, None] / last[:, None] ** 2
    # The part of one direction that its noisy eigenvector has in another (perturbation of first order): what the
    # other directions leave enters by it.
    gaps = (values[:, None] - values) ** 2 + scale**2
    # An eigenvector v_i of a matrix with noise E has the part v_j'E v_i/(e_i - e_j) of v_j; an entry off the diagonal
    # has variance blur^2/2. scale^2 keeps equal eigenvalues finite.
    shares = blur**2 / 2 / gaps * (1 - np.eye(width))
    leaked = shares @ _mixed_variance(mass, (rest * left) ** 2 * wide[:, None])
    each = observed + (rest * left) ** 2 * wide[:, None] + leaked[:, None]
    # sampling error: of the population where the releases follow the data, and of the pooled fit where they do not
    last_level = closing if closing.turns else opening
    sampling = last_level.std**2 / units
    followed = np.sum(mass * (1 - rest * left) ** 2 / np.maximum(true, scale[:, None]), axis=1) * sampling
    pooled = _mixed_variance(mass, each) + last_level.unseen * followed

    # The shift towards the mean is a bias: its square is counted as if it were a variance.
    pooled = pooled + (basis.T @ shift) ** 2
    # without noise all variances are 0 up to rounding
    pooled = np.where(pooled > 1e-30, pooled, 0.0)
    return LinearFit(found, (basis * pooled) @ basis.T, (basis * (pooled + followed)) @ basis.T)


def _share_kept(
    place: Floats, released: tuple[Floats, float] | None, moments: Floats, added: float, constant: float
) -> tuple[float, Floats]:
    """The share of the slopes that is kept, so that predictions are no worse than the mean.

    Two estimates of it are averaged. The first is from the known noise, as that of James and Stein; the square of its
    ratio makes it sharper, since the steps are damped already. The second needs closing rounds: along the way from the
    fit of the intercept alone the mean squared error is quadratic, and its slope at a place is the gradient there.
    Where noise made the slopes too large, a gradient with noise of its own shows it.

    Parameters
    ----------
    place : (D,), coefficients after the opening steps.
    released : the gradient there (D,), with noise that is not in the place, and the standard deviation of its entries.
    moments : (D, D).
    added : expected mean square of the predictions from noise alone.
    constant : value of the constant column, which is the last; 0 without one.

    Returns
    -------
    kept : the share, from 0 to 1.
    way : (D,), from the fit of the intercept alone to the place.
    """
    way = place.copy()
    if constant > 0:
        least, most = TUNING.constant_kept
        own = float(np.clip(moments[-1, -1], least * constant**2, most * constant**2))
        # the intercept that keeps the mean of the predictions
        way[-1] = -float(moments[-1, :-1] @ place[:-1]) / own
    # of noisy moments the form may be negative: it is at least a share of that of uncorrelated features
    alone = float(np.maximum(np.diag(moments), 0.0) @ way**2)
    # Mean square of the predictions along the way: the quadratic term of the mean squared error.
    bend = max(float(way @ moments @ way), TUNING.bend_least * alone)
    if not bend > 0:
        return 1.0, way
    known = max(0.0, 1 - (TUNING.shrinkage_noise * added / bend) ** 2)
    if released is None:
        return known, way
    gradient, error = released
    # The quadratic f(t) along the way has f'(1) = -way.g and f'' = bend: its minimum is at 1 + way.g/bend.
    seen = float(np.clip(1 + float(way @ gradient) / bend, 0.0, 1.0))
    doubt = (error * float(np.linalg.norm(way)) / bend) ** 2
    # Inverse-variance weights of the two estimates of the share.
    share = doubt / (doubt + TUNING.shrinkage_doubt**2)
    return share * known + (1 - share) * seen, way


def moderated(hessian: Floats, noise: float) -> Floats:
    """Noisy moments with their off-diagonal entries shrunk to 0 by the share of them that is noise.

    The off-diagonal entries are taken as N(0, rho^2), with rho^2 their mean square less the variance of the noise. The
    posterior mean keeps the share rho^2/(rho^2 + noise^2/2) of each.

    Parameters
    ----------
    hessian : (D, D), noise included.
    noise : standard deviation of a diagonal entry.
    """
    sizes = np.diag(_squares(hessian, noise))
    off = hessian[np.triu_indices(len(hessian), 1)]
    square = float(np.mean(off**2)) if len(off) else 0.0
    # The shrinkage of Ledoit and Wolf 2004 with the known noise in place of an estimated one.
    kept = max(0.0, 1 - noise**2 / 2 / square) if square > 0 else 0.0
    return np.asarray(sizes + kept * (hessian - np.diag(np.diag(hessian))))


def _mixed_variance(mass: Floats, variances: Floats) -> Floats:
    """Variances of the normal laws whose central 90 % intervals equal those of scale mixtures.

    A small chance that an eigenvalue is 0 gives a mixture a huge variance, but no wider 90 % interval.

    Parameters
    ----------
    mass, variances : (n, nodes), shares (they sum to 1 in a row) and variances of the normal laws.
    """
    from scipy.special import erfc  # heavy: loaded when it is used

    size = np.sqrt(np.maximum(variances, 1e-300))
    # The 90 % half width of a normal law is 1.645 deviations: the mixture's is between those of its narrowest and
    # widest law.
    low, high = 1.6 * np.min(size, axis=1), 1.7 * np.max(size, axis=1)
    for _ in range(50):  # bisection on the logarithm: the outside probability falls with the half width
        half = np.sqrt(low * high)
        outside = np.sum(mass * erfc(half[:, None] / size / math.sqrt(2)), axis=1)
        low, high = np.where(outside > 0.1, half, low), np.where(outside > 0.1, high, half)
    return np.asarray((high / 1.6448536269514722) ** 2)


def _averaged(
    moved: Floats, moved_noise: float, own: Floats, own_noise: float, typical: Floats
) -> tuple[Floats, Floats, Floats]:
    """Average of the gradients of both levels by inverse mean squared error, by direction.

    Parameters
    ----------
    moved, own : (D,), of the opening and of the closing level.
    moved_noise, own_noise : variances of their noise.
    typical : (D,), typical square of their difference.

    Returns
    -------
    gradient, variance, factor : (D,); factor is the square of the bias over the typical one.
    """
    # The difference of the two gradients shows the bias that the closing level does not share, beside known noise.
    noise = own_noise + moved_noise
    excess = (moved - own) ** 2 - noise
    # A mean of 1 and of the excess over the typical square, weighted by how well the difference shows the bias.
    shown = (typical / (typical + noise)) ** 2
    total = TUNING.bias_prior + float(np.sum(shown))
    common = (TUNING.bias_prior + float(np.sum(shown * excess / np.maximum(typical, 1e-30)))) / total
    common = max(common, TUNING.bias_least)
    # A direction that differs more than the others has a bias of its own.
    biased = np.maximum(common * typical, excess)
    factor = np.clip((excess - noise) / np.maximum(typical + noise, 1e-30), common, TUNING.bias_most)
    # Mean squared error of the opening gradient; the closing one has its noise alone.
    before = moved_noise + biased
    share = before / np.maximum(before + own_noise, 1e-300)  # of the closing level
    return share * own + (1 - share) * moved, share**2 * own_noise + (1 - share) ** 2 * before, factor


def _squares(moments: Floats, noise: float) -> Floats:
    """Mean squares of the features (D,): shrunk to their average by the share of their spread that is noise.

    Parameters
    ----------
    moments : (D, D).
    noise : standard deviation of a diagonal entry.
    """
    diagonal = np.diag(moments)
    middle = max(float(np.mean(diagonal)), 1e-12)
    return np.maximum(shrunk(diagonal, middle, noise), TUNING.square_least * middle)
