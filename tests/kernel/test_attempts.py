"""Attempts that a plan buys in advance: what they cost at most, and that plans without them are as they were."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.kernel.accountant import mixed_epsilon, with_distance
from zerosum.kernel.events import Sampling, Subsampled, Sum
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
from zerosum.kernel.view import Coalition

PLAIN = PlannedRelease("vector_sum", 2.0, 0.25, 3, 1.0)
DEAR = replace(PLAIN, share=0.75)
FULL = replace(PLAIN, share=0.75, sampling=Sampling(1.0, 6))
SAMPLED = replace(PLAIN, share=0.75, sampling=Sampling(0.25, 6))
TERMS = Terms(
    sites=(PlannedSite("a", 30), PlannedSite("b", 40, scale=0.5), PlannedSite("c", 50)),
    epsilon=1.0,
    delta=1e-5,
    scheme=Scheme("secure-sum"),
    coalition=Coalition(1),
)


def make(*releases: PlannedRelease, **changes: object) -> Plan:
    return Plan.of(replace(TERMS, **changes), "s", "mean", releases)  # type: ignore[arg-type]


def test_plan_without_attempts_has_digest_of_earlier_version() -> None:
    """The digests are those of the version before there were attempts."""
    sites = PlannedSite("a", 30), PlannedSite("b", 40), PlannedSite("c", 50)
    plan = make(PLAIN, DEAR, sites=sites, seed=4)
    assert plan.digest() == "3bddc8654d30a1cfdd1eb8475ee3f84ca982d264da5ec5936c27768eb1cb6139"
    assert plan.public_digest == "a28a959331ff974230471d81ec073d22a1037ff2ef5b958149d67dd33171509e"
    assert b"attempts" not in plan.to_json()
    some = replace(plan, attempts=2)
    assert Plan.from_json(some.to_json()) == some
    assert len({plan.public_digest, some.public_digest, replace(plan, attempts=3).public_digest}) == 3


def splits(attempts: int, places: int) -> Iterator[tuple[int, ...]]:
    """Every way to use up to so many attempts on so many releases."""
    if places == 0:
        yield ()
        return
    for here in range(attempts + 1):
        for rest in splits(attempts - here, places - 1):
            yield here, *rest


@pytest.mark.parametrize("attempts", [2])
@pytest.mark.parametrize(
    "releases",
    [(PLAIN, DEAR), (replace(PLAIN, share=1.0),), (PLAIN, FULL), (PLAIN, SAMPLED)],
    ids=["plain", "one", "full", "sampled"],
)
def test_plan_any_use_of_attempts_costs_no_more_than_planned(
    releases: tuple[PlannedRelease, ...], attempts: int
) -> None:
    plan = make(*releases, attempts=attempts)
    worst = 0.0
    for site in range(1 if SAMPLED in releases else 3):
        for used in splits(attempts, len(releases)):
            plain, sampled, distance = 0.0, [], 0.0
            for r, (release, more) in enumerate(zip(releases, used, strict=True)):
                mu, steps = float(plan.mus(plan.first_round(r))[site]), release.steps + more
                distance += steps * plan.distance(plan.first_round(r))
                if release.sampled is None:
                    plain += steps * mu**2
                else:
                    sampled.append(Subsampled(mu, release.sampled.rate, steps))
            found = with_distance(
                lambda delta, p=plain, s=tuple(sampled): mixed_epsilon(math.sqrt(p), s, delta),  # type: ignore[misc]
                distance,
                plan.delta,
            )
            assert found <= plan.site_epsilon(site) * (1 + 1e-9)
            worst = max(worst, found)
    assert worst <= 1.0 + 1e-12
    assert worst > (0.85 if SAMPLED in releases else 1 - 1e-9)  # of two kinds, attempts are paid for on both
    assert max(plan.site_epsilon(site) for site in range(3)) == pytest.approx(1.0, rel=3e-3)


def test_plan_full_batch_phase_equals_that_many_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise, cost and distance are those of T releases of a T-th of the share: no distributions, no twice the bound."""
    monkeypatch.setattr(accountant, "_composed", None)  # would fail if it were asked
    for adjacency in Adjacency:
        sites = tuple(PlannedSite(name) for name in "abc")
        full = replace(FULL, share=1.0, sensitivity=1.4)
        phase = make(full, sites=sites, adjacency=adjacency, attempts=3)
        single = replace(full, share=1 / 6, sampling=None)
        releases = make(*[single] * 6, sites=sites, adjacency=adjacency, attempts=3)
        assert np.allclose(phase.law(0).own, releases.law(0).own, rtol=1e-12)
        assert phase.law(0).noise_std == pytest.approx(releases.law(5).noise_std, rel=1e-12)
        assert phase.site_epsilon(1) == pytest.approx(releases.site_epsilon(1), rel=1e-12) == pytest.approx(1.0)
        assert phase.site_mus() == pytest.approx(releases.site_mus())
        assert phase.rounds == 6
        event = phase.event(0, 0)
        assert isinstance(event, Sum)
        assert event.mu == pytest.approx(float(phase.mus(0)[0]) * math.sqrt(6))


def test_attempts_that_cannot_be_planned_are_refused() -> None:
    for attempts in (-1, 1001):
        with pytest.raises(BadParameter, match="attempts"):
            make(PLAIN, attempts=attempts)
    make(PLAIN, scheme=Scheme("local"), calibration="published")
    with pytest.raises(BadParameter):
        make(PLAIN, attempts=1, scheme=Scheme("local"), calibration="published")
    with pytest.raises(BadParameter, match="100001"):
        make(replace(FULL, sampling=Sampling(1.0, 100_000)), attempts=1)
