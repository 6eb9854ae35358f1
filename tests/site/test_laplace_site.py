"""A site under a plan with Laplace noise: norms, charges, and the ledger."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.ledger_spends import ACCOUNT, CAP, spend
from helpers.small_studies import QUESTION, carry_out, entries, make, make_sites
from zerosum.errors import BadParameter, BudgetExceeded, OutsidePlan
from zerosum.kernel.accountant import compose, epsilon, mixed_epsilon
from zerosum.kernel.events import LaplaceSum
from zerosum.kernel.plan import Plan
from zerosum.kernel.statistic import Adjacency
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Account, Cap, Total, left_under
from zerosum.statistics import build
from zerosum.study import pin


def laplace_plan(scheme: str = "secure-sum") -> Plan:
    plan = make(scheme)
    return replace(plan, epsilon=1.0, releases=QUESTION.releases(Adjacency.REPLACE_ONE, "laplace"))


@pytest.mark.parametrize("scheme", ["secure-sum", "local", "pooled"])
def test_study_with_laplace_noise_charges_its_pure_epsilon(tmp_path: Path, scheme: str) -> None:
    sites, plan = make_sites(tmp_path), laplace_plan(scheme)
    result = carry_out(plan, sites)
    exact = np.sum([QUESTION.requests(Adjacency.REPLACE_ONE)[0].statistic.total(s.units) for s in sites], axis=0)
    std = plan.law(0).noise_std
    # Laplace noise exceeds 25 standard deviations with a probability below exp(-35).
    assert np.all(np.abs(np.asarray(result.estimate["mean"]) * 102 - exact) < 25 * std)
    assert np.asarray(result.estimate["noise_std"])[0] == pytest.approx(std / 102)
    for position, site in enumerate(sites):
        with site.policy.open_ledger() as ledger:
            (entry,) = ledger.entries()
            assert entry.spend.mu == float(plan.mus(0)[position]) <= 1.0
            assert entry.spend.laplace_moves == plan.moves(0, position)
            assert ledger.epsilon(1e-5) == pytest.approx(plan.site_epsilon(position), abs=1e-12)
            assert ledger.mu == 0.0


def test_site_refuses_l2_bounds_planned_for_laplace_noise(tmp_path: Path) -> None:
    sites, plan = make_sites(tmp_path), laplace_plan()
    (planned,) = plan.releases
    assert planned.sensitivity == pytest.approx(2 * math.sqrt(2))
    for changed in (replace(planned, sensitivity=2.0), replace(planned, bound=1.0)):
        wrong = pin(replace(plan, releases=(changed,)), sites)
        request = QUESTION.requests(Adjacency.REPLACE_ONE)[0]
        with pytest.raises(OutsidePlan):
            sites[0]._fits(wrong, 0, request)
    assert [entries(site) for site in sites] == [0, 0, 0, 0]


def test_sum_beyond_its_l1_bound_is_scaled(tmp_path: Path) -> None:
    site = make_sites(tmp_path)[0]
    statistic = build("vector_sum", {"columns": 2, "clip": 1.0})
    whole = site._total(site.units, statistic, math.sqrt(2), "laplace")
    cut = site._total(site.units, statistic, 1e-3, "laplace")
    assert np.sum(np.abs(cut)) == pytest.approx(1e-3 * len(site.units))
    np.testing.assert_allclose(cut / cut[0], whole / whole[0])


# ---- the ledger ------------------------------------------------------------------------------------------------------


def test_ledger_composes_laplace_noise_with_gaussian_noise(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, 0.3), CAP)
        ledger.record(spend(1, 0.5, laplace_moves=5000), CAP)
        ledger.record(spend(2, 0.5, laplace_moves=5000), CAP)
        found = ledger.epsilon(1e-5)
        assert found == mixed_epsilon(0.3, [LaplaceSum(0.5, 5000, 2)], 1e-5)
        assert epsilon(0.3, 1e-5) < found < 1.0 + epsilon(0.3, 1e-5)
        with pytest.raises(BudgetExceeded):
            ledger.record(spend(3, 0.5, laplace_moves=5000), Cap(found + 0.01, 1e-5))
        assert left_under(ledger.total, Cap(found + 1.0, 1e-5)) > 0.5
    with Ledger.inspect(path) as ledger:
        assert ledger.epsilon(1e-5) == found


def test_ledger_entry_of_gaussian_noise_reads_as_before(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, 0.3), CAP)
        ledger.record(spend(1, 0.5, laplace_moves=5000), CAP)
    with sqlite3.connect(path) as connection:
        bodies = [json.loads(body) for (body,) in connection.execute("SELECT body FROM chain ORDER BY number")]
    assert "laplace_moves" not in bodies[1]["spend"]
    assert bodies[2]["spend"]["laplace_moves"] == 5000


def test_ledger_of_persons_charges_every_row_of_a_person(tmp_path: Path) -> None:
    account = Account("cohort", "person", "replace-one", rows_per_unit=3)
    with Ledger.open(tmp_path / "ledger.sqlite", account) as ledger:
        entry = ledger.record(spend(0, 0.2, unit="record", laplace_moves=4100), CAP)
        assert entry.charged_mu == pytest.approx(0.6)
        assert ledger.epsilon(1e-5) == mixed_epsilon(0.0, [LaplaceSum(entry.charged_mu, 3 * 4100)], 1e-5)


def test_total_of_laplace_noise_does_not_depend_on_order() -> None:
    spends = [spend(0, 0.3), spend(1, 0.5, laplace_moves=5000), spend(2, 0.2, laplace_moves=9000)]
    one, other = (Total().plus((each, each.mu) for each in order) for order in (spends, spends[::-1]))
    assert one.epsilon(1e-5) == other.epsilon(1e-5)
    assert one.epsilon(1e-5) > epsilon(compose([0.3]), 1e-5) + 0.5


def test_spend_of_laplace_noise_with_a_rate_is_refused() -> None:
    for wrong in ({"rate": 0.1}, {"kind": "publication"}, {"laplace_moves": 0}):
        with pytest.raises(BadParameter):
            spend(0, 0.5, **{"laplace_moves": 5000, **wrong})
