"""Fast rehearsal of a program for the figures: the sums of all sites and the noise of a scheme, in one process.

**Public or synthetic data only.** One process holds the data of all sites, the noise comes from a seeded generator, no
ledger is charged and no message is sent: nothing is protected.

Model. Site s holds f_s, the sum of a statistic over its units. A release is

    sum over s of p_s c_s f_s + N(0, v I),      v = sum over s of (p_s own_s)^2 + central^2,

with the factors of the scheme's `NoiseLaw` at the noise `tau`. This is the law of a release of a real run; the
cancelling noise is not part of it. `tau` has the meaning that it has in `zerosum.kernel.calculator.account`: the
papers' tau for the two cape schemes, the noise of each site for `local`, that of the sum for `pooled`. It is in units
of the sum. The papers state it for means of n units at a site: their tau is n times smaller.

| scheme | noise of the sum | noise of the mean over S sites of n units |
|---|---|---|
| cape-published, cape-helper | tau | tau/(S n) |
| local (the papers' conv) | tau sqrt(S) | tau/(sqrt(S) n) |
| pooled | tau | tau/(S n) |
| one site alone: `pooled` with that site's data only | tau | tau/n |
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Algorithm, Estimate
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadData, BadParameter
from zerosum.kernel import amounts, published
from zerosum.kernel.calculator import account
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.schemes import Scheme, SiteShape
from zerosum.kernel.statistic import Adjacency, Statistic
from zerosum.kernel.view import Coalition
from zerosum.papers.methods.ica import plain_gradient
from zerosum.statistics.published import InfomaxGradient

# The noise tau of a release, or a function that gives it for each request.
Tau = float | Callable[[PrivateSum], float]

# Statistic to its sum in plain floating-point arithmetic, for a statistic that takes several times as long in the exact
# products of a real run. There no bit of a unit's values depends on other units; here nothing is protected.
PLAIN_SUMS: dict[type[Statistic], Callable[[Any, Units], Floats]] = {InfomaxGradient: plain_gradient}


class PublicSums(ABC):
    """Sums over public or synthetic data of several sites, on which programs are rehearsed.

    Parameters
    ----------
    columns : int
        Columns of the data.
    units : list of int
        Units of each site.
    """

    def __init__(self, columns: int, units: list[int]) -> None:
        self.columns, self.units = columns, units
        # Digest of a planned request to the sums of all sites.
        self._planned: dict[str, list[Floats]] = {}

    @abstractmethod
    def sums(self, request: PrivateSum) -> list[Floats]:
        """The exact sum of every site."""

    def rehearse(
        self,
        algorithm: Algorithm,
        scheme: str | Scheme = "non-private",
        tau: Tau = 0.0,
        rng: np.random.Generator | None = None,
    ) -> Estimate:
        """The estimate of a program whose requests are answered with the sums of these data and noise.

        Neighbours have one unit replaced, and the number of units is public.

        Parameters
        ----------
        algorithm : Algorithm
            The program. It may ask for sums over all units.
        scheme : str or Scheme
            Its noise law, and how sites are combined.
        tau : float or callable
            The noise of a release, in units of the sum; see the module's docstring. Not used by `non-private`.
        rng : Generator, optional
            Source of the noise; required with noise.

        >>> from zerosum.papers.programs import CapePCAProgram
        >>> data = PublicData([[[0.6, 0.0], [0.0, 0.1]], [[0.5, 0.0]]])
        >>> found = data.rehearse(CapePCAProgram(columns=("a", "b"), n_components=1, clip=1.0))
        >>> [round(float(value), 3) for value in np.asarray(found["components"])[0]]
        [1.0, 0.0]
        """
        if self.columns != len(algorithm.columns):
            raise BadData(f"{algorithm.name} has {len(algorithm.columns)} columns, got data of {self.columns}")
        scheme = Scheme(scheme) if isinstance(scheme, str) else scheme
        law = scheme.law([SiteShape(n) for n in self.units], len(self.units))
        # p_s and c_s of the module's docstring, in one factor for each site.
        weights = law.weight * law.factor
        units = float(weights @ self.units)
        # A request that equals its template in the plan depends on no release, so that many runs share its sums. After
        # the first one that depends on a release no other is compared, since digests of large parameters take time.
        planned = {each.digest() for each in set(algorithm.requests(Adjacency.REPLACE_ONE))}
        unconditional = True

        def answer(request: Request) -> Release:
            nonlocal unconditional
            if not isinstance(request, PrivateSum) or not (request.sampling is None or request.sampling.full):
                raise BadParameter(f"only sums over all units are rehearsed, got another request of {algorithm.name}")
            digest = request.digest() if unconditional else ""
            unconditional = digest in planned
            totals = self._planned.get(digest) or self.sums(request)
            if unconditional:
                self._planned[digest] = totals
            # The cancelling noise of the sites is left out: it is exactly 0 in the sum, which is all that a program
            # sees.
            value = np.asarray(sum(w * total for w, total in zip(weights, totals, strict=True)))
            std = 0.0
            if scheme.facts.noisy:
                scale = tau(request) if callable(tau) else tau
                if rng is None or not (scale > 0 and math.isfinite(scale)):
                    raise BadParameter(f"noise must be positive and finite and needs a generator, got tau = {scale:g}")
                # The law is linear in tau.
                std = law.noise_std * scale
                value = value + std * rng.standard_normal(value.shape)
            return Release(value, std, units, tuple(f"site {s + 1}" for s in range(len(totals))))

        return drive(algorithm.program(Adjacency.REPLACE_ONE), answer)[0]


class PublicData(PublicSums):
    """Public or synthetic data of several sites.

    Parameters
    ----------
    sites : sequence of array or Units
        The data of each site. Every row of an array is a unit.
    """

    def __init__(self, sites: Sequence[ArrayLike | Units]) -> None:
        self.sites = [site if isinstance(site, Units) else Units.from_rows(site) for site in sites]
        if not self.sites:
            raise BadData("there are no sites")
        for site in self.sites:
            site.check()
        columns = {site.columns for site in self.sites}
        if len(columns) > 1:
            raise BadData(f"all sites must have the same columns, got {sorted(columns)}")
        super().__init__(columns.pop(), [len(site) for site in self.sites])

    def sums(self, request: PrivateSum) -> list[Floats]:
        """The exact sum of every site."""
        statistic = request.statistic
        plain = PLAIN_SUMS.get(type(statistic))
        return [statistic.total(site) if plain is None else plain(statistic, site) for site in self.sites]


# ---- calibration ----------------------------------------------------------------------------------------------------


def published_tau(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The papers' noise of one release, sqrt(2 ln(1.25/delta)) D/epsilon.

    >>> round(published_tau(1.0, 1e-5), 4)
    4.8448
    """
    amounts.check_epsilon(epsilon)
    amounts.check_delta(delta)
    # The classical formula is proved for epsilon below 1 only; the papers use it beyond, and so do their figures.
    return published.gaussian_mechanism(sensitivity, 1.0, delta) / epsilon


def exact_tau(
    scheme: str, epsilon: float, delta: float, *, sites: int, colluders: int, sensitivity: float = 1.0
) -> float:
    """Noise at which one release under a scheme is exactly (epsilon, delta)-private against the coalition.

    >>> round(exact_tau("pooled", 1.0, 1e-5, sites=5, colluders=1), 4)
    3.7306
    """
    coalition = Coalition(colluders)
    cost = account(
        Scheme(scheme), sites=sites, coalition=coalition, sensitivity=sensitivity, delta=delta, epsilon=epsilon
    )
    # Sites of the papers are alike, so that the first noise is that of each.
    return next(iter(cost.noise.values()))


def exact_epsilon(
    scheme: str, tau: float, delta: float, *, sites: int, colluders: int, sensitivity: float = 1.0
) -> float:
    """Exact epsilon of one release with noise `tau` under a scheme, against the coalition.

    >>> round(exact_epsilon("cape-published", published_tau(1.0, 1e-5), 1e-5, sites=5, colluders=1), 3)
    1.06
    """
    coalition = Coalition(colluders)
    return account(
        Scheme(scheme), sites=sites, coalition=coalition, sensitivity=sensitivity, delta=delta, tau=tau
    ).epsilon
