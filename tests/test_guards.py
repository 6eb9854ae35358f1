"""Guards against faults that nothing else here would see; `tests/test_mutations.py` seeds them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zerosum.algorithms import MeanProgram
from zerosum.compute.backends.exact import clip_rows
from zerosum.compute.units import Units
from zerosum.engines.in_process import InProcess
from zerosum.errors import BadParameter, BudgetExceeded, LedgerRefused, OutsidePlan, PolicyRefused, ZerosumError
from zerosum.kernel import grid
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.schemes import Scheme, SiteShape
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.noise.sampler import Sampler
from zerosum.protocol.codec import decode_message, encode
from zerosum.protocol.messages import Contribute, Contribution, Message, Prepare, Propose, Reply
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Spend, Total
from zerosum.site.noise import NoiseShare
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.statistics import BUILTIN
from zerosum.statistics.vectors import VectorSum
from zerosum.study import execute, make_plan, pin

QUESTION = MeanProgram(columns=("a", "b"), clip=1.0)


def make_site(s: int, folder: Path, units: Units | None = None) -> Site:
    rows = units or Units.from_rows(np.full((20, 2), 0.25 + 0.25 * s))
    return Site(f"s{s}", rows, Policy(population=f"p{s}", epsilon=1e3, data="synthetic", ledger=folder / f"{s}.sqlite"))


def make(scheme: str, *, scale: float = 1.0, unit: str = "person", epsilon: float = 5.0) -> Plan:
    return make_plan(
        QUESTION,
        Terms(
            sites=(PlannedSite("s0", scale=scale), PlannedSite("s1"), PlannedSite("s2")),
            epsilon=epsilon,
            delta=1e-5,
            scheme=Scheme(scheme),
            coalition=Coalition(1),
            unit=unit,
        ),
        "test",
    )


# ---- the ledger before anything else -------------------------------------------------------------------------------


class Asks(InProcess):
    """An engine that asks a site again whose answer was an error, as one that lost the connection would."""

    def __init__(self, sites: list[Site]) -> None:
        super().__init__(sites)
        self.sites = {site.name: site for site in sites}
        self.answers: list[Reply | ZerosumError] = []

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for name, frame in frames.items():
            yield name, encode(self._answer(self.sites[name], decode_message(frame)))

    def _answer(self, site: Site, message: Message) -> Reply:
        for _ in range(2):
            try:
                reply = site.handle(message)
            except LedgerRefused as error:
                assert isinstance(message, Contribute)
                self.answers.append(error)
            else:
                if isinstance(message, Contribute):
                    self.answers.append(reply)
                return reply
        raise AssertionError("the ledger refused twice")


@pytest.mark.parametrize("scheme", ["secure-sum", "local", "zero-sum", "pairwise"])
def test_what_the_ledger_did_not_take_is_not_there_for_a_second_try(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when a contribution is to be charged, and the coordinator asks again: what leaves is charged."""
    sites = [make_site(s, tmp_path) for s in range(3)]
    engine = Asks(sites)
    record, refusals = Ledger.record, iter([True])

    def full(self: Ledger, *arguments: object) -> object:
        if next(refusals, False):
            raise LedgerRefused("the disk is full")
        return record(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, "record", full)
    try:
        execute(pin(make(scheme), sites), QUESTION, engine)
    except ZerosumError:
        assert scheme in ("zero-sum", "pairwise")  # what had been prepared is used up: the round is over
    assert isinstance(engine.answers[0], LedgerRefused)
    answered = [reply.site for reply in engine.answers if isinstance(reply, Contribution)]
    for site in sites:
        with site.policy.open_ledger() as ledger:
            assert len(ledger.entries()) == answered.count(site.name)


@pytest.mark.parametrize("scheme", ["local", "secure-sum", "zero-sum"])
def test_the_ledger_knows_how_far_the_noise_is_from_a_normal(scheme: str, tmp_path: Path) -> None:
    sites = [make_site(s, tmp_path) for s in range(3)]
    plan = pin(make(scheme), sites)
    execute(plan, QUESTION, InProcess(sites))
    for site in sites:
        with site.policy.open_ledger() as ledger:
            assert [entry.spend.distance for entry in ledger.entries()] == [plan.distance(0)]
    assert (plan.distance(0) > 0) == (scheme != "zero-sum")


def test_distances_of_several_releases_add_up() -> None:
    """Many releases of a distance and one release of all of it cost the same."""
    parts = [Spend("s", r, 0, "person", "mean", 2.0, 0.1, "c0ffee", distance=1e-11) for r in range(100)]
    whole = [replace(spend, distance=1e-9 if spend.round == 0 else 0.0) for spend in parts]
    each, once = (Total().plus((spend, spend.mu) for spend in spends).epsilon(1e-5) for spends in (parts, whole))
    assert each == pytest.approx(once, rel=1e-9)
    assert math.isfinite(each)


def test_a_site_agrees_to_what_all_releases_cost_together(tmp_path: Path) -> None:
    """One release is within the cap, four are not: the site says so before anything is asked."""
    plan = make("local", epsilon=5.0)
    several = replace(plan, releases=tuple(replace(plan.releases[0], share=0.25) for _ in range(4)))
    site = make_site(0, tmp_path)
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


def test_a_site_prepares_a_round_once(tmp_path: Path) -> None:
    """A second key or a second draw for one round would be noise that others do not know of."""
    sites = [make_site(s, tmp_path) for s in range(3)]
    sites[0].handle(Propose(pin(make("pairwise"), sites)))
    assert sites[0].handle(Prepare(0, 0)) is sites[0].handle(Prepare(0, 0))


# ---- noise -------------------------------------------------------------------------------------------------------


def test_no_draw_serves_two_numbers() -> None:
    """Two of 4000 draws are alike by chance once in 10^5 runs; of doubles, less often."""
    steps = Sampler.system().steps(4000, 2.0**39)
    assert len(np.unique(np.abs(steps))) == 4000
    assert len(np.unique(np.abs(Sampler.system().normal(4000, 1.0)))) == 4000


@pytest.mark.system_randomness
def test_every_byte_of_a_key_is_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit cannot tell a short key from a long one. 64 fair bytes have 20 values or fewer less than once in 10^9
    runs."""
    given, keys, start, urandom = [], [], Sampler._start, os.urandom

    def random(size: int) -> bytes:
        given.append(urandom(size))
        return given[-1]

    def started(self: Sampler, key: bytes) -> None:
        keys.append(key)
        start(self, key)

    monkeypatch.setattr(os, "urandom", random)
    monkeypatch.setattr(Sampler, "_start", started)
    for _ in range(64):
        sampler = Sampler.system()
        sampler._pid = -1  # as in a forked child, which draws its own key
        sampler.words(1)
    assert keys == given
    assert {len(key) for key in keys} == {32}
    for half in (keys[::2], keys[1::2]):
        assert all(len(set(column)) > 20 for column in zip(*half, strict=True))


def test_a_seed_gives_every_round_noise_of_its_own(tmp_path: Path) -> None:
    plan = replace(make("local"), seed=7)
    site = make_site(0, tmp_path)
    site._plan = replace(plan, releases=(replace(plan.releases[0], share=0.5),) * 2)
    first, second, again = (site._share(round, 0)._sampler.words(8).tolist() for round in (0, 1, 0))
    assert first == again
    assert not set(first) & set(second)


def test_a_message_has_as_much_noise_as_its_law_says() -> None:
    """Off by more than 5 standard errors, 0.6 %, once in 10^6 runs."""
    size = 400_000
    for name in ("local", "secure-sum"):
        law = Scheme(name).law([SiteShape()] * 3, 2).scaled(3.0)
        law = grid.place(law, 2.0, 1.0, size)
        noise = np.asarray(NoiseShare(law, 1, size, Sampler.system(), b"").noisy(np.zeros(size), None)) * law.step
        assert np.sqrt(np.mean(noise**2)) == pytest.approx(float(law.own[1]), rel=5 / math.sqrt(2 * size))


def test_several_releases_share_one_budget() -> None:
    plan = make("secure-sum")
    parts = tuple(replace(plan.releases[0], share=share) for share in (0.5, 0.3, 0.2))
    several = replace(plan, releases=parts)
    assert several.site_mus() == pytest.approx(plan.site_mus(), rel=1e-9)


# ---- sums ------------------------------------------------------------------------------------------------------------


def test_every_row_is_clipped_wherever_it_stands() -> None:
    rows = np.array([[30.0, 40.0], [0.3, 0.4], [-6.0, 8.0], [1e200, 0.0]])
    for order in ([0, 1, 2, 3], [1, 3, 0, 2], [2, 0, 3, 1], [3, 2, 1, 0]):
        for count in range(1, 5):
            assert np.all(np.linalg.norm(clip_rows(rows[order[:count]], 1.0), axis=1) <= 1.0)


def test_both_roundings_are_in_what_a_unit_moves() -> None:
    law = grid.place(Scheme("local").law([SiteShape()] * 3, 2), 2.0, 1.5, 7)
    assert law.rounding >= law.step * math.sqrt(7) + 1.5 * grid.summation_slack()
    assert law.site_sensitivity(2.0, 0) >= 2.0 + law.rounding


def test_a_scaled_site_weighs_less_in_the_divisor_too(tmp_path: Path) -> None:
    """Where all people of all sites say the same, so does their mean, whatever a site's scale."""
    sites = [make_site(s, tmp_path, Units.from_rows(np.full((50_000, 2), 0.5))) for s in range(3)]
    plan = make("local", scale=0.25)
    assert plan.effective_units(("s0", "s1"), {"s0": 8, "s1": 10}) == pytest.approx(12.0)
    result = execute(pin(plan, sites), QUESTION, InProcess(sites))
    assert np.asarray(result.estimate["mean"]) == pytest.approx([0.5, 0.5], abs=0.01)


# ---- who and what is protected ---------------------------------------------------------------------------------------


def test_a_study_of_records_is_not_for_people_with_several_rows(tmp_path: Path) -> None:
    people = Units.from_list([np.zeros((1, 2))] * 19 + [np.zeros((2, 2))])
    sites = [make_site(0, tmp_path, people), make_site(1, tmp_path), make_site(2, tmp_path)]
    policies = {"unit": "record"}
    sites = [Site(site.name, site.units, site.policy.model_copy(update=policies)) for site in sites]
    with pytest.raises(PolicyRefused, match="several rows"):
        execute(pin(make("secure-sum", unit="record"), sites), QUESTION, InProcess(sites))
    assert not any((tmp_path / f"{s}.sqlite").exists() for s in range(3))


def test_a_roster_wants_every_identity_pinned() -> None:
    policy = Policy(population="p", epsilon=1.0, data="synthetic", roster={"a": "00" * 32, "b": "11" * 32})

    def proposed(identity: str | None) -> Plan:
        return replace(make("local"), sites=(PlannedSite("a", identity="00" * 32), PlannedSite("b", identity=identity)))

    policy.review(proposed("11" * 32), 20, BUILTIN)
    for identity in (None, "22" * 32):
        with pytest.raises(PolicyRefused, match="another identity for 'b'"):
            policy.review(proposed(identity), 20, BUILTIN)


def test_two_sites_of_one_study_cannot_charge_one_ledger(tmp_path: Path) -> None:
    sites = [make_site(s, tmp_path) for s in range(3)]
    twin = Site("s2", sites[2].units, sites[1].policy)
    with pytest.raises(BadParameter, match="same ledger"):
        pin(make("secure-sum"), [*sites[:2], twin])


def test_a_request_that_is_more_sensitive_than_planned_is_refused(tmp_path: Path) -> None:
    """The plan says what a unit may move; a coordinator that asks for more is refused, whatever the plan's numbers."""
    site = make_site(0, tmp_path)
    plan = pin(make("local"), [site])
    request = QUESTION.requests(Adjacency.REPLACE_ONE)[0]
    wider = PrivateSum(VectorSum(**request.statistic.parameters() | {"clip": 1.5}), request.share)
    with pytest.raises(OutsidePlan, match="sensitivity"):
        site._fits(plan, 0, wider)
