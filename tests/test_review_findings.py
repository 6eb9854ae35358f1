"""What a review found once, and what must not come back."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from small_studies import QUESTION, make, make_sites
from zerosum.engines.in_process import InProcess
from zerosum.errors import BadParameter, ZerosumError
from zerosum.kernel.accountant import mixed_epsilon
from zerosum.kernel.events import Sampling, Subsampled
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
from zerosum.kernel.units import Units
from zerosum.kernel.view import Coalition, dealer_mu
from zerosum.protocol.codec import decode_message, decode_reply, encode
from zerosum.protocol.messages import Consent
from zerosum.site.account import Spend, Total
from zerosum.statistics import build
from zerosum.study import execute, pin


def test_a_dealer_gains_from_every_step_of_a_phase() -> None:
    release = PlannedRelease("vector_sum", 2.0, 1.0, 3, 1.0, sampling=Sampling(0.1, 200))
    sites = tuple(PlannedSite(f"s{i}") for i in range(4))
    terms = Terms(sites=sites, epsilon=1.0, delta=1e-5, scheme=Scheme("cape-helper"), coalition=Coalition(1))
    plan = Plan.of(terms, "s", "x", (release,))
    mu = float(dealer_mu(plan.law(0), release.accounted, plan.coalition)[0])
    true = mixed_epsilon(0.0, (Subsampled(mu, 0.1, 200),), 1e-5)
    assert plan.coordinator_epsilon(0) >= max(true, plan.site_epsilon(0)) * 0.999


def frame(request: dict[str, object], noise: object = None) -> bytes:
    base = {"kind": "sum", "name": "vector_sum", "share": 1.0, "sampling": None}
    base |= {"parameters": {"columns": 2, "clip": 1.0}}
    body = {"round": 0, "attempt": 0, "request": base | request, "noise_input": noise}
    text = json.dumps(["Contribute", body]).encode()
    return struct.pack(">4sHI", b"ZSUM", 1, len(text)) + text


@pytest.mark.parametrize(
    "request_",
    [
        {"share": 10**400},
        {"sampling": [10**400, 3]},
        {"parameters": {"columns": 2, "clip": 1.0, "self": 1}},
        {"parameters": {"columns": 2, "clip": 1.0, "lower": {"a": 1}, "upper": [1, 1]}},
        {"parameters": {"columns": 2, "clip": 1.0, "lower": [10**400, 0], "upper": [1, 1]}},
        {"parameters": {"columns": 2, "clip": 1.0, "lower": {"$": ["f8", 0, 2**32, 2**32, 2**32]}}},
    ],
)
def test_a_hostile_frame_is_refused_with_an_error_of_ours(request_: dict[str, object]) -> None:
    with pytest.raises(ZerosumError):
        decode_message(frame(request_))


class _Lying(InProcess):
    """One site's consent names another number of units than was declared."""

    said: int | None = None

    def exchange(self, frames):  # type: ignore[no-untyped-def]
        for name, reply in super().exchange(frames):
            lies = name == "s1" and reply is not None and isinstance(decode_reply(reply), Consent)
            yield name, encode(Consent("s1", self.said)) if lies else reply


@pytest.mark.parametrize("said", [None, 10**400, 10**9], ids=["none", "endless", "many"])
def test_a_consent_must_name_the_declared_units(said: int | None, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = make("local", sites=tuple(PlannedSite(site.name, len(site.units)) for site in sites))
    engine = _Lying(sites)
    engine.said = said
    with pytest.raises(ZerosumError):
        execute(pin(plan, sites), QUESTION, engine)


def test_two_long_phases_of_one_kind_can_be_added_up() -> None:
    spends = [Spend(n, 0, 0, "person", "vector_sum", 2.0, 1e-5, "ab", rate=0.01, steps=600_000) for n in "ab"]
    Total().plus([(spend, spend.mu) for spend in spends])


def test_identities_pinned_in_an_approved_plan_are_kept(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = make("local", sites=tuple(PlannedSite(site.name, identity="ab" * 32) for site in sites))
    with pytest.raises(ZerosumError, match="another identity"):
        pin(plan, sites)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        (
            "polynomial_coefficients",
            {"columns": 2, "lower": [-1, -1], "upper": [1, 1], "table": [[1e6], [1.0]], "weights": [1.0, 1.0]},
        ),
        ("column_moments", {"columns": 1, "lower": [-1], "upper": [1], "count": True}),
        (
            "residual_gradient",
            {"columns": 2, "lower": [-1, -1], "upper": [1, 1], "coefficients": [0.1, 0], "count": True},
        ),
        ("vector_sum", {"columns": 1, "clip": 0.1, "count": True}),
    ],
)
def test_a_unit_that_fails_is_no_further_from_others_than_units_are(name: str, parameters: dict[str, object]) -> None:
    """A vector of zeros is no contribution of these: whoever has NaN in a column without a rule counts as zeros."""
    statistic = build(name, {"clip": 1.0} | parameters)
    units = [np.full((1, statistic.columns), value) for value in (0.5, -1.0, np.nan, 1e300)]
    totals = [statistic.total(Units.from_list([unit])) for unit in units]
    for one in totals:
        for other in totals:
            assert np.linalg.norm(one - other) <= statistic.sensitivity(Adjacency.REPLACE_ONE) * (1 + 1e-9)


def test_a_hostile_table_does_not_hang_a_site() -> None:
    table = [[-1, 0, 18, 0, -48, 0, 32], [0] * 7, [0] * 7]
    statistic = build(
        "polynomial_coefficients", {"columns": 2, "clip": 1.0, "table": table, "weights": [1.0, 0.0, 0.0]}
    )
    values = np.linspace(-1, 1, 2001)
    shape = -1 + 18 * values**2 - 48 * values**4 + 32 * values**6
    assert statistic.sensitivity(Adjacency.REPLACE_ONE) >= np.ptp(shape) * (1 - 1e-9)
    with pytest.raises(BadParameter, match="coefficients, more than"):
        build("polynomial_coefficients", {"columns": 41, "clip": 1.0, "table": [[1.0]] * 7, "weights": [1.0] * 7})
