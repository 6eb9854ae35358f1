"""The noise schemes: who draws what, who sees what.

Every scheme is one linear Gaussian law over S sites. Site s multiplies its sum by a public factor c_s and sends

    m_s = c_s f_s + e_s + g_s        the release is  sum of p_s m_s,  with  sum of p_s e_s = 0

where g_s (standard deviation `own`) stays with the site and e_s (from draws of standard deviation `cancelling`)
vanishes from the release. The schemes differ in the four vectors and in how e_s comes about (`Mixing`):

| scheme           | c_s      | p_s         | own          | cancelling | mixing    |
|------------------|----------|-------------|--------------|------------|-----------|
| non-private      | 1        | 1           | 0            | 0          | NONE      |
| pooled           | 1        | 1           | 0, central 1 | 0          | TRUSTED   |
| local            | a_s      | 1           | 1            | 0          | NONE      |
| cape-published   | a_s      | 1           | 1/sqrt(S)    | 1          | BROADCAST |
| cape-helper      | a_s      | 1           | 1/sqrt(S)    | 1          | HELPER    |
| zero-sum         | a_s      | 1           | 1            | ratio      | BROADCAST |
| pairwise         | a_s      | 1           | 1            | ratio/sqrt(H) a pair | PAIRWISE |
| secure-sum       | a_s      | 1           | 1            | infinite   | MASKED    |

all times one scale that calibration chooses. a_s in (0, 1] is what a site asks for that wants a stronger guarantee:
its units enjoy a_s mu. The two cape forms can also combine their sites as the papers do (`Combine`): means of
unequal sites with noise that grows as they shrink, c_s = 1/n_s.
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


class NoiseMechanism(Enum):
    """How the cancelling noise comes about, and so what a coalition learns of it."""

    NONE = "none"  # no cancelling noise: each message stands alone
    TRUSTED = "trusted"  # the coordinator sees the data and adds the noise itself
    BROADCAST = "broadcast"  # e_s = r_s - B/(p_s S); the sum B of p_s r_s is public, r_s is the site's own
    HELPER = "helper"  # a trusted helper deals e_s to site s, the coordinator deals f_s and subtracts it
    PAIRWISE = "pairwise"  # two sites expand the same stream; one adds it, one subtracts it
    MASKED = "masked"  # uniform masks in a ring: only the sum is readable


class Combine(Enum):
    """How unequal sites are put together."""

    SUMS = "sums"  # ours: sums are added, so a unit weighs the same wherever it lives
    MEANS = "means"  # capeDJICA and capeFM, Algorithm 2: the plain average of the sites' means
    WEIGHTED = "weighted"  # capeDJICA section III-C, capePCA section III-A: weighted means, solved variances


@dataclass(frozen=True)
class SiteShape:
    """What is public about a site: its number of units (None: not declared), the guarantee it asks for, and the weight
    of its mean (papers' weighted combination only; None: in proportion to its units)."""

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
    """The noise of one release: drawn by the sites and accounted by `zerosum.kernel.view`, from this object."""

    mechanism: NoiseMechanism
    factor: Floats  # c_s
    weight: Floats  # p_s
    own: Floats  # standard deviation of g_s
    cancelling: Floats  # standard deviation of r_s (of e_s where dealt in turn; of a pair's stream)
    central: float = 0.0  # standard deviation of a trusted coordinator's noise
    step: float = 0.0  # of the grid that values and noise live on; 0: double precision
    rounding: float = 0.0  # what rounding adds to how far a unit moves its site's message

    def site_sensitivity(self, sensitivity: float, site: int) -> float:
        """How far one unit moves its site's message, in L2 norm."""
        return float(sensitivity * self.factor[site]) + self.rounding

    @property
    def own_variance(self) -> Floats:
        """Of the normal that a site's own noise is accounted as."""
        return np.maximum(self.own**2 - self.step**2 / 12, 0.0)

    @property
    def central_variance(self) -> float:
        return max(self.central**2 - self.step**2 / 12, 0.0)

    @property
    def sites(self) -> int:
        return len(self.factor)

    @property
    def noise_std(self) -> float:
        """Standard deviation of each coordinate of the release."""
        return math.sqrt(float(np.sum((self.weight * self.own) ** 2)) + self.central**2)

    def scaled(self, by: float) -> NoiseLaw:
        """The same law with all its noise multiplied; mu is divided by as much."""
        return replace(self, own=self.own * by, cancelling=self.cancelling * by, central=self.central * by)


def draw_step(law: NoiseLaw) -> float:
    """The grid on which BROADCAST sums its draws: fine enough to be no part of the noise, coarse enough not to wrap."""
    return 2.0 ** (math.ceil(math.log2(float(np.max(law.cancelling * law.weight)))) - 45)


@dataclass(frozen=True)
class SchemeFacts:
    """What is so of a scheme by its name alone. Whoever must know asks here."""

    mechanism: NoiseMechanism
    noisy: bool = True
    sees_data: bool = False  # whether the coordinator is trusted with the data themselves
    deals_noise: bool = False  # whether the coordinator deals noise that it is trusted not to use
    secure: bool = False  # whether a secure sum runs underneath: of contributions, or of draws that make noise cancel
    ratio: bool = False  # whether `Scheme.ratio` is a setting of it
    combines: tuple[Combine, ...] = (Combine.SUMS,)
    published: bool = False  # whether the papers have a calibration for it
    tolerates_losses: bool = True


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
    """A named scheme and its few settings; `law` makes it concrete for given sites."""

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
            raise BadParameter("capePCA has no plain average of unequal means; use combine = 'weighted'")

    @property
    def facts(self) -> SchemeFacts:
        """What is so of this scheme by its name alone."""
        return SCHEMES[self.name]

    def law(self, shapes: Sequence[SiteShape], honest: int) -> NoiseLaw:
        """The law at unit scale; `honest` sites are left in the worst case, which pairwise streams are sized for."""
        S = len(shapes)
        ones, zeros = np.ones(S), np.zeros(S)
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
        mechanism = self.facts.mechanism
        if self.combine is Combine.SUMS:
            return NoiseLaw(mechanism, asked, ones, ones / math.sqrt(S), ones)
        units = _units(shapes)
        if self.combine is Combine.MEANS:
            return _average_of_means(mechanism, units, asked)
        return _weighted_means(mechanism, units, asked, _weights(shapes, units))

    def as_record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"name": self.name}
        if self.facts.ratio:
            record["ratio"] = self.ratio
        if self.combine is not Combine.SUMS:
            record["combine"] = self.combine.value
        return record


def _units(shapes: Sequence[SiteShape]) -> Floats:
    if any(shape.units is None for shape in shapes):
        raise BadParameter("combining means needs every site's number of units, declared in the study")
    return np.array([float(shape.units or 0) for shape in shapes])


def _weights(shapes: Sequence[SiteShape], units: Floats) -> Floats:
    given = [shape.weight for shape in shapes if shape.weight is not None]
    if not given:
        return units / np.sum(units)
    weights = np.array(given)
    if len(given) < len(shapes) or np.any(weights <= 0) or abs(math.fsum(given) - 1) > 1e-9:
        raise BadParameter("weights must be given for all sites or none, be positive and add up to 1")
    return weights


def _average_of_means(mechanism: NoiseMechanism, units: Floats, asked: Floats) -> NoiseLaw:
    """Algorithm 2 of capeDJICA and capeFM with unequal sites: site s adds noise tau_s = 1/(n_s a_s) to its mean.

    Scaled by N, so that the release still estimates a sum over units.
    """
    S, N = len(units), float(np.sum(units))
    tau = 1 / (units * asked)
    return NoiseLaw(mechanism, 1 / units, np.full(S, N / S), tau / math.sqrt(S), tau)


def _weighted_means(mechanism: NoiseMechanism, units: Floats, asked: Floats, p: Floats) -> NoiseLaw:
    """Weighted means whose variances are solved for, so that the release meets the pooled noise tau_c = 1/N."""
    N = float(np.sum(units))
    tau2 = 1 / (units * asked) ** 2
    solve = _variances_capedjica if mechanism is NoiseMechanism.BROADCAST else _variances_capepca
    cancelling2, own2 = solve(p, tau2, 1 / N**2)
    if np.any(~(cancelling2 >= 0)) or np.any(~(own2 >= 0)):
        raise BadParameter(
            "the papers' equations for unequal sites have no solution here (a variance would be negative); "
            "use combine = 'sums'"
        )
    return NoiseLaw(mechanism, 1 / units, N * p, np.sqrt(own2), np.sqrt(cancelling2))


def _variances_capedjica(p: Floats, tau2: Floats, pooled2: float) -> tuple[Floats, Floats]:
    """capeDJICA, section III-C: var(g_s) = pooled/(p_s^2 S), and var(e_s) + var(g_s) = tau_s^2 solved for r_s.

    In the unknowns y_s = p_s^2 var(r_s) the paper's matrix is (1 - 2/S) I + 11'/S^2, inverted here by hand. (The last
    entry of its printed right-hand side divides by S^2; its own derivation gives S.)
    """
    S = len(p)
    own2 = pooled2 / (p * p * S)
    right = p * p * (tau2 - own2)
    mean = float(np.mean(right))
    apart = right - mean
    if S > 2:
        apart = apart / (1 - 2 / S)
    elif np.max(np.abs(apart)) > 1e-12 * abs(mean):
        return np.full(S, math.nan), own2  # two sites cannot differ
    return (mean / (1 - 1 / S) + apart) / (p * p), own2


def _variances_capepca(p: Floats, tau2: Floats, pooled2: float) -> tuple[Floats, Floats]:
    """capePCA, section III-A: e_s independent for s < S, the last one takes what is left over.

    The last entry of the cancelling variance is infinite here: e_S has no draw of its own. With equal requirements the
    paper's var(g_S) is (3 - S)/2 tau^2: negative, so no solution, from four sites on.
    """
    S = len(p)
    rest = pooled2 - float(np.sum(p[:-1] ** 2 * tau2[:-1]))
    last = tau2[-1] / 2 - rest / (2 * p[-1] ** 2)
    cancelling2 = p[-1] ** 2 * last / (p**2 * (S - 1))
    own2 = tau2 - cancelling2
    own2[-1] = tau2[-1] - last
    cancelling2[-1] = math.inf if last >= 0 else last
    return cancelling2, own2
