"""From the releases of a linear regression to its coefficients and their errors. Free post-processing.

Model
-----
Opening rounds clip rows and residuals: little noise, but a gradient with a bias where errors are skewed or the mean is
not linear. Closing rounds clip the scores u r of whole rows by their norm, as widely as their noise pays for. At
coefficients w the released gradient of either kind is, as a mean over units,

    g = slope H (w* - w) + bias + noise,    H the Hessian, w* the fit to the pooled data, each of width D.

`linear_fit` moves the opening gradient to the coefficients of the closing one. The difference of the two shows the bias
of the opening rounds by coordinate. The gradients are then averaged by inverse mean squared error.

The bias of the closing rounds shows in no release. A histogram of the norms of the scores (`Tail`) gives the mean
excess over the clip, which bounds the bias (`TUNING.closing_bias` of it is taken as its standard deviation), and the
scatter of what was left out. The second moment of the scores, corrected for it, is the middle part of a sandwich
estimate of the sampling covariance (Huber 1967; White 1980), so that no constant variance of the errors is assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from zerosum.algorithms.regression.base import Frame, shrunk
from zerosum.algorithms.regression.inference import noise_scale, relative_clip, unclipped_share
from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.statistics.regression import SQUARE


@dataclass(frozen=True, eq=False)
class Tail:
    """The law of the norm of scores u r, from a released histogram, and what a clip of them leaves out.

    Norms are in units of a public bound. The law is a scale mixture of normal laws, |z| s exp(t z') with independent
    standard normal z and z': t = 0 for normal residuals of rows of equal length, larger for heavy tails, rows of
    unequal length and residuals that grow with them. (s, t) have a posterior on a grid.
    """

    scales: Floats  # (cells, nodes), standard deviations of the normal laws of each cell of the grid
    nodes: Floats  # (nodes,), their weights
    mass: Floats  # (cells,), posterior
    end: float = math.inf  # a largest norm, known only without noise

    @classmethod
    def fitted(cls, counts: Floats, edges: Floats, units: float, noise: float) -> Tail:
        """The posterior from noisy counts.

        Parameters
        ----------
        counts : (bins,), released counts.
        edges : (bins + 1,); the last bin has no upper end.
        units : their total.
        noise : standard deviation of the noise of a count.
        """
        from scipy.special import erfc  # heavy: loaded when it is used

        steps, heights = np.polynomial.hermite_e.hermegauss(TUNING.score_tail_nodes)
        spread = np.linspace(0.0, TUNING.score_tail_most, TUNING.score_tail_spreads)
        size = np.geomspace(*TUNING.score_tail_scales, TUNING.score_tail_sizes)
        spreads, sizes = (each.ravel() for each in np.meshgrid(spread, size))
        scales = sizes[:, None] * np.exp(spreads[:, None] * steps)
        nodes = heights / np.sum(heights)
        inner = np.maximum(edges[1:-1], 0.0)
        above = np.einsum("n,cne->ce", nodes, erfc(inner / scales[:, :, None] / math.sqrt(2)))
        above = np.concatenate([np.ones((len(above), 1)), above, np.zeros((len(above), 1))], axis=1)
        share = above[:, :-1] - above[:, 1:]
        # Variance of a released share: noise, sampling, and an error of the model in proportion to the share; at least
        # that of one unit, without noise.
        misfit = np.array(TUNING.score_tail_misfit)[
            np.minimum(np.arange(len(counts)), len(TUNING.score_tail_misfit) - 1)
        ]
        variance = (noise / units) ** 2 + share / units + (misfit * share) ** 2 + units**-2.0
        log = -0.5 * np.sum((counts / units - share) ** 2 / variance + np.log(variance), axis=1)
        log -= 0.5 * (spreads / TUNING.score_tail_prior) ** 2
        mass = np.exp(log - np.max(log))
        seen = np.flatnonzero(counts)
        known = not noise > 0 and len(seen) and seen[-1] < len(counts) - 1
        return cls(scales, nodes, mass / np.sum(mass), float(edges[seen[-1] + 1]) if known else math.inf)

    @classmethod
    def expected(cls) -> Tail:
        """The law before any release: that of a histogram of infinite noise."""
        edges = np.array(TUNING.score_edges)
        return cls.fitted(np.zeros(len(edges) - 1), edges, 1.0, 1e3)

    def excess(self, clip: float) -> float:
        """Mean of the part of a norm above `clip`."""
        return self._mean(self._part(clip)[0])

    def square_excess(self, clip: float) -> float:
        """Mean square of that part."""
        return self._mean(self._part(clip)[1])

    def inflation(self, clip: float) -> float:
        """Mean square of the norms over that of the norms clipped at `clip`."""
        first, second = self._part(clip)
        whole = np.sum(self.nodes * self.scales**2, axis=1)
        # x^2 - c^2 = (x - c)^2 + 2 c (x - c) above the clip c
        beyond = np.sum(self.nodes * (second + 2 * clip * first), axis=1)
        return float(self.mass @ (whole / np.maximum(whole - beyond, TUNING.score_tail_least * whole)))

    def _mean(self, parts: Floats) -> float:
        """Average of (cells, nodes) over nodes and the posterior."""
        return float(self.mass @ (parts @ self.nodes))

    def _part(self, clip: float) -> tuple[Floats, Floats]:
        """First and second moment of (|z| s - clip)+ for all s, (cells, nodes)."""
        from scipy.special import erfc  # heavy: loaded when it is used

        if clip >= self.end:
            return np.zeros_like(self.scales), np.zeros_like(self.scales)
        at = clip / self.scales
        density = np.exp(-0.5 * at**2) / math.sqrt(2 * math.pi)
        outside = erfc(at / math.sqrt(2))  # both sides
        first = self.scales * (2 * density - at * outside)
        second = self.scales**2 * ((1 + at**2) * outside - 2 * at * density)
        return np.maximum(first, 0.0), np.maximum(second, 0.0)


@dataclass(eq=False)
class Closing:
    """Closing rounds: sums over the rounds of coefficients, gradients and second moments of the scores."""

    bound: float  # norm at which scores are clipped
    clip: float  # the same in units of `unit`
    unit: float  # the norm of a typical score: residual standard deviation times root of the trace of the moments
    tail: Tail
    moves: bool = False  # whether later rounds are at the place that the earlier ones lead to
    turns: int = 0
    at: Floats = field(default_factory=lambda: np.zeros(0))  # (D,)
    gradient: Floats = field(default_factory=lambda: np.zeros(0))  # (D,)
    meat: Floats = field(default_factory=lambda: np.zeros(0))  # (D, D)
    gradient_noise: float = 0.0  # of an entry of the gradient of one round
    meat_noise: float = 0.0  # of a diagonal entry of the second moment of one round

    def add(self, at: Floats, gradient: Floats, meat: Floats, noise: float) -> None:
        """Adds a round.

        Parameters
        ----------
        at, gradient, meat : coefficients (D,), released gradient (D,) and second moment (D, D), all means.
        noise : standard deviation of a coordinate of the release, over the units.
        """
        if not self.turns:
            self.at, self.gradient, self.meat = np.zeros_like(at), np.zeros_like(at), np.zeros_like(meat)
        self.turns += 1
        self.at, self.gradient, self.meat = self.at + at, self.gradient + gradient, self.meat + meat
        # `ScoreMoment`: d has the factor 2 in the gradient, whose entries are off-diagonal; d d' has the factor 2
        self.gradient_noise = 2 * self.bound * noise / math.sqrt(2)
        self.meat_noise = 2 * self.bound**2 * noise


def best_clip(tail: Tail, unit: float, width: int, units: float) -> float:
    """The clip of scores with the least mean squared error of a coefficient.

    Parameters
    ----------
    tail : law of the norms.
    unit : standard deviation of the noise of a mean of sensitivity 1 over all closing rounds.
    width : number of coefficients D.
    units : number of units.
    """

    def loss(clip: float) -> float:
        # a mean gradient of scores within B has sensitivity 2 B, and B is `clip` root D in units of a coordinate
        noise = 2 * clip * math.sqrt(width) * unit
        bias = TUNING.bias_caution * TUNING.closing_bias * tail.excess(clip)
        return noise**2 + bias**2 + tail.square_excess(clip) / units

    return float(min(np.geomspace(*TUNING.score_clip, TUNING.closing_steps), key=loss))


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
    units: float = 1.0  # number of units, and noise of a coordinate of a release, of the last round
    noise: float = 0.0

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

    def bias(self, tail: Tail | None) -> float:
        """Typical bias of a coordinate of the gradient for a feature of mean square 1, in half ranges.

        Parameters
        ----------
        tail : law of the norms of the scores, in units of a typical one; without it an average over made-up data.
        """
        if self.room == math.inf and self.bound >= 1:
            return 0.0
        # Separate clips of rows and residuals act as a clip of scores at a share of their product.
        product = self.bound / self.std * math.sqrt(min(self.room, TUNING.declared_most))
        if tail is None:
            return self.std * TUNING.opening_bias * math.exp(-TUNING.opening_rate * product)
        clip = max(TUNING.opening_clip * product, TUNING.opening_least)
        if clip >= tail.end:
            return 0.0
        return self.std * (TUNING.opening_excess * tail.excess(clip) + TUNING.opening_floor)

    @property
    def slope(self) -> float:
        """Share of the residuals within the bound: the factor by which clipping reduces the gradient."""
        return max(unclipped_share(max(self.square, 0.0), self.bound), TUNING.slope_least)


def mean_moments(opening: Level) -> tuple[Floats, float]:
    """Average of the moments of all opening rounds (D, D), and the noise of a diagonal entry of it."""
    return opening.moments / opening.turns, opening.hessian_noise / math.sqrt(opening.turns)


def lengthening(moments: Floats, noise: float, frame: Frame) -> tuple[Floats, Floats]:
    """Mean squares of the entries of whole rows over those of clipped rows (D,), as far as releases show them; and the
    standard deviations of these ratios.

    The constant column has a known mean square. That of the features is released with the column moments; of its
    difference from the released moments the share that is not noise is kept.

    Parameters
    ----------
    moments : (D, D), of clipped rows, noise included.
    noise : standard deviation of a diagonal entry.
    frame : how rows enter.
    """
    whole, blur = np.zeros(len(moments)), np.zeros(len(moments))
    features = len(frame.center)
    if frame.moments is not None:
        mean, std = frame.moments
        whole[:features] = frame.weight * ((mean - frame.center) ** 2 + std**2) / frame.scale**2
        blur[:features] = frame.moments_noise / SQUARE / frame.scale**2
    whole[features:] = frame.weight * frame.intercept**2
    known = whole > 0
    # an entry below its noise is not distinguishable from one of that size
    own = np.maximum(np.diag(moments), max(noise, 1e-12))
    far = np.where(known, whole / own - 1, 0.0)
    doubt = (blur / own) ** 2 + ((1 + far) * noise / own) ** 2
    kept = far**2 / np.maximum(far**2 + doubt, 1e-300)
    ratio = np.clip(1 + kept * far, 1.0, TUNING.lengthening_most)
    # Features of which no mean square is known are as much shortened as the constant column.
    error = np.where(known, np.minimum(np.sqrt(kept * doubt), TUNING.lengthening_most), 0.0)
    return np.where(known, ratio, ratio[-1] if frame.intercept else 1.0), error


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
    dispersion: float = 1.0  # mean square of the residuals, in half ranges of the response
    unshrunk: Floats = field(default_factory=lambda: np.zeros(0))  # (D,), without the shift towards the mean
    moments: tuple[Floats, float] | None = None  # of the rows, with the noise of a diagonal entry


def linear_fit(
    opening: Level,
    closing: Closing | None,
    lengthened: tuple[Floats, Floats],
    center: Floats,
    prior: float,
    units: float,
    constant: float,
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
    closing : rounds of scores; None, or no rounds yet, for the fit of the opening rounds alone.
    lengthened : (D,) and (D,), mean squares of the entries of whole rows over those of clipped ones, and their standard
        deviations (`lengthening`).
    center : (D,), first coefficients.
    prior : standard deviation of the effect of a typical change of one feature (its root mean square).
    units : number of units.
    constant : value of the constant column, which is the last; 0 without one.
    """
    width = len(center)
    closing = closing if closing is not None and closing.turns else None
    hessian, blur = mean_moments(opening)
    longer, doubt = lengthened
    plain_blur = blur
    if closing is not None:
        root = np.sqrt(longer)
        hessian = hessian * np.outer(root, root)
        plain_blur = blur * float(np.mean(longer))
        # the error of the ratios is not independent between entries; counted as if it were
        blur = math.hypot(plain_blur, float(np.sqrt(np.mean((np.diag(hessian) * doubt / longer) ** 2))))
    values, basis = np.linalg.eigh(hessian)
    damping = plain_blur * math.sqrt(width)
    last = positive(values, damping * TUNING.last_damping)

    floor = max(blur, 1e-9 * max(float(np.max(np.abs(values))), 1e-12))
    scale = noise_scale(values, floor)
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
    # A bias of the gradient is the mean of u times a residual that was cut off. It is of about the same size for all
    # coordinates: narrow columns are often those of long tails. A direction in which nearly collinear columns cancel
    # has less: the mean square of u there over that of uncorrelated columns, to the power 1/2.
    squares = np.maximum(np.diag(hessian), 1e-12)
    cancelled = np.sqrt(np.clip(typical / np.maximum(np.sum(basis**2 * squares[:, None], axis=0), 1e-12), 0.0, 1.0))

    def along(coordinates: Floats, factor: Floats | float = 1.0) -> Floats:
        """Variances by direction, from those by coordinate."""
        return np.asarray(factor * np.sum(basis**2 * coordinates[:, None], axis=0))

    shape = np.full(width, float(np.mean(typical)))
    if constant > 0:
        # skewed residuals that are clipped always shift the intercept, other coefficients only if the skewness changes
        shape[-1] *= 1 + TUNING.intercept_bias

    at, before = opening.at / opening.weight, opening.gradient / opening.weight
    # Clipped residuals make the gradient smaller by `slope`: divided by it, the noise grows.
    before_noise = opening.gradient_noise**2 / opening.weight / opening.slope**2
    dispersion = residual_square(opening, closing, longer, constant)
    sampling = dispersion / units
    own_bias = opening.bias(closing.tail if closing else None)
    # Clips so wide that they have no bias leave no scatter either.
    unseen = TUNING.opening_unseen * min(1.0, own_bias / (TUNING.opening_floor * opening.std))
    before_bias = (own_bias**2 + unseen * sampling) * shape
    if closing is not None:
        # the gradient of least squares is linear: it changes by the Hessian times the way
        place = closing.at / closing.turns
        way = place - at
        moved = before * longer / opening.slope - hessian @ way
        moved_noise = before_noise * longer**2 + blur**2 / 2 * float(way @ way)
        own, own_noise = closing.gradient / closing.turns, closing.gradient_noise**2 / closing.turns
        # What the clip of scores leaves out: a bias, and scatter that the pooled data have and the clipped do not.
        missing = closing.unit**2 / width / float(np.mean(typical))
        after_bias = missing * (TUNING.closing_bias * closing.tail.excess(closing.clip)) ** 2 * shape
        after_bias = after_bias + missing * closing.tail.square_excess(closing.clip) / units * shape
        share, before_bias, after_bias = _shares(moved - own, moved_noise, own_noise, before_bias, after_bias)
        gradient = basis.T @ (share * own + (1 - share) * moved)
        variance = along(share**2 * own_noise + (1 - share) ** 2 * moved_noise)
        variance = variance + along(share**2 * after_bias + (1 - share) ** 2 * before_bias, cancelled)
        # The shares follow the difference of the same gradients, which makes the average less accurate than with fixed
        # shares.
        variance = TUNING.share_error * variance
        at = place
        sandwich = basis.T @ _sandwich(closing, hessian, dispersion) @ basis / units
        before_noise = before_noise * float(np.mean(longer**2))
    else:
        sandwich = np.diag(sampling * np.maximum(typical, 0.0))
        gradient, variance = basis.T @ before / opening.slope, before_noise + along(before_bias, cancelled)
    before_bias = along(before_bias, cancelled)
    # The last step, shrunk by the share of the gradient that is noise (James and Stein). With no closing rounds its
    # gradient is that of the steps before, and it is taken whole; so it is where the noise is small.
    trust, released = 1.0, None
    if closing is not None:
        released = (own, math.sqrt(own_noise))
        size = 0.0 if closing.moves else float(np.sum(gradient**2 / last))
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
    unshrunk = found
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
    # sampling error, where the releases follow the data
    follow = np.sqrt(np.sum(mass * (1 - rest * left) ** 2 / np.maximum(true, scale[:, None]) ** 2, axis=1))
    pooled = _mixed_variance(mass, each)
    # The shift towards the mean is a bias: its square is counted as if it were a variance.
    pooled = pooled + (basis.T @ shift) ** 2
    # without noise all variances are 0 up to rounding
    pooled = np.where(pooled > 1e-30, pooled, 0.0)
    own_error = (basis * pooled) @ basis.T
    followed = basis @ (sandwich * np.outer(follow, follow)) @ basis.T
    return LinearFit(found, own_error, own_error + followed, dispersion, unshrunk, (hessian, blur))


def residual_square(opening: Level, closing: Closing | None, longer: Floats, constant: float) -> float:
    """Mean square of the residuals, in half ranges of the response.

    The mean of the normal value of the opening rounds, which is too small for heavy tails, and of the second moment of
    the scores at the constant column, by inverse mean squared error.

    Parameters
    ----------
    opening, closing, longer : as for `linear_fit`.
    constant : value of the constant column; 0 without one.
    """
    # the residual of a clipped row is shortened with its constant column
    normal = opening.std**2 * (float(longer[-1]) if constant > 0 else 1.0)
    if closing is None or not closing.turns or not constant > 0:
        return normal
    seen = float(closing.meat[-1, -1]) / closing.turns / constant**2
    noise = closing.meat_noise / math.sqrt(closing.turns) / constant**2
    doubt = TUNING.normal_doubt * normal
    share = doubt**2 / (doubt**2 + noise**2)
    return max(share * seen + (1 - share) * normal, TUNING.normal_least * normal)


def _sandwich(closing: Closing, hessian: Floats, dispersion: float) -> Floats:
    """Covariance of the score of one unit (D, D).

    The released second moment is shrunk towards that of residuals of constant variance, and multiplied by what the
    clip left out of the mean square.

    Parameters
    ----------
    closing : at least one round.
    hessian : (D, D), moments of the features.
    dispersion : mean square of the residuals.
    """
    noise = closing.meat_noise / math.sqrt(closing.turns)
    seen = closing.meat / closing.turns
    values, vectors = np.linalg.eigh(hessian)
    plain = dispersion * (vectors * np.maximum(values, 0.0)) @ vectors.T
    # The common factor is known better than single entries: the trace has root D times the noise of an entry.
    trace, doubt = float(np.trace(plain)), noise * math.sqrt(len(hessian))
    share = 1 / (1 + (doubt / (TUNING.sandwich_spread * max(trace, 1e-12))) ** 2)
    ratio = 1 + share * (float(np.trace(seen)) / max(trace, 1e-12) - 1)
    plain = plain * max(ratio, TUNING.normal_least)
    square = float(np.mean((seen - plain) ** 2))
    kept = max(0.0, 1 - noise**2 * (len(hessian) + 1) / (2 * len(hessian)) / square) if square > 0 else 0.0
    mixed = closing.tail.inflation(closing.clip) * (plain + kept * (seen - plain))
    values, vectors = np.linalg.eigh(mixed)
    # a covariance: at least a share of the plain one in every direction
    least = TUNING.sandwich_least * np.sum(vectors * (plain @ vectors), axis=0)
    return np.asarray((vectors * np.maximum(values, np.maximum(least, 0.0))) @ vectors.T)


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


def _shares(
    difference: Floats, moved_noise: Floats, own_noise: float, typical: Floats, after: Floats
) -> tuple[Floats, Floats, Floats]:
    """Shares of the closing gradient in the average with the opening one, by inverse mean squared error.

    Parameters
    ----------
    difference : (D,), the opening gradient less the closing one.
    moved_noise, own_noise : variances of their noise, (D,) and one number.
    typical, after : (D,), typical squares of the bias of both.

    Returns
    -------
    share, before, after : (D,); the squares of the biases in proportion to what the difference shows.
    """
    # The difference of the two gradients shows the bias that they do not share, beside known noise.
    noise = own_noise + moved_noise
    excess = difference**2 - noise
    # A mean of 1 and of the excess over the typical square, weighted by how well the difference shows the bias.
    shown = (typical / np.maximum(typical + noise, 1e-300)) ** 2
    total = TUNING.bias_prior + float(np.sum(shown))
    common = (TUNING.bias_prior + float(np.sum(shown * excess / np.maximum(typical, 1e-30)))) / total
    common = max(common, TUNING.bias_least)
    # A coordinate that differs more than the others has a bias of its own.
    before = np.maximum(common * typical, excess)
    after = min(common, TUNING.closing_factor_most) * after
    # In the weights a bias, which is not known, counts more than noise, which is.
    first, last = moved_noise + TUNING.bias_caution**2 * before, own_noise + after
    return first / np.maximum(first + last, 1e-300), before, after


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
