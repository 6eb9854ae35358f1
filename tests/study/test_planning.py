"""Identities and ledgers of the sites of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.small_studies import make, make_sites
from zerosum.errors import BadParameter, ZerosumError
from zerosum.kernel.terms import PlannedSite
from zerosum.site.site import Site
from zerosum.study import pin


def test_pin_of_two_sites_with_one_ledger_is_refused(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    twin = Site("s3", sites[3].units, sites[1].policy)
    with pytest.raises(BadParameter, match="ledger"):
        pin(make("secure-sum"), [*sites[:3], twin])


def test_pin_of_a_plan_with_other_identities_is_refused(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = make("local", sites=tuple(PlannedSite(site.name, identity="ab" * 32) for site in sites))
    with pytest.raises(ZerosumError, match="identity"):
        pin(plan, sites)
