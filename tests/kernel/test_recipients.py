"""Best guesses by recipient, against the general solver of an adversary's view."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from helpers.small_studies import make
from zerosum.kernel import accountant
from zerosum.kernel.plan import Plan
from zerosum.kernel.recipients import recipients
from zerosum.kernel.schemes import SCHEMES
from zerosum.kernel.terms import PlannedRelease, PlannedSite
from zerosum.kernel.view import Coalition, solve

NOISY = [name for name, facts in SCHEMES.items() if facts.noisy]


def guesses(plan: Plan) -> dict[str, float]:
    return {each.name: each.best_guess for each in recipients(plan)}


def released_mu(plan: Plan, known: tuple[int, ...], site: int) -> float:
    """mu of a site for a reader of the released sum who knows the own noise of some sites, by the general solver."""
    law = plan.law(0)
    variance = np.append(law.own_variance, law.central_variance)
    used = variance > 0
    read = np.append(law.weight, 1.0)[None, :]
    rows = np.eye(len(variance))[list(known)].reshape(-1, len(variance))
    moved = law.site_sensitivity(plan.releases[0].sensitivity, site)
    squared = solve(read[:, used], np.array([law.weight[site]]), rows[:, used], variance[used])
    return moved * math.sqrt(squared)


@pytest.mark.parametrize("scheme", NOISY)
def test_reader_of_the_sum_has_the_guess_of_the_general_solver(scheme: str) -> None:
    plan = make(scheme)
    worst = max(released_mu(plan, (), s) for s in range(4))
    assert guesses(plan)["reader"] == pytest.approx(accountant.best_guess(worst), rel=1e-9)


@pytest.mark.parametrize("scheme", [name for name in NOISY if name != "pooled"])
@pytest.mark.parametrize("colluders", [1, 2])
def test_colluding_sites_have_the_guess_of_their_worst_coalition(scheme: str, colluders: int) -> None:
    plan = make(scheme, coalition=Coalition(colluders))
    worst = max(
        released_mu(plan, known, s)
        for s in range(4)
        for known in combinations([t for t in range(4) if t != s], colluders)
    )
    assert guesses(plan)["sites"] == pytest.approx(accountant.best_guess(worst), rel=1e-9)


@pytest.mark.parametrize("scheme", [name for name in NOISY if name not in ("pooled", "cape-helper")])
def test_planned_coalition_has_the_guess_of_the_plan(scheme: str) -> None:
    plan = make(scheme)
    assert guesses(plan)["coalition"] == max(plan.best_guess(s) for s in range(4))


@pytest.mark.parametrize("scheme", NOISY)
def test_guesses_grow_with_what_a_recipient_knows(scheme: str) -> None:
    plan = make(scheme, coalition=Coalition(2))
    found = guesses(plan)
    assert 0.5 < found["reader"] <= found["sites"] <= 1
    assert found["reader"] <= found["coordinator"] <= found["coalition"] <= 1


def test_guess_of_a_reader_allows_for_lost_sites() -> None:
    plan = make("secure-sum", coalition=Coalition(1, 1))
    worst = max(released_mu(plan, (t,), s) for s in range(4) for t in range(4) if t != s)
    assert guesses(plan)["reader"] == pytest.approx(accountant.best_guess(worst), rel=1e-9)


def test_coordinator_that_reads_the_data_guesses_right() -> None:
    found = guesses(make("pooled"))
    assert found["coordinator"] == found["coalition"] == 1
    assert found["reader"] < 1


def test_dealer_of_noise_guesses_better_than_a_reader() -> None:
    found = guesses(make("cape-helper"))
    assert found["coordinator"] > found["reader"]


def test_seeded_run_hides_nothing() -> None:
    assert set(guesses(make("secure-sum", seed=1)).values()) == {1.0}


def test_sites_without_the_result_learn_nothing() -> None:
    assert guesses(make("secure-sum", results_to_sites=False))["sites"] == 0.5


def test_plan_without_colluders_has_two_recipients() -> None:
    assert set(guesses(make("secure-sum", coalition=Coalition(0), results_to_sites=False))) == {"coordinator", "reader"}


def test_laplace_guesses_of_fewer_colluders_are_upper_bounds() -> None:
    plan = make(
        "secure-sum",
        releases=(PlannedRelease("vector_sum", 2.0, 1.0, 1, 1.0, noise="laplace"),),
        sites=tuple(PlannedSite(f"s{i}") for i in range(4)),
    )
    exact = {each.name: each.exact for each in recipients(plan)}
    assert exact == {"coordinator": False, "coalition": True, "sites": True, "reader": False}
    assert len(set(guesses(plan).values())) == 1
