"""Noise schemes: the noise that each party draws, and the noise that a coalition observes.

Every scheme is one linear Gaussian mechanism over S sites. Let f_s be the sum of site s over its units (a vector; the
noise is independent in each coordinate). Site s multiplies f_s by a public factor c_s and sends

    m_s = c_s f_s + e_s + g_s        the release is  sum of p_s m_s,  with  sum of p_s e_s = 0

The site keeps its own noise g_s (standard deviation `own`) secret. The cancelling noise e_s is made from draws of
standard deviation `cancelling`, and its weighted sum over the sites is zero, so the release does not contain it. The
schemes differ in four vectors (c, p, `own`, `cancelling`) and in how e_s is made (`NoiseMechanism`):

| scheme           | c_s      | p_s         | own          | cancelling | mechanism |
|------------------|----------|-------------|--------------|------------|-----------|
| non-private      | 1        | 1           | 0            | 0          | NONE      |
| pooled           | a_s      | 1           | 0, central 1 | 0          | TRUSTED   |
| local            | a_s      | 1           | 1            | 0          | NONE      |
| cape-published   | a_s      | 1           | 1/sqrt(S)    | 1          | BROADCAST |
| cape-helper      | a_s      | 1           | 1/sqrt(S)    | 1          | HELPER    |
| zero-sum         | a_s      | 1           | 1            | ratio      | BROADCAST |
| pairwise         | a_s      | 1           | 1            | ratio/sqrt(H) a pair | PAIRWISE |
| secure-sum       | a_s      | 1           | 1            | infinite   | MASKED    |

All standard deviations are multiplied by one scale, which calibration chooses (`zerosum.kernel.view.calibrate`). H is
the number of honest sites in the worst case. A site that asks for a stronger guarantee has a_s in (0, 1]: its units
have the guarantee a_s mu instead of mu. The two cape schemes can also combine sites as the papers do (`Combine`): means
of unequal sites, c_s = 1/n_s, with noise that grows as n_s, the number of units, shrinks. There a_s divides the noise
of a site's message, as in the papers, and the mu of the site is not a_s mu.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.amounts import SMALLEST, check_amount, check_count

MAX_RATIO = 1e100  # beyond it variances overflow
# Largest sigma_e/sigma_g that can be run: beyond it the rounding of the cancelling noise would be visible in the sum.
# Chosen by hand; no benchmark recorded.
RUNNABLE_RATIO = 1e10


class NoiseMechanism(Enum):
    """How the cancelling noise e_s is made. This decides what a coalition knows of e_s (`zerosum.kernel.view.view`)."""

    NONE = "none"  # e_s = 0; the coordinator reads each message m_s separately
    TRUSTED = "trusted"  # the coordinator reads the data f_s and adds the noise (`NoiseLaw.central`)
    BROADCAST = "broadcast"  # e_s = r_s - B/(p_s S); only site s knows r_s; the sum B of all p_s r_s is public
    HELPER = "helper"  # a trusted helper deals e_s to site s, the coordinator deals f_s and subtracts it
    PAIRWISE = "pairwise"  # each pair of sites expands one shared stream; one site adds it, the other subtracts it
    # secure aggregation with uniform masks in the ring of integers mod 2^64: only the sum is readable
    MASKED = "masked"


class Combine(Enum):
    """How the messages of sites with unequal numbers of units n_s are combined."""

    SUMS = "sums"  # default: c_s = a_s, p_s = 1; every unit has the same weight at every site with a_s = 1
    MEANS = "means"  # capeDJICA and capeFM, Algorithm 2: the unweighted average of the sites' means
    # capeDJICA section III-C, capePCA section III-A: weighted means; the variances meet the papers' constraints
    WEIGHTED = "weighted"


@dataclass(frozen=True)
class SiteShape:
    """Public facts about one site.

    Parameters
    ----------
    units:
        Number of units n_s; None if it is not declared.
    scale:
        a_s in (0, 1]: the factor on mu that the site asks for. 1 is the study's guarantee.
    weight:
        Weight p_s of the site's mean, for `Combine.WEIGHTED` only; None: n_s over the sum of all n_t.
    """

    units: int | None = None
    scale: float = 1.0
    weight: float | None = None

    def __post_init__(self) -> None:
        if self.units is not None:
            check_count("a site's number of units", self.units)
        if not SMALLEST <= self.scale <= 1:
            raise BadParameter(f"a site's scale must lie in (0, 1], got {self.scale:g}")
        if self.weight is not None:
            check_amount("a site's weight", self.weight)


@dataclass(frozen=True)
class NoiseLaw:
    """The noise of one release. Sites draw their noise from this object, and `zerosum.kernel.view` accounts for the
    same object.

    With S sites, the release is sum over s of p_s (c_s f_s + e_s + g_s), plus N(0, central^2 I) under TRUSTED. Here g_s
    ~ N(0, own_s^2 I), independent between sites, and e_s is made from draws of standard deviation `cancelling` by
    `mechanism`. All arrays have shape (S,). With `step` > 0 values and noise are integer multiples of `step` and the
    noise is discrete Gaussian (`zerosum.kernel.grid`).
    """

    mechanism: NoiseMechanism
    factor: Floats  # c_s
    weight: Floats  # p_s
    own: Floats  # standard deviation of g_s, in the units of f_s
    # standard deviation of r_s (HELPER with a last site of infinite variance: of e_s; PAIRWISE: of one pair's stream);
    # for HELPER without such a site, the product with the weight is equal for all sites
    cancelling: Floats
    central: float = 0.0  # standard deviation of the noise that a trusted coordinator adds
    step: float = 0.0  # spacing of the grid of values and noise, a power of two; 0: values and noise are doubles
    # what finite arithmetic adds to the sensitivity of a site's message (`zerosum.kernel.grid.place`)
    rounding: float = 0.0
    # Laplace noise (`zerosum.kernel.laplace`): 1 - a, with a the ratio of the probabilities of neighbouring steps, and
    # how many shares add up to the whole noise. 0: Gaussian noise.
    decay: float = 0.0
    parts: int = 0

    def site_sensitivity(self, sensitivity: float, site: int) -> float:
        """Largest distance by which one unit moves the message of its site: c_s D + rounding, for a sum of sensitivity
        D; in L2 norm, for Laplace noise in L1 norm.
        """
        return float(sensitivity * self.factor[site]) + self.rounding

    @property
    def own_variance(self) -> Floats:
        """Variance of the continuous normal that accounting uses for g_s, shape (S,): own^2 - step^2/12.

        A discrete Gaussian of variance own^2 on the grid is close, in total variation, to a rounded normal of this
        smaller variance (`zerosum.kernel.grid`). The smaller variance gives the larger mu.
        """
        return np.maximum(self.own**2 - self.step**2 / 12, 0.0)

    @property
    def central_variance(self) -> float:
        """The same for the noise of a trusted coordinator."""
        return max(self.central**2 - self.step**2 / 12, 0.0)

    @property
    def sites(self) -> int:
        """Number of sites S."""
        return len(self.factor)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each coordinate of the release. The cancelling noise is not part of it."""
        return math.sqrt(float(np.sum((self.weight * self.own) ** 2)) + self.central**2)

    @property
    def shares(self) -> float:
        """With Laplace noise, the number of sites that add a share over the number whose shares add up to the whole
        noise; the variance of the released noise over that of Laplace noise.
        """
        return 1.0 if self.mechanism is NoiseMechanism.TRUSTED else self.sites / self.parts

    def scaled(self, by: float) -> NoiseLaw:
        """Return the law with all its noise multiplied by a factor. Without a grid, mu is divided by that factor."""
        return replace(self, own=self.own * by, cancelling=self.cancelling * by, central=self.central * by)


def draw_step(law: NoiseLaw) -> float:
    """Step of the grid on which BROADCAST adds up its draws p_s r_s, a power of two.

    The step is between 2^-45 and 2^-44 of the largest standard deviation: small enough that its rounding is not part of
    the noise, and large enough that the sum over the sites does not wrap around in 64 bits.
    """
    return 2.0 ** (math.ceil(math.log2(float(np.max(law.cancelling * law.weight)))) - 45)


@dataclass(frozen=True)
class SchemeFacts:
    """Static properties of a scheme. Code that depends on a property of a scheme reads it here."""

    mechanism: NoiseMechanism
    noisy: bool = True
    sees_data: bool = False  # whether the coordinator reads the data and is trusted with them
    deals_noise: bool = False  # whether the coordinator deals noise and is trusted not to use it against the sites
    secure: bool = False  # whether the scheme uses secure aggregation: of the contributions, or of the draws p_s r_s
    ratio: bool = False  # whether the scheme uses `Scheme.ratio`
    combines: tuple[Combine, ...] = (Combine.SUMS,)
    published: bool = False  # whether the papers have a calibration for this scheme
    tolerates_losses: bool = True

    @property
    def trusted_party(self) -> str:
        """Party that must be trusted beside the site itself, for tables."""
        if self.sees_data:
            return "coordinator"
        return "noise dealer" if self.deals_noise else "no one"


SCHEMES: dict[str, SchemeFacts] = {
    "non-private": SchemeFacts(NoiseMechanism.NONE, noisy=False, sees_data=True),
    "pooled": SchemeFacts(NoiseMechanism.TRUSTED, sees_data=True, published=True),
    "local": SchemeFacts(NoiseMechanism.NONE, published=True),
    "cape-published": SchemeFacts(NoiseMechanism.BROADCAST, secure=True, combines=tuple(Combine), published=True),
    "cape-helper": SchemeFacts(
        NoiseMechanism.HELPER,
        deals_noise=True,
        combines=(Combine.SUMS, Combine.WEIGHTED),
        published=True,
        tolerates_losses=False,
    ),
    "zero-sum": SchemeFacts(NoiseMechanism.BROADCAST, secure=True, ratio=True),
    "pairwise": SchemeFacts(NoiseMechanism.PAIRWISE, ratio=True, tolerates_losses=False),
    "secure-sum": SchemeFacts(NoiseMechanism.MASKED, secure=True),
}
DEFAULT_SCHEME = "secure-sum"


@dataclass(frozen=True)
class Scheme:
    """A scheme by name, with its settings. `law` gives its noise for given sites.

    Parameters
    ----------
    name:
        A key of `SCHEMES`.
    ratio:
        sigma_e/sigma_g, the cancelling noise over the own noise, for zero-sum and pairwise. Other schemes ignore it.
    combine:
        How unequal sites are combined; only the cape schemes have a choice.
    """

    name: str
    ratio: float = 100.0  # sigma_e / sigma_g of zero-sum and pairwise
    combine: Combine = Combine.SUMS

    def __post_init__(self) -> None:
        if self.name not in SCHEMES:
            raise BadParameter(f"unknown scheme {self.name!r}; there are {', '.join(SCHEMES)}")
        if not 0 <= self.ratio <= MAX_RATIO:
            raise BadParameter(f"the ratio sigma_e/sigma_g must lie between 0 and {MAX_RATIO:g}, got {self.ratio:g}")
        if self.combine not in self.facts.combines:
            if len(self.facts.combines) == 1:
                raise BadParameter(f"combine = {self.combine.value!r} belongs to the cape schemes, not to {self.name}")
            raise BadParameter(
                f"combine = {self.combine.value!r} is not defined for {self.name}: capePCA has no plain average of "
                "unequal means; use combine = 'weighted'"
            )

    @property
    def facts(self) -> SchemeFacts:
        """The static properties of this scheme."""
        return SCHEMES[self.name]

    def law(self, shapes: Sequence[SiteShape], honest: int) -> NoiseLaw:
        """Return the noise at unit scale, before calibration and without a grid.

        Parameters
        ----------
        shapes:
            The public facts of the S sites, in the order of the plan.
        honest:
            H, the number of sites that neither collude nor are lost in the worst case. The variance of the pairwise
            streams is divided by H, so that the cancelling noise at a site has variance of about ratio^2, since only
            streams between honest sites protect it.
        """
        S = len(shapes)
        ones, zeros = np.ones(S), np.zeros(S)
        # a_s multiplies the data and not the noise: then the units of site s have a_s times the mu of the others (see
        # the module).
        asked = np.array([shape.scale for shape in shapes])
        match self.name:
            case "non-private":
                return NoiseLaw(NoiseMechanism.NONE, ones, ones, zeros, zeros)
            case "pooled":
                return NoiseLaw(NoiseMechanism.TRUSTED, asked, ones, zeros, zeros, central=1.0)
            case "local":
                return NoiseLaw(NoiseMechanism.NONE, asked, ones, ones, zeros)
            case "zero-sum":
                return NoiseLaw(NoiseMechanism.BROADCAST, asked, ones, ones, self.ratio * ones)
            case "pairwise":
                return NoiseLaw(NoiseMechanism.PAIRWISE, asked, ones, ones, self.ratio / math.sqrt(honest) * ones)
            case "secure-sum":
                return NoiseLaw(NoiseMechanism.MASKED, asked, ones, ones, np.full(S, math.inf))
        # Only the two cape schemes are left here: sigma_g = sigma_e / sqrt(S), so that the sum over S sites has the
        # noise of one site.
        mechanism = self.facts.mechanism
        if self.combine is Combine.SUMS:
            return NoiseLaw(mechanism, asked, ones, ones / math.sqrt(S), ones)
        if self.combine is Combine.MEANS:
            return _average_of_means(mechanism, _units(shapes), asked)
        law = weighted_laws(mechanism, shapes, honest).used
        dealt = law.weight * law.cancelling
        ratio = float(np.max(dealt[np.isfinite(dealt)])) / law.noise_std
        if not ratio <= RUNNABLE_RATIO:
            raise BadParameter(
                f"these scales and weights need cancelling noise {ratio:g} times the noise of the sum, which would "
                f"leave its rounding errors in the sum; a ratio of at most {RUNNABLE_RATIO:g} can be run: ask for "
                "scales nearer to 1, or combine sums"
            )
        return law

    def as_record(self) -> dict[str, Any]:
        """Return the settings that apply to this scheme, for the record of a run."""
        record: dict[str, Any] = {"name": self.name}
        if self.facts.ratio:
            record["ratio"] = self.ratio
        if self.combine is not Combine.SUMS:
            record["combine"] = self.combine.value
        return record


def _units(shapes: Sequence[SiteShape]) -> Floats:
    """Return n_s for every site as an array of shape (S,), or refuse if one is not declared."""
    if any(shape.units is None for shape in shapes):
        undeclared = sum(shape.units is None for shape in shapes)
        raise BadParameter(
            f"combining means needs the number of units of every site: declare units in the study, got none for "
            f"{undeclared} of {len(shapes)} sites"
        )
    return np.array([float(shape.units or 0) for shape in shapes])


def _weights(shapes: Sequence[SiteShape], units: Floats) -> Floats:
    """Return p_s for every site, shape (S,), with sum 1."""
    given = [shape.weight for shape in shapes if shape.weight is not None]
    if not given:
        return units / np.sum(units)
    weights = np.array(given)
    if len(given) < len(shapes) or np.any(weights <= 0) or abs(math.fsum(given) - 1) > 1e-9:
        raise BadParameter(
            f"weights must be given for all {len(shapes)} sites or none, be positive and add up to 1, got {given}"
        )
    return weights


def _average_of_means(mechanism: NoiseMechanism, units: Floats, asked: Floats) -> NoiseLaw:
    """Algorithm 2 of capeDJICA and capeFM with unequal sites: site s adds noise tau_s = 1/(n_s a_s) to its mean.

    The weights N/S rescale the average of means by N, so that the release still estimates a sum over units.
    """
    S, N = len(units), float(np.sum(units))
    tau = 1 / (units * asked)
    return NoiseLaw(mechanism, 1 / units, np.full(S, N / S), tau / math.sqrt(S), tau)


@dataclass(frozen=True)
class WeightedLaws:
    """The noise of weighted means by the papers' printed solution, and by a closed form for their constraints.

    `printed` is None where a variance of the printed solution is negative, or where a site has no own noise and all
    sites with own and cancelling noise may collude: then a coalition reads its message without noise. Both laws have
    the noise of pooled data in the release, and at least the noise tau_s in the message of every site.
    """

    printed: NoiseLaw | None
    solved: NoiseLaw

    @property
    def used(self) -> NoiseLaw:
        """The law of a plan: the printed one where there is one, since plans of 0.2 have its noise."""
        return self.solved if self.printed is None else self.printed


def weighted_laws(mechanism: NoiseMechanism, shapes: Sequence[SiteShape], honest: int) -> WeightedLaws:
    """Return both laws of `Combine.WEIGHTED` at unit scale, for BROADCAST (capeDJICA) or HELPER (capePCA).

    Parameters
    ----------
    mechanism:
        BROADCAST or HELPER.
    shapes:
        The public facts of the sites; every site declares its number of units.
    honest:
        Number of sites that neither collude nor are lost in the worst case.
    """
    units = _units(shapes)
    p = _weights(shapes, units)
    N = float(np.sum(units))
    tau2 = 1 / (units * np.array([shape.scale for shape in shapes])) ** 2
    print_of = _variances_capedjica if mechanism is NoiseMechanism.BROADCAST else _variances_capepca

    def law(cancelling2: Floats, own2: Floats) -> NoiseLaw:
        return NoiseLaw(mechanism, 1 / units, N * p, np.sqrt(own2), np.sqrt(cancelling2))

    cancelling2, own2 = print_of(p, tau2, 1 / N**2)
    # NaN marks a system without a solution, and is not at least 0.
    exists = bool(np.all(cancelling2 >= 0) and np.all(own2 >= 0))
    # A site without own noise is hidden only by the cancelling noise that it shares with an honest site that has
    # both.
    hidden = bool(np.all(own2 > 0)) or int(np.count_nonzero((own2 > 0) & (cancelling2 > 0))) > len(p) - honest
    exists = exists and hidden
    return WeightedLaws(law(cancelling2, own2) if exists else None, law(*_variances_solved(p, tau2, units, honest)))


def _variances_solved(p: Floats, tau2: Floats, units: Floats, honest: int) -> tuple[Floats, Floats]:
    """A solution of the papers' constraints for any weights and requirements, in closed form.

    Both papers state a feasibility problem and print one of its solutions, which has negative variances for many
    weights. The problem of capePCA, section III-A, is, in the variances of e_s and g_s,

        var(e_s) + var(g_s) >= tau_s^2,    sum of p_s^2 var(g_s) = pooled,    sum of p_s e_s = 0,    var(g_s) >= 0

    (capeDJICA, section III-C, has an equality in the first place). Write y_s = p_s^2 var(g_s), t_s = p_s^2 tau_s^2 and
    d_s = (p_s/n_s)^2. The y_s are the solution of a linear program, and the cancelling noise follows from them.

    Own noise. With much cancelling noise the last term of `zerosum.kernel.view` is left: mu_s^2 is proportional to d_s
    over the sum of y_t over the honest sites. The least release noise for an equal guarantee is therefore

        minimise the sum of y_s    subject to    sum over t in H of y_t >= d_s    for every honest set H and s in H

    up to a factor, which sets the sum to the pooled variance. H has `honest` members, and C = S - honest. Let c be the
    mean of the `honest` smallest y_s. A site among them has the constraint honest c >= d_s. Any other site needs y_s >=
    d_s - (honest - 1) c and y_s >= c. So the sum is at least S c + sum of max(0, d_s - honest c), at most C sites have
    d_s > honest c, and y_s = c + max(0, d_s - honest c) attains this. The bound is convex and piecewise linear in c,
    with the slope S - honest m where m sites have d_s > honest c. Its minimum is at honest c = d_(m+1), the (m+1)-th
    largest d_s, for m = min(C, floor((S - 1)/honest)).

    Cancelling noise. The draws r_s behind e_s = r_s - B/(p_s S) have the common weighted variance w = p_s^2 var(r_s),
    so that p_s^2 var(e_s) = (1 - 1/S) w, and w = max over s of (t_s - y_s) / (1 - 1/S) is the smallest with every
    message at tau_s^2 or above. The release does not contain w, so noise above tau_s^2 costs no accuracy.

    w is positive: in units of the pooled variance t_s = (k_s/a_s)^2 with k_s = p_s N/n_s, and sum of n_s k_s = N gives
    sum of k_s^2 >= N^2/sum of n_s^2 > 1 (Cauchy and Schwarz), so that the t_s add up to more than the y_s. So there is
    always a solution. Equal sites have Algorithm 2 of capeDJICA. Every operation is on single numbers, in one order,
    and correctly rounded, so that all sites compute the same bits.

    Parameters
    ----------
    p:
        Weights of the sites, shape (S,), with sum 1.
    tau2:
        tau_s^2, the variance that the message of a site must have at least.
    units:
        n_s.
    honest:
        Number of sites that neither collude nor are lost in the worst case.
    """
    S = len(p)
    moved = (p / units) ** 2  # d_s: squared distance by which one unit of site s moves the weighted mean
    above = min(S - honest, (S - 1) // honest)
    level = np.sort(moved)[S - 1 - above] / honest
    y = level + np.maximum(0.0, moved - honest * level)
    # The sum is rounded once, in any order of the sites. The pooled variance is 1/N^2.
    y = y / (math.fsum(y.tolist()) * np.sum(units) ** 2)
    # Rounding can make the difference negative where one site has nearly all units and nearly all weight.
    common = max(float(np.max(p * p * tau2 - y)), 0.0) / (1 - 1 / S)
    return common / (p * p), y / (p * p)


def _variances_capedjica(p: Floats, tau2: Floats, pooled2: float) -> tuple[Floats, Floats]:
    """capeDJICA, section III-C: var(g_s) = pooled/(p_s^2 S), and var(e_s) + var(g_s) = tau_s^2 solved for r_s.

    In the unknowns y_s = p_s^2 var(r_s) the paper's matrix is (1 - 2/S) I + 11'/S^2, inverted here by hand. (The last
    entry of its printed right-hand side divides by S^2; its own derivation gives S.)
    """
    # Right-hand side in y_s = p_s^2 var(r_s). The matrix has the eigenvalue 1 - 1/S on the constant vector and 1 - 2/S
    # on vectors of mean zero, so the mean of the right-hand side and the deviations from it are divided separately.
    S = len(p)
    own2 = pooled2 / (p * p * S)
    right = p * p * (tau2 - own2)
    mean = float(np.mean(right))
    apart = right - mean
    if S > 2:
        apart = apart / (1 - 2 / S)
    # With S = 2 the second eigenvalue is 0. The tolerance is relative rounding; it was chosen by hand, no benchmark
    # recorded.
    elif np.max(np.abs(apart)) > 1e-12 * abs(mean):
        return np.full(S, math.nan), own2  # no solution unless both sites have the same right-hand side
    return (mean / (1 - 1 / S) + apart) / (p * p), own2


def _variances_capepca(p: Floats, tau2: Floats, pooled2: float) -> tuple[Floats, Floats]:
    """capePCA, section III-A: e_s is independent for s < S, and the last site takes the remainder, so that the weighted
    sum is zero.

    The last entry of the returned cancelling variance is infinite: e_S has no draw of its own. With equal requirements
    the paper's var(g_S) is (3 - S)/2 tau^2, which is negative from four sites on (then `_variances_solved` is used).
    """
    S = len(p)
    rest = pooled2 - float(np.sum(p[:-1] ** 2 * tau2[:-1]))
    last = tau2[-1] / 2 - rest / (2 * p[-1] ** 2)
    cancelling2 = p[-1] ** 2 * last / (p**2 * (S - 1))
    own2 = tau2 - cancelling2
    own2[-1] = tau2[-1] - last
    cancelling2[-1] = math.inf if last >= 0 else last
    return cancelling2, own2
