"""Data Collaboration: what it learns from published records, what it says of itself, and that the publication holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.small_studies import make_sites
from zerosum.algorithms import DataCollaborationProgram, FeatureClassifierProgram
from zerosum.algorithms.collaboration import corrected_least_squares
from zerosum.algorithms.program import PublicFacts
from zerosum.compute.units import Units
from zerosum.errors import BadParameter, PolicyRefused
from zerosum.kernel import accountant
from zerosum.kernel.request import PrivatePublication
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.messages import Contribute, Contribution, Propose
from zerosum.site.site import Site
from zerosum.statistics.records import LabelledRecords
from zerosum.study import make_plan
from zerosum.study.rehearsal import Rehearsal

FEATURES: dict[str, Any] = {"kind": "linear", "lower": [-1.0] * 4, "upper": [1.0] * 4}
PROGRAM: dict[str, Any] = {"classes": ("no", "yes"), "features": FEATURES}


def halves(count: int, seed: int = 0) -> Units:
    rows = np.random.default_rng(seed).uniform(-1, 1, (count, 4))
    return Units(np.column_stack([rows, rows[:, 0] + rows[:, 1] > 0]))


def accuracy(found: Any, units: Units, program: DataCollaborationProgram) -> float:
    rows = np.asarray(units.rows)
    z = np.asarray(program.feature_map(rows[:, :-1])) - found["center"].value
    z = z @ found["projection"].value
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    weights = found["weights"].value
    return float(np.mean(np.argmax(z @ weights[:-1] + weights[-1], axis=1) == rows[:, -1]))


@pytest.mark.parametrize("reduction", ["dp", "random"])
def test_collaboration_published_records_train_accurate_classifier(reduction: str) -> None:
    program = DataCollaborationProgram(**PROGRAM, reduction=reduction, n_components=4, keep_records=True)
    asked = Rehearsal(program, 6000, 3, 8.0, 1e-5)
    found, requests = asked.run_with_requests(halves(6000), 1)
    assert accuracy(found, halves(2000, 1), program) > 0.85
    assert found["records"].shape == (6000, 6)
    assert [type(each).__name__ for each in requests][-1] == "PrivatePublication"
    assert len(requests) == (2 if reduction == "dp" else 1)
    share = 0.85 if reduction == "dp" else 1.0
    expected = np.sqrt(4 + 2 * 1.5**2) / (accountant.mu_for(8.0, 1e-5) * np.sqrt(share))
    assert found["noise"][0] == pytest.approx(expected, rel=1e-3)


def test_collaboration_is_less_accurate_than_private_sum_and_description_names_it() -> None:
    program = DataCollaborationProgram(**PROGRAM)
    published = Rehearsal(program, 3000, 3, 1.0, 1e-5).run(halves(3000), 0)
    summed = Rehearsal(FeatureClassifierProgram(**PROGRAM), 3000, 3, 1.0, 1e-5).run(halves(3000), 0)
    rows = np.asarray(halves(2000, 1).rows)
    z = (np.asarray(program.feature_map(rows[:, :-1])) - summed["center"].value) @ summed["projection"].value
    right = np.mean(np.argmax(z @ summed["weights"].value[:-1], axis=1) == rows[:, -1])
    assert right > accuracy(published, halves(2000, 1), program) + 0.02
    assert "feature-classifier" in program.describe


def test_collaboration_resolve_larger_noise_publishes_fewer_numbers() -> None:
    features = {"kind": "linear", "lower": [0.0] * 300, "upper": [1.0] * 300}
    program = DataCollaborationProgram(**(PROGRAM | {"features": features}))
    quiet, loud = (program.resolve(PublicFacts(9.0, 10_000, published=each)) for each in (0.1, 1.0))
    assert quiet.n_components is not None
    assert loud.n_components is not None
    assert quiet.n_components > 3 * loud.n_components >= 15
    assert quiet.resolve(PublicFacts(9.0, 10, published=5.0)) == quiet
    assert f"{quiet.n_components} numbers" in quiet.describe


def test_corrected_least_squares_of_noisy_records_is_unbiased() -> None:
    """Least squares on noisy records is pulled to zero by their noise; the corrected one is not."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100_000, 3)) / np.sqrt(3)
    yes = (rng.random(len(z)) < 0.5 + 0.3 * np.clip(z[:, 0], -1, 1)).astype(float)
    clean = np.column_stack([z, yes, 1 - yes])
    truth = corrected_least_squares(clean, 3, 0.0, 1.0)
    noisy = clean + 0.5 * rng.normal(size=clean.shape)
    plain = np.linalg.lstsq(noisy[:, :3], noisy[:, 3:] - 0.5, rcond=None)[0]
    assert abs(plain[0, 0] / truth[0, 0]) < 0.65
    assert corrected_least_squares(noisy, 3, 0.5, 1.0)[0, 0] == pytest.approx(truth[0, 0], rel=0.12)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"center": [0.0] * 4}, "center"),
        ({"reduction": "random", "center": [0.0]}, "center"),
        ({"n_components": 5}, "n_components"),
        ({"classes": ("a", "a")}, "classes"),
    ],
)
def test_collaboration_bad_parameter_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        DataCollaborationProgram(**(PROGRAM | changes))


# ---- the publication, attacked --------------------------------------------------------------------------------------

SIZES = (400, 20, 40, 30)
ENDS = [1.0] * 4 + [0.0], [-1.0] * 4 + [1.0]  # opposite records of different classes
ASKED = DataCollaborationProgram(**PROGRAM, reduction="random", n_components=3)


def planned(epsilon: float) -> Any:
    terms = Terms(
        sites=tuple(PlannedSite(f"s{i}", n) for i, n in enumerate(SIZES)),
        epsilon=epsilon,
        delta=1e-5,
        scheme=Scheme("local"),
        coalition=Coalition(1),
    )
    return make_plan(ASKED, terms, "test")


def published(folder: Path, rows: Any, seed: int) -> Any:
    """What the first site really sends, and the plan."""
    site = Site("s0", Units.from_rows(rows), make_sites(folder, publications=True)[0].policy)
    plan = replace(planned(5.0), seed=seed)
    site.handle(Propose(plan))
    reply = site.handle(Contribute(0, 0, ASKED.requests(Adjacency.REPLACE_ONE)[0]))
    assert isinstance(reply, Contribution)
    return np.asarray(reply.payload) * plan.law(0).step, plan


def test_collaboration_worst_record_moves_own_row_by_paid_distance(tmp_path: Path) -> None:
    """The same seed in both worlds: the difference is what the record moved. No other row moves; the noise is what the
    distance costs, so that the whole record with its class is worth epsilon and not more."""
    rows = np.asarray(halves(SIZES[0]).rows)
    worlds = [np.vstack([[first], rows[1:]]) for first in ENDS]
    (one, plan), (other, _plan) = (published(tmp_path / str(w), world, 1) for w, world in enumerate(worlds))
    apart = np.linalg.norm(one - other, axis=1)
    apart = np.sort(apart)[::-1]  # the order in which units are published is no part of this
    assert not np.any(apart[1:])
    assert apart[0] == pytest.approx(np.sqrt(4 + 2 * 1.5**2), rel=1e-3)  # the bound is attained
    noise = float(plan.law(0).own[0] / plan.law(0).factor[0])
    assert accountant.epsilon(apart[0] / noise, 1e-5) <= 5.0 * (1 + 1e-6)
    assert accountant.epsilon(apart[0] / noise, 1e-5) > 4.9


def test_collaboration_adversary_reaches_at_most_epsilon(tmp_path: Path) -> None:
    """The best test between two records, on what sites really send, each of whose units holds one of them."""
    record = LabelledRecords(**ASKED.requests(Adjacency.REPLACE_ONE)[0].statistic.parameters())
    along = np.subtract(*record.rows(Units.from_rows(np.array(ENDS))))
    along /= np.linalg.norm(along)
    scores = [
        published(tmp_path / str(world), np.tile(first, (SIZES[0], 1)), 7 + world)[0] @ along
        for world, first in enumerate(ENDS)
    ]
    mu = (scores[0].mean() - scores[1].mean()) / np.sqrt((scores[0].var() + scores[1].var()) / 2)
    assert mu == pytest.approx(accountant.mu_for(5.0, 1e-5), abs=5 * np.sqrt(2 / SIZES[0]))


def test_collaboration_site_without_publications_in_policy_refuses(tmp_path: Path) -> None:
    policy = make_sites(tmp_path)[0].policy
    site = Site("s0", halves(SIZES[0]), policy)
    assert isinstance(ASKED.requests(Adjacency.REPLACE_ONE)[0], PrivatePublication)
    with pytest.raises(PolicyRefused, match="publications"):
        site.handle(Propose(planned(5.0)))
