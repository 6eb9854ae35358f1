"""What a release of a plan costs, and whether a cap pays for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.small_studies import carry_out, make, make_sites
from zerosum.errors import BudgetExceeded
from zerosum.protocol.messages import Propose
from zerosum.site.site import Site
from zerosum.study import pin


@pytest.mark.parametrize("scheme", ["local", "secure-sum", "zero-sum"])
def test_spend_of_release_has_distance_of_noise_from_normal(scheme: str, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make(scheme), sites)
    carry_out(plan, sites)
    for site in sites:
        with site.policy.open_ledger() as ledger:
            assert [entry.spend.distance for entry in ledger.entries()] == [plan.distance(0)]
    assert (plan.distance(0) > 0) == (scheme != "zero-sum")


def test_site_with_a_cap_below_all_releases_together_refuses_consent(tmp_path: Path) -> None:
    """One release is within the cap, four are not: the site refuses before anything is asked."""
    plan = make("local")
    several = replace(plan, releases=tuple(replace(plan.releases[0], share=0.25) for _ in range(4)))
    site = make_sites(tmp_path)[0]
    for epsilon, agrees in ((5.01, True), (4.5, False)):
        policy = site.policy.model_copy(update={"epsilon": epsilon})
        asked = Site("s0", site.units, policy)
        with policy.open_ledger() as ledger:
            ledger.check([asked._spend(several, 0, 0, "", 1)], policy.cap)
        if agrees:
            asked.handle(Propose(several))
        else:
            with pytest.raises(BudgetExceeded):
                asked.handle(Propose(several))
