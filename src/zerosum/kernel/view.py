"""The adversary's exact view: mu of every honest site, for every scheme and every coalition.

Symbols. z is the vector of all independent Gaussian draws, with diagonal covariance V. f is the vector of the honest
sites' sums, and u_s the unit vector of site s. D_s is the sensitivity of site s (`NoiseLaw.site_sensitivity`; it
contains c_s). The coalition (the coordinator and C sites) reads m = F f + A z and knows K z. Its view of site s is
exactly mu_s-Gaussian-DP with

    mu_s^2 = D_s^2  min { z' V^-1 z : A z = F u_s, K z = 0 }            (infinite when infeasible)

`view` builds the matrices and `solve` computes the minimum. They are the reference. `mu_squared` has the closed forms
that planning uses. Let a_s be the variance of the cancelling noise and b_s of the own noise. The weighted
cancelling noise p_t e_t sums to zero over the honest sites H, which gives, by one Lagrange multiplier,

    mu_s^2 = (D c_s)^2 [ 1/(a_s + b_s) + (p_s a_s/(a_s + b_s))^2 / sum over t in H of p_t^2 a_t b_t/(a_t + b_t) ]

for every mechanism but the pairwise one. The formula holds for a_s = 0 (local) and in the limit of infinite a_s (a
secure sum, or the site that takes the remainder). Only the last sum depends on the coalition, so the worst coalition
has the C sites with the largest terms. A site that is lost reveals no more than one that colludes: L losses count as L
further colluders.

The dealer of the noise of HELPER knows every e_t, whatever the coalition. Against the dealer only b_s is left, and
mu_s = D c_s / sqrt(b_s) (`dealer_mu`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.amounts import check_amount, check_count
from zerosum.kernel.schemes import NoiseLaw, NoiseMechanism

Parts = tuple[Floats, Floats, Floats]


@dataclass(frozen=True)
class Coalition:
    """The threat model: how many sites may collude with the coordinator, and how many may be lost in one round."""

    colluders: int
    dropouts: int = 0

    def __post_init__(self) -> None:
        check_count("colluders", self.colluders, least=0)
        check_count("dropouts", self.dropouts, least=0)

    def honest(self, sites: int) -> int:
        """Number of sites that neither collude nor are lost in the worst case. Refuses a coalition that leaves none."""
        if sites < 2:
            raise BadParameter(f"a joint study needs at least two sites, got {sites}")
        if self.colluders > sites - 1:
            raise BadParameter(f"at most {sites - 1} of {sites} sites can collude, got {self.colluders}")
        left = sites - self.colluders - self.dropouts
        if left < 1:
            raise BadParameter(
                f"{self.colluders} colluders and {self.dropouts} dropouts leave no honest site among {sites}"
            )
        return left

    @staticmethod
    def default(sites: int) -> Coalition:
        """The papers' bound, ceil(S/3) - 1 colluders, but never fewer than one."""
        return Coalition(max(1, math.ceil(sites / 3) - 1))


# ---- closed forms ----------------------------------------------------------------------------------------------


def mu_squared(
    law: NoiseLaw, sensitivity: float, site: int, honest: Sequence[int], terms: Parts | None = None
) -> float:
    """mu^2 of one honest site by the closed forms, if exactly the sites in `honest` do not collude.

    Parameters
    ----------
    law:
        The noise of the release.
    sensitivity:
        D, the L2 sensitivity of the sum over units, before the factor c_s.
    site:
        Index of the site whose units are attacked; it is one of `honest`.
    honest:
        Indices of the honest sites.
    terms:
        The result of `_terms(law)`, if the caller has computed it.
    """
    if law.mechanism is NoiseMechanism.TRUSTED:
        return _ratio(law.site_sensitivity(sensitivity, site) ** 2, law.central_variance)
    index = np.asarray(honest, dtype=np.intp)
    if law.mechanism is NoiseMechanism.PAIRWISE:
        return _pairwise(law, sensitivity, site, index)
    # The closed form holds for a helper only if all weighted draws have one variance, or if the last site takes the
    # remainder: then the colluders' e_t contain no more about the honest draws than their sum.
    if law.mechanism is NoiseMechanism.HELPER and np.isfinite(law.cancelling[-1]):
        weighted = law.weight * law.cancelling
        # 2^-40 covers the rounding of the square roots and products in `schemes`.
        if np.ptp(weighted) > 2.0**-40 * np.max(weighted):
            raise BadParameter(
                "a helper's weighted noise must have one standard deviation for all sites, or leave the remainder to "
                f"the last site, got {weighted.tolist()}"
            )
    base, shrink, left = _terms(law) if terms is None else terms
    second = _ratio((law.weight[site] * shrink[site]) ** 2, float(np.sum(left[index])))
    return float(law.site_sensitivity(sensitivity, site) ** 2 * (base[site] + second))


def worst_mu(law: NoiseLaw, sensitivity: float, coalition: Coalition) -> Floats:
    """mu of every site against its own worst coalition, shape (S,). Lost sites count as colluders."""
    S, away, terms = law.sites, law.sites - coalition.honest(law.sites), _terms(law)
    # Rank sites by their term in the sum over H: the worst coalition consists of the sites with the largest terms. The
    # order is the same for every victim.
    value = law.own if law.mechanism is NoiseMechanism.PAIRWISE else terms[2]
    order: list[int] = np.argsort(-value, kind="stable").tolist()
    head, tail, shorter = set(order[:away]), order[away:], order[away + 1 :]
    # A victim among the first `away` sites cannot collude against its own units, so the next site in the order colludes
    # instead.
    honest = [[s, *shorter] if s in head else tail for s in range(S)]
    return np.array([math.sqrt(mu_squared(law, sensitivity, s, honest[s], terms)) for s in range(S)])


def dealer_mu(law: NoiseLaw, sensitivity: float, coalition: Coalition) -> Floats:
    """mu of every site against a coordinator that uses all its knowledge, the cancelling noise that it dealt included;
    shape (S,).

    Only a helper deals noise. For every other mechanism this is `worst_mu`.
    """
    if law.mechanism is not NoiseMechanism.HELPER:
        return worst_mu(law, sensitivity, coalition)
    # The dealer subtracts every e_s. What is left is the local mechanism with noise g_s.
    alone = replace(law, mechanism=NoiseMechanism.NONE, cancelling=np.zeros(law.sites))
    return worst_mu(alone, sensitivity, coalition)


def calibrate(law: NoiseLaw, sensitivity: float, coalition: Coalition, mu: float) -> NoiseLaw:
    """Scale the noise so that no site's mu exceeds the target.

    Rounding is to the private side: mu of the returned law, computed in double precision by `worst_mu`, is at most
    `mu`.

    Parameters
    ----------
    law:
        The noise at any scale.
    sensitivity:
        D, the L2 sensitivity of the sum over units.
    coalition:
        The threat model; every site is calibrated against its own worst coalition.
    mu:
        The target, positive and finite.
    """
    if not (mu > 0 and math.isfinite(mu)):
        raise BadParameter(f"mu must be positive and finite, got {mu:g}")
    check_amount("the sensitivity", sensitivity)
    worst = float(np.max(worst_mu(law, sensitivity, coalition)))
    if not 0 < worst < math.inf:
        raise BadParameter("this scheme adds no noise that could be calibrated")
    scale = worst / mu
    # Without a grid one division is exact up to rounding. On a grid, own_variance is own^2 - step^2/12, so mu is not
    # proportional to 1/scale. The factor of at least 1 + 2^-50 guarantees progress where worst/mu rounds to 1.
    scaled = law.scaled(scale)
    while (worst := float(np.max(worst_mu(scaled, sensitivity, coalition)))) > mu:
        scale *= max(worst / mu, 1 + 2.0**-50)
        scaled = law.scaled(scale)
    return scaled


def _terms(law: NoiseLaw) -> Parts:
    """Return 1/(a+b), a/(a+b) and p^2 a b/(a+b) for every site, each of shape (S,), including a = 0, b = 0 and infinite
    a.
    """
    # The limits are written out, since inf/inf and 0/0 would give NaN: a -> inf gives (0, 1, p^2 b), and a = 0 gives
    # (1/b, 0, 0).
    a, b = law.cancelling**2, law.own_variance
    with np.errstate(divide="ignore", invalid="ignore"):
        base = np.where(np.isinf(a), 0.0, 1 / (a + b))
        shrink = np.where(np.isinf(a), 1.0, np.where(a == 0, 0.0, a / (a + b)))
    return base, shrink, law.weight**2 * b * shrink


def _pairwise(law: NoiseLaw, sensitivity: float, site: int, index: NDArray[np.intp]) -> float:
    """mu^2 under pairwise streams: Sherman-Morrison on diag(v H + b) - v 11', written so that nothing cancels at large
    v.

    v is the variance of one pair's stream, b the own variances of the honest sites (`index`), and H their number.
    """
    if np.ptp(law.cancelling) > 0 or np.any(law.weight != 1):
        raise BadParameter(
            "pairwise streams need one standard deviation for all pairs and weights of 1, got "
            f"{law.cancelling.tolist()} and {law.weight.tolist()}"
        )
    v, b, H = float(law.cancelling[0]) ** 2, law.own_variance[index], len(index)
    own = v * H + float(law.own_variance[site])
    second = _ratio(v / own / own, float(np.sum(b / (v * H + b))) / H) if v > 0 else 0.0
    return float(law.site_sensitivity(sensitivity, site) ** 2 * (_ratio(1.0, own) + second))


def _ratio(top: float, bottom: float) -> float:
    """top/bottom, with 0/x = 0 and x/0 = infinity: a site without noise has infinite mu, not an error."""
    if top == 0:
        return 0.0
    return top / bottom if bottom > 0 else math.inf


# ---- the general solver ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A coalition's view: it reads A z + F f and knows K z.

    `honest` holds the indices of the honest sites, one per column of F. A has one row per number that is read and one
    column per draw; K has one row per known combination of draws; V holds the variances of the draws.
    """

    law: NoiseLaw
    read: Floats  # A, shape (numbers read, draws)
    data: Floats  # F
    known: Floats  # K
    variance: Floats  # V
    honest: tuple[int, ...]

    def mu_squared(self, sensitivity: float, site: int) -> float:
        """mu^2 of one honest site by the general solver."""
        # A unit of the site moves f by at most D in direction u_s, so the numbers read move along this column of F.
        moved = self.data[:, self.honest.index(site)]
        return self.law.site_sensitivity(sensitivity, site) ** 2 * solve(self.read, moved, self.known, self.variance)


def solve(read: Floats, shift: Floats, known: Floats, variance: Floats) -> float:
    """min { z' V^-1 z : read z = shift, known z = 0 }, or infinity if the constraints are infeasible.

    In the variables w = V^(-1/2) z this is the least-norm solution of an underdetermined system. Draws that are known
    one by one are left out exactly. The other constraints go through a QR factorisation with pivoted columns and with
    rows in falling order. That factorisation is backward stable row by row, so the result is accurate for variances
    that differ by 16 orders of magnitude, where inverting the conditional covariance returns nonsense.

    Parameters
    ----------
    read:
        A, shape (numbers read, draws).
    shift:
        F u_s, shape (numbers read,).
    known:
        K, shape (known combinations, draws); may be empty.
    variance:
        The diagonal of V, shape (draws,).
    """
    from scipy.linalg import qr, solve_triangular

    fixed = np.zeros(len(variance), dtype=bool)
    # A row of K with one entry fixes that draw at 0. Eliminating the draw is exact; a constraint row would be subject
    # to rounding.
    single = np.count_nonzero(known, axis=1) == 1 if known.size else np.zeros(0, dtype=bool)
    for row in known[single] if known.size else []:
        fixed |= row != 0
    free = ~fixed & (variance > 0)
    constraints = np.vstack([read[:, free], known[~single][:, free]]) if known.size else read[:, free]
    target = np.concatenate([shift, np.zeros(len(constraints) - len(shift))])
    # Transposed, since the least-norm solution of C w = t comes from the QR factorisation of C'.
    tall = (constraints * np.sqrt(variance[free])).T
    size = np.max(np.abs(tall), axis=0, initial=0.0)
    # A constraint without a free draw: infeasible if the data move it, which means that a unit is visible without
    # noise.
    if np.any(target[size == 0] != 0):
        return math.inf
    tall, target = tall[:, size > 0] / size[size > 0], target[size > 0] / size[size > 0]
    tall = tall[np.argsort(-np.max(np.abs(tall), axis=1, initial=0.0), kind="stable")]
    _, triangle, pivots = qr(tall, mode="economic", pivoting=True)
    # Columns have largest entry 1 here. The tolerances 1e-13 and 1e-9 were chosen by hand; no benchmark recorded.
    rank = int(np.sum(np.abs(np.diag(triangle)) > 1e-13 * len(tall)))
    square, target = triangle[:rank, :rank], target[pivots]
    solution = solve_triangular(square, target[:rank], trans="T")
    # Dependent constraints must hold for the same solution; else the system is infeasible and the guarantee is void.
    missed = target[rank:] - triangle[:rank, rank:].T @ solution
    if np.any(np.abs(missed) > 1e-9 * max(1.0, float(np.max(np.abs(target))))):
        return math.inf
    return float(solution @ solution)


def view(law: NoiseLaw, honest: Sequence[int], *, dealer: bool = False) -> View:
    """Build the matrices of a law for the coalition of the coordinator with every site that is not in `honest`.

    With `dealer`, the coordinator has dealt a helper's noise and knows every site's e_s, not only the colluders'.
    """
    S, index = law.sites, tuple(sorted(honest))
    colluding = [s for s in range(S) if s not in honest]
    none = np.zeros((0, 0))
    eye = np.eye(S)
    match law.mechanism:
        case NoiseMechanism.TRUSTED:
            return View(law, np.ones((1, 1)), np.ones((1, len(index))), none, np.array([law.central_variance]), index)
        case NoiseMechanism.MASKED:
            # Only the weighted sum over the honest sites is readable: the colluders subtract their own part from the
            # total.
            reads = (law.weight * eye[list(index)].sum(axis=0))[None, :]
            return View(law, reads, law.weight[None, list(index)], eye[colluding], law.own_variance, index)
        case NoiseMechanism.NONE:
            return View(law, eye[list(index)], np.eye(len(index)), eye[colluding], law.own_variance, index)
        case NoiseMechanism.PAIRWISE:
            mixing, known = _pair_streams(S, colluding)
            variance = np.full(mixing.shape[1], law.cancelling[0] ** 2)
        case NoiseMechanism.BROADCAST:
            mixing = eye - np.outer(1 / (law.weight * S), law.weight)
            # The coalition knows the public sum B of p_s r_s, and the draws r_s of the colluders.
            known, variance = np.vstack([law.weight[None, :], eye[colluding]]), law.cancelling**2
        case NoiseMechanism.HELPER:
            mixing, variance = _dealt(law)
            known = mixing if dealer else mixing[colluding]
    draws = mixing.shape[1]
    # Colluders know their own noise g_s as well. The draws are ordered: cancelling draws first, then g_1 to g_S.
    known_own = np.hstack([np.zeros((len(colluding), draws)), eye[colluding]])
    return View(
        law,
        np.hstack([mixing, eye])[list(index)],
        np.eye(len(index)),
        np.vstack([np.hstack([known, np.zeros((len(known), S))]), known_own]),
        np.concatenate([variance, law.own_variance]),
        index,
    )


def _dealt(law: NoiseLaw) -> tuple[Floats, Floats]:
    """Return how a helper makes e from its draws (shape (S, draws)) and the variances of the draws.

    All weighted draws alike, or the last site takes the remainder; then its `cancelling` is infinite and it has no
    draw.
    """
    S, eye = law.sites, np.eye(law.sites)
    if not np.isinf(law.cancelling[-1]):
        return eye - np.outer(1 / (law.weight * S), law.weight), law.cancelling**2
    mixing = np.vstack([eye[:-1, :-1], -law.weight[None, :-1] / law.weight[-1]])
    return mixing, law.cancelling[:-1] ** 2


def _pair_streams(sites: int, colluding: list[int]) -> tuple[Floats, Floats]:
    """Return the signs of the pair streams at each site, shape (S, pairs), and the rows of K for streams known to a
    colluder.
    """
    pairs = list(combinations(range(sites), 2))
    mixing = np.zeros((sites, len(pairs)))
    for column, (s, t) in enumerate(pairs):
        mixing[s, column], mixing[t, column] = 1.0, -1.0
    shared = [column for column, pair in enumerate(pairs) if set(pair) & set(colluding)]
    return mixing, np.eye(len(pairs))[shared]
