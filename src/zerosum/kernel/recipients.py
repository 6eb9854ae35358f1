"""What each recipient of a study can learn: the best guess of the coordinator, of colluding sites and of a reader.

The plan states one figure, for the coordinator together with C sites. Other recipients see less. Let f_s be the sum of
site s, with D_s the distance by which one unit moves its message (`NoiseLaw.site_sensitivity`), p_s its weight, and b_s
the variance of its own noise. Three views, each for L lost sites in the worst case:

- **The coordinator with k sites**: `zerosum.kernel.view.worst_mu` for k colluders. A coordinator that dealt the
  cancelling noise knows that noise (`dealer_mu`).
- **k sites without the coordinator** know the released sum, if results go to the sites, and their own noise. The
  cancelling noise is not in the released sum, so that

      mu_s = p_s D_s / sqrt( sum over the other sites t of p_t^2 b_t  +  b_0 )

  with b_0 the noise of a trusted coordinator. Lost sites count as sites that know their noise, as everywhere.
- **A reader of the result** is that view with k = 0.

A publication carries the noise of its own site only, and every recipient of the records has the same view of it.
Laplace noise is drawn in shares: fewer colluders leave more than one whole Laplace variable, whose loss has no closed
form here. The loss of the planned coalition is then an upper bound, and the figure is marked as one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerosum.arrays import Floats
from zerosum.kernel import laplace
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import NoiseLaw, NoiseMechanism
from zerosum.kernel.view import Coalition, dealer_mu, worst_mu


@dataclass(frozen=True)
class Recipient:
    """One recipient of a study and the largest probability of a correct guess between two neighbouring data sets.

    Parameters
    ----------
    name:
        "coordinator", "coalition", "sites" or "reader".
    colluders:
        Number of sites that share what they know with the recipient.
    best_guess:
        The probability, over the units of all sites; 0.5 if the recipient sees nothing, 1 if it sees the data.
    exact:
        False if the figure is an upper bound.
    """

    name: str
    colluders: int
    best_guess: float
    exact: bool = True


def recipients(plan: Plan) -> tuple[Recipient, ...]:
    """The recipients of a plan with their best guesses: coordinator, coordinator with C sites, C sites, reader.

    Parameters
    ----------
    plan:
        The plan. Its noise is that of the study, with all attempts used.

    >>> from zerosum.kernel.schemes import Scheme
    >>> from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
    >>> sites = tuple(PlannedSite(name) for name in "abcd")
    >>> terms = Terms(sites=sites, epsilon=1.0, delta=1e-5, scheme=Scheme("secure-sum"), coalition=Coalition(1))
    >>> plan = Plan.of(terms, "s", "mean", (PlannedRelease("vector_sum", 2.0, 1.0, 3, 1.0),))
    >>> [(each.name, round(100 * each.best_guess, 2)) for each in recipients(plan)]
    [('coordinator', 54.62), ('coalition', 55.33), ('sites', 55.33), ('reader', 54.62)]
    """
    colluders = plan.coalition.colluders
    found = [_of(plan, "coordinator", 0)]
    if colluders:
        found.append(_of(plan, "coalition", colluders))
        found.append(_of(plan, "sites", colluders) if plan.results_to_sites else Recipient("sites", colluders, 0.5))
    return (*found, _of(plan, "reader", 0))


def _of(plan: Plan, name: str, colluders: int) -> Recipient:
    """One recipient, over the worst site."""
    facts, coordinates = plan.scheme.facts, name in ("coordinator", "coalition")
    # A run without noise, or with noise from a known seed, hides nothing from a recipient of its messages.
    if not plan.private or (coordinates and facts.sees_data):
        return Recipient(name, colluders, 1.0)
    costs, exact = [], True
    for r, release in enumerate(plan.releases):
        law = plan.law(plan.first_round(r))
        if release.laplace:
            costs.append(laplace.losses(law, release.accounted))
            exact = exact and colluders == plan.coalition.colluders and law.mechanism is not NoiseMechanism.TRUSTED
        elif coordinates or release.kind == "publication":
            view = dealer_mu if facts.deals_noise and coordinates else worst_mu
            costs.append(view(law, release.accounted, Coalition(colluders, plan.coalition.dropouts)))
        else:
            costs.append(_released_mu(law, release.accounted, colluders + plan.coalition.dropouts))
    guesses = [plan.best_guess_of(tuple(costs), s) for s in _dearest(costs)]
    return Recipient(name, colluders, max(guesses), exact)


def _released_mu(law: NoiseLaw, sensitivity: float, away: int) -> Floats:
    """mu of every site in a released sum whose reader knows the own noise of the `away` worst other sites; shape
    (S,).
    """
    spread = law.weight**2 * law.own_variance
    mus = []
    for s in range(law.sites):
        others = np.sort(np.delete(spread, s))
        # The largest variances are the most that a coalition can subtract.
        left = float(np.sum(others[: len(others) - away])) + float(spread[s]) + law.central_variance
        moved = float(law.weight[s]) * law.site_sensitivity(sensitivity, s)
        mus.append(moved / math.sqrt(left) if left > 0 else math.inf)
    return np.array(mus)


def _dearest(costs: list[Floats]) -> list[int]:
    """Sites that no other site dominates in every release. One of them has the largest figure."""
    table = np.array(costs).T
    kept: list[int] = []
    for site in np.argsort(-table.sum(axis=1), kind="stable").tolist():
        if not any(bool(np.all(table[site] <= table[other])) for other in kept):
            kept.append(site)
    return kept
