"""Plans come from outside: whatever is in them, they are sound or refused in one sentence."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.reproducibility import examples
from helpers.small_studies import carry_out, make, make_sites
from zerosum.compute.units import Units
from zerosum.errors import BadParameter, ZerosumError
from zerosum.kernel import accountant, published
from zerosum.kernel.accountant import mixed_epsilon
from zerosum.kernel.events import Sampling, Subsampled
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import SCHEMES, Combine, Scheme, SiteShape
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
from zerosum.kernel.view import Coalition, dealer_mu
from zerosum.report.record import privacy_report
from zerosum.site.site import Site


def plan(scheme: str = "secure-sum", **change: Any) -> Plan:
    made = Plan(
        study="s",
        algorithm="mean",
        unit="person",
        adjacency=Adjacency.REPLACE_ONE,
        epsilon=1.0,
        delta=1e-5,
        scheme=Scheme(scheme),
        coalition=Coalition(1),
        sites=tuple(PlannedSite(name, 20) for name in "abcd"),
        releases=(PlannedRelease("vector_sum", 2.0, 0.5, 3, 1.0), PlannedRelease("histogram", 1.0, 0.5, 8, 1.0)),
    )
    return replace(made, **change)


def _made(what: str, value: float) -> object:
    """Something that holds this number."""
    match what:
        case "sensitivity" | "bound" | "share":
            usual: dict[str, Any] = {"sensitivity": 2.0, "share": 1.0, "bound": 1.0}
            return PlannedRelease("vector_sum", size=3, **usual | {what: value})
        case "scale" | "weight":
            return replace(PlannedSite("a"), **{what: value})  # type: ignore[arg-type]  # what it is, is tested
        case "ratio":
            return Scheme("zero-sum", ratio=-1.0 if 0 <= value < 1 else value)  # small ratios mean something
    return replace(plan(), **{what: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-251, 1e251, 5e-324])
@pytest.mark.parametrize("what", ["sensitivity", "bound", "share", "scale", "weight", "epsilon", "delta", "ratio"])
def test_plan_bad_number_is_refused_in_one_line(what: str, value: float) -> None:
    with pytest.raises(BadParameter, match=what) as refused:
        _made(what, value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [0, -1, 10**13, 10**400])
def test_plan_bad_count_is_refused(value: int) -> None:
    with pytest.raises(BadParameter, match="size"):
        PlannedRelease("vector_sum", 2.0, 1.0, value, 1.0)
    for kind in (PlannedSite, lambda name, units: SiteShape(units)):
        with pytest.raises(BadParameter, match="units"):
            kind("a", value)
    if value:
        with pytest.raises(BadParameter, match="colluders"):
            Coalition(value)
        with pytest.raises(BadParameter, match="dropouts"):
            Coalition(1, value)


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "non-private"])
@pytest.mark.parametrize("sensitivity", [1e-100, 1e-60, 1.0, 1e60, 1e100])
def test_plan_noise_scales_with_extreme_sensitivity(scheme: str, sensitivity: float) -> None:
    """Squares that under- or overflow would make noise of zero or infinity, at a cost of zero."""
    release = PlannedRelease("vector_sum", sensitivity, 1.0, 3, sensitivity)
    found, usual = (
        plan(scheme, releases=(each,)) for each in (release, PlannedRelease("vector_sum", 1.0, 1.0, 3, 1.0))
    )
    assert found.law(0).noise_std / sensitivity == pytest.approx(usual.law(0).noise_std, rel=2e-3)
    assert np.max(found.mus(0)) == pytest.approx(np.max(usual.mus(0)), rel=1e-9)


def test_plan_from_json_reads_back_or_is_refused() -> None:
    whole = plan()
    assert Plan.from_json(whole.to_json()) == whole
    for text in (b"", b"{", b"[]", b"null", b"\xff", b'{"study": 3}', b"[" * 10_000):
        with pytest.raises(BadParameter) as refused:
            Plan.from_json(text)
        assert "\n" not in str(refused.value)
    record = json.loads(whole.to_json())
    record["releases"][0]["sensitivity"] = math.nan
    with pytest.raises(BadParameter, match="sensitivity"):
        Plan.from_json(json.dumps(record).encode())
    record = json.loads(whole.to_json())
    record["sites"][2]["identity"] = "not hex"
    with pytest.raises(BadParameter, match="identity"):
        Plan.from_json(json.dumps(record).encode())


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**63, 10**30, 10**400]),
    st.floats(),
    st.sampled_from([1e-300, 1e-250, 1e-101, 1e-100, 1e-99, 1e99, 1e100, 1e101, 1e250, 1e308, 0.999999, 1e-17]),
    st.text(max_size=4),
    st.sampled_from(
        [*SCHEMES, *(each.value for each in Combine), "add-remove", "published", "record", "NaN", "Infinity"]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def _places(record: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a record, containers included."""
    items = record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    return [path] * bool(path) + [place for key, value in items for place in _places(value, (*path, key))]


@settings(max_examples=examples(400))
@given(data=st.data())
def test_plan_from_hostile_json_raises_only_package_errors(data: st.DataObject) -> None:
    record = json.loads(plan(data.draw(st.sampled_from(list(SCHEMES)))).to_json())
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(_places(record)))
        holder = record
        for key in path:
            holder = holder[key]
        if data.draw(st.integers(0, 5)) == 0 and isinstance(holder, dict):
            del holder[last]
        else:
            holder[last] = data.draw(HOSTILE)
    with suppress(ZerosumError):
        found = Plan.from_json(json.dumps(record).encode())
        for round in range(len(found.releases)):
            law, mus = found.law(round), found.mus(round)
            assert found.scheme.name == "non-private" or law.noise_std > 0
            assert np.all(mus > 0)
        report = privacy_report(found)
        report.sentences()
        assert not any(math.isnan(line.epsilon) for line in report.per_site)


# ---- sites that may be left out -------------------------------------------------------------------------------------


def absentable(sites: int = 5, **changes: object) -> Plan:
    terms = Terms(
        sites=tuple(PlannedSite(f"s{i}", 20, identity=f"{i:02x}" * 32) for i in range(sites)),
        epsilon=2.0,
        delta=1e-5,
        scheme=Scheme("secure-sum"),
        coalition=Coalition(1, 1),
        **changes,  # type: ignore[arg-type]
    )
    return Plan.of(terms, "s", "mean", (PlannedRelease("vector_sum", 2.0, 1.0, 3, 1.0),))


def test_plan_with_weights_refuses_absences() -> None:
    """The weights of the others would not add up to 1."""
    sites = tuple(replace(site, weight=1 / 4) for site in absentable().sites[:4])
    scheme = Scheme("cape-published", combine=Combine.WEIGHTED)
    terms = Terms(sites=sites, epsilon=2.0, delta=1e-5, scheme=scheme, coalition=Coalition(1))
    assert terms.absences == 0
    with pytest.raises(BadParameter, match="absences"):
        replace(terms, absences=1)


def test_plan_without_absences_has_no_such_field_in_json() -> None:
    assert b"absences" not in absentable().to_json()
    plan = absentable(absences=2)
    assert plan.digest() != absentable().digest()
    assert Plan.from_json(plan.to_json()) == plan


def test_plan_without_absent_sites_costs_no_more_and_adds_no_site() -> None:
    plan = absentable(absences=2)
    for names in (["s4"], ["s0", "s3"]):
        rest = plan.without(names)
        assert [site.name for site in rest.sites] == [f"s{i}" for i in range(5) if f"s{i}" not in names]
        assert (rest.study, rest.releases, rest.question, rest.epsilon) == (
            plan.study,
            plan.releases,
            plan.question,
            plan.epsilon,
        )
        assert rest.coalition.colluders == plan.coalition.colluders
        assert max(rest.site_epsilon(s) for s in range(len(rest.sites))) <= plan.epsilon
    assert plan.without(["s1", "s2"]).digest() == plan.without(["s2"]).without(["s1"]).digest()
    assert plan.without(["s1", "s2"]).coalition == Coalition(1, 0)  # three with one colluder tolerate no loss


def test_plan_without_too_many_sites_is_refused() -> None:
    plan = absentable(absences=1)
    for names in ([], ["s0", "s1"], ["s9"], ["s0", "s9"]):
        with pytest.raises(BadParameter):
            plan.without(names)
    with pytest.raises(BadParameter):
        plan.without(["s0"]).without(["s1"])
    for wrong in (-1, 3, 1.0):
        with pytest.raises(BadParameter, match="absences"):
            absentable(absences=wrong)


def test_plan_of_several_releases_costs_as_much_as_one() -> None:
    plan = make("secure-sum")
    parts = tuple(replace(plan.releases[0], share=share) for share in (0.5, 0.3, 0.2))
    several = replace(plan, releases=parts)
    assert several.site_mus() == pytest.approx(plan.site_mus(), rel=1e-9)


def test_plan_with_a_scaled_site_divides_by_the_scaled_number_of_units(tmp_path: Path) -> None:
    """If all units are equal, so is their mean, for every scale of a site. The tolerance is more than 100 standard
    deviations of the noise."""
    units = Units.from_rows(np.full((50_000, 2), 0.5))
    sites = [Site(site.name, units, site.policy) for site in make_sites(tmp_path)]
    plan = make("local", sites=(PlannedSite("s0", scale=0.25), *(PlannedSite(f"s{s}") for s in (1, 2, 3))))
    assert plan.effective_units(("s0", "s1"), {"s0": 8, "s1": 10}) == pytest.approx(12.0)
    result = carry_out(plan, sites)
    assert np.asarray(result.estimate["mean"]) == pytest.approx([0.5, 0.5], abs=0.01)


def test_plan_with_a_dealing_coordinator_counts_every_step_of_a_phase() -> None:
    release = PlannedRelease("vector_sum", 2.0, 1.0, 3, 1.0, sampling=Sampling(0.1, 200))
    sites = tuple(PlannedSite(f"s{i}") for i in range(4))
    terms = Terms(sites=sites, epsilon=1.0, delta=1e-5, scheme=Scheme("cape-helper"), coalition=Coalition(1))
    plan = Plan.of(terms, "s", "x", (release,))
    mu = float(dealer_mu(plan.law(0), release.accounted, plan.coalition)[0])
    true = mixed_epsilon(0.0, (Subsampled(mu, 0.1, 200),), 1e-5)
    assert plan.coordinator_epsilon(0) >= max(true, plan.site_epsilon(0)) * 0.999


def standard_deviation(of: Plan, release: int) -> float:
    """Standard deviation of one released number of a sum."""
    return of.law(of.first_round(release)).noise_std


@pytest.mark.parametrize("scheme", ["secure-sum", "local", "zero-sum", "pooled"])
@pytest.mark.parametrize("epsilon", [0.25, 4.0])
def test_noise_ratio_at_another_epsilon_is_that_of_a_plan_with_it(scheme: str, epsilon: float) -> None:
    own = plan(scheme)
    other = replace(own, epsilon=epsilon)
    ratios = [standard_deviation(other, r) / standard_deviation(own, r) for r in range(len(own.releases))]
    assert own.noise_ratio(epsilon) == pytest.approx(max(ratios), rel=1e-4)
    assert own.noise_ratio(own.epsilon) == 1.0


def test_noise_ratio_of_the_published_calibration_is_that_of_epsilon() -> None:
    own = plan("local", calibration="published")
    other = replace(own, epsilon=3.0)
    assert own.noise_ratio(3.0) == pytest.approx(standard_deviation(other, 0) / standard_deviation(own, 0), rel=1e-4)


def test_published_calibration_of_a_phase_is_that_of_one_step() -> None:
    """capeFM, section 5.1: tau = D/epsilon sqrt(2 ln(1.25/delta)) in every iteration; the exact epsilon is of all."""
    steps = PlannedRelease("g", 2.0, 1.0, 2, 1.0, sampling=Sampling(1.0, 25))
    terms: dict[str, Any] = {"calibration": "published", "epsilon": 0.5, "delta": 0.01}
    phase = plan("cape-published", releases=(steps,), **terms)
    tau = published.gaussian_mechanism(2.0, 0.5, 0.01)
    assert phase.law(0).noise_std == pytest.approx(tau)
    single = plan("cape-published", releases=(replace(steps, sampling=None),), **terms)
    assert phase.site_mus() == pytest.approx(5 * single.site_mus())
    assert phase.site_epsilon(0) == pytest.approx(accountant.epsilon(5 * float(single.site_mus()[0]), 0.01))
    theirs, alone = phase.claimed_mus(), single.claimed_mus()
    assert theirs is not None
    assert alone is not None
    assert theirs == pytest.approx(5 * alone)


def test_published_calibration_of_a_publication_is_the_analytic_gaussian() -> None:
    """DC-DP, section IV, for a whole record: with all of the budget it is the exact calibration."""
    records = PlannedRelease("r", 2.0, 1.0, 3, 1.0, kind="publication")
    half = replace(records, share=0.5)
    whole = plan("local", releases=(records,), calibration="published")
    assert float(whole.law(0).own[0]) == pytest.approx(2 / accountant.mu_for(whole.epsilon, whole.delta), rel=1e-4)
    assert whole.site_epsilon(0) == pytest.approx(whole.epsilon, rel=1e-4)
    two = plan("local", releases=(half, half), calibration="published")
    each = accountant.mu_for(two.epsilon / 2, two.delta / 2)
    assert float(two.law(0).own[0]) == pytest.approx(2 / each, rel=1e-4)
    assert two.site_epsilon(0) < two.epsilon
    assert two.noise_ratio(3.0) == pytest.approx(each / accountant.mu_for(1.5, two.delta / 2), rel=1e-4)


def test_noise_ratio_of_a_sampled_phase_is_the_largest_one() -> None:
    sampled = PlannedRelease("g", 2.0, 0.5, 2, 1.0, sampling=Sampling(0.05, 20))
    own = plan("local", releases=(PlannedRelease("v", 2.0, 0.5, 2, 1.0), sampled))
    other = replace(own, epsilon=2 * own.epsilon)
    ratios = [standard_deviation(other, r) / standard_deviation(own, r) for r in range(2)]
    assert own.noise_ratio(other.epsilon) == pytest.approx(max(ratios), rel=1e-4)
    assert ratios[0] != pytest.approx(ratios[1], rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.0, math.nan, 1e6])
def test_noise_ratio_at_an_epsilon_that_cannot_be_planned_raises(epsilon: float) -> None:
    with pytest.raises(BadParameter):
        plan().noise_ratio(epsilon)


def test_identified_plan_has_the_digest_of_a_new_plan_and_shares_its_noise() -> None:
    own = plan()
    own.law(0), own.digest()
    keys = tuple(replace(site, identity=f"{at + 1:064x}") for at, site in enumerate(own.sites))
    keyed = own.identified(keys)
    assert keyed.digest() == replace(own, sites=keys).digest() != own.digest()
    assert (keyed.proposal_digest, keyed.public_digest) == (own.proposal_digest, own.public_digest)
    assert keyed.law(0) is own.law(0)
    assert keyed == replace(own, sites=keys)


def test_identities_of_other_sites_are_refused() -> None:
    own = plan()
    with pytest.raises(BadParameter):
        own.identified(own.sites[1:])
