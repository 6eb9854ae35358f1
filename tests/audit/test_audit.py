"""The auditor passes sound guarantees and finds seeded mistakes; a false alarm about once in 10^5 runs of this file."""

from __future__ import annotations

import math
import re
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import Field

from mutations import seeded
from zerosum.algorithms import (
    Algorithm,
    CovarianceProgram,
    CustomProgram,
    DataCollaborationProgram,
    HistogramProgram,
    KMeansProgram,
    MeanProgram,
    NeuralClassifierProgram,
)
from zerosum.algorithms.program import Program
from zerosum.arrays import Array, Floats
from zerosum.audit import audit
from zerosum.audit.adversary import candidates, worst_pair
from zerosum.audit.demonstrations import Demonstration, demonstration
from zerosum.compute.backends.exact import clip_rows
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.schemes import Combine, NoiseLaw, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.noise.sampler import Sampler
from zerosum.site.noise import NoiseShare
from zerosum.site.site import Site
from zerosum.statistics import build, register
from zerosum.statistics.moments import SecondMoment

SCHEMES = [
    Scheme("secure-sum"),
    Scheme("local"),
    Scheme("pooled"),
    Scheme("zero-sum"),
    Scheme("zero-sum", ratio=0.7),
    Scheme("pairwise", ratio=2.0),
    Scheme("cape-published"),
    Scheme("cape-helper"),
]


def alone(planned: float, scheme: Scheme, sites: int, colluders: int) -> float:
    """What the coordinator may reach: under `cape-helper` it deals all that cancels, and a site has its own noise."""
    if scheme.name != "cape-helper":
        return planned
    honest = sites - colluders
    return planned * math.sqrt(sites / ((1 - 1 / honest) / (1 + 1 / sites) + sites / honest))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: f"{scheme.name}-{scheme.ratio}")
@pytest.mark.parametrize(("sites", "colluders"), [(4, 1), (5, 3), (2, 1)])
def test_audit_every_scheme_reaches_claim_and_no_more(scheme: Scheme, sites: int, colluders: int) -> None:
    found = audit(scheme, sites=sites, colluders=colluders, samples=60_000)
    assert found.holds
    assert found.tight
    assert found.faults == ()
    assert found.planned == pytest.approx(1.5, rel=1e-9)
    assert found.claimed == pytest.approx(alone(found.planned, scheme, sites, colluders), rel=1e-9)


def test_audit_helper_apart_from_coordinator_reaches_planned_mu() -> None:
    found = audit(Scheme("cape-helper"), samples=60_000, helper_apart=True)
    assert found.tight
    assert found.claimed == found.planned == pytest.approx(1.5, rel=1e-9)


@pytest.mark.parametrize(("scheme", "dropouts"), [("secure-sum", 1), ("secure-sum", 2), ("zero-sum", 1), ("local", 1)])
def test_audit_with_dropouts_is_tight(scheme: str, dropouts: int) -> None:
    found = audit(Scheme(scheme), sites=7, colluders=2, dropouts=dropouts, samples=60_000)
    assert found.tight


@pytest.mark.parametrize(
    "algorithm",
    [
        MeanProgram(columns=tuple(f"x{i}" for i in range(2000)), lower=np.zeros(2000), upper=np.arange(1.0, 2001.0)),
        CovarianceProgram(columns=tuple(f"x{i}" for i in range(60)), clip=1.0),
        HistogramProgram(columns=("bin",), values=tuple(f"{i}" for i in range(2000))),
        CustomProgram(columns=tuple(f"x{i}" for i in range(2000)), statistic="vector_sum_of_my_own", clip=0.5),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_audit_every_program_is_tight(algorithm: Algorithm) -> None:
    found = audit(Scheme("secure-sum"), algorithm, samples=20_000)
    assert found.holds
    assert found.tight


@pytest.mark.parametrize("scheme", ["secure-sum", "pooled", "local"])
def test_audit_of_laplace_noise_reaches_claim_and_no_more(scheme: str) -> None:
    found = audit(Scheme(scheme), mu=1.0, samples=24_000, noise="laplace")
    assert found.holds
    assert found.tight
    assert found.faults == ()
    assert found.claimed == pytest.approx(1.0, rel=1e-9)


def test_audit_of_laplace_noise_of_counts_and_with_a_loss_is_tight() -> None:
    histogram = HistogramProgram(columns=("bin",), values=tuple(f"{i}" for i in range(2000)))
    found = audit(Scheme("secure-sum"), histogram, sites=6, dropouts=1, mu=1.0, samples=8000, noise="laplace")
    assert found.tight
    assert found.faults == ()


def test_audit_of_laplace_noise_of_several_releases_is_refused() -> None:
    with pytest.raises(BadParameter):
        audit(Scheme("secure-sum"), CovarianceProgram(columns=("a", "b"), clip=1.0), noise="laplace")


def test_audit_of_training_transcript_holds() -> None:
    """Each step's adversary knows the weights; two examples whose gradients are opposite are what it tells apart."""
    names = (*(f"x{i}" for i in range(9)), "class")
    algorithm = NeuralClassifierProgram(columns=names, lower=-np.ones(9), upper=np.ones(9), steps=2, hidden=20)
    found = audit(Scheme("secure-sum"), algorithm, samples=2000)
    assert found.holds
    assert found.faults == ()
    assert found.reached > 0.5 * found.claimed


def test_audit_of_several_rounds_stays_below_claim() -> None:
    found = audit(
        Scheme("secure-sum"),
        KMeansProgram(columns=tuple(f"x{i}" for i in range(99)), n_clusters=10, rounds=3, clip=1.0),
        samples=10_000,
    )
    assert found.holds


def published(columns: int = 40, **settings: Any) -> DataCollaborationProgram:
    """Records of so many numbers and their class, one for every unit of every site."""
    features = {"kind": "linear", "lower": [-1.0] * columns, "upper": [1.0] * columns}
    settings = {"reduction": "random", "n_components": columns} | settings
    return DataCollaborationProgram(classes=(0.0, 1.0, 2.0), features=features, **settings)


@pytest.mark.parametrize("scheme", ["local", "secure-sum", "zero-sum"])
def test_audit_of_publication_reaches_claim_and_no_more(scheme: str) -> None:
    """Whatever the scheme of sums is, a record's noise is its own site's; opposite records of two classes are told
    apart as well as is claimed."""
    found = audit(Scheme(scheme), published(), samples=20_000, units=100)
    assert found.holds
    assert found.faults == ()
    assert found.reached > 0.95 * found.claimed
    assert found.claimed == pytest.approx(1.5, rel=1e-9)


def test_audit_of_private_reduction_with_publication_holds() -> None:
    found = audit(Scheme("secure-sum"), published(20, reduction="dp", n_components=8), samples=1000, units=60)
    assert found.holds
    assert found.faults == ()


@pytest.mark.slow
@pytest.mark.parametrize("colluders", [0, 1, 3])
@pytest.mark.parametrize("mu", [1.5, 4.0, 6.5])
def test_audit_of_publication_at_full_size_holds(colluders: int, mu: float) -> None:
    found = audit(
        Scheme("secure-sum"), published(60), sites=5, colluders=colluders, mu=mu, samples=2_000_000, units=200
    )
    assert found.holds
    assert found.faults == ()
    assert found.reached > 0.97 * found.claimed


class OwnVectors(SecondMoment):
    """A user's class of its own in the registry."""

    name: ClassVar[str] = "vector_sum_of_my_own"
    options: dict[str, float] = Field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.columns

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2 * self.clip if adjacency is Adjacency.REPLACE_ONE else self.clip

    def sum_block(self, block: Units) -> Array:
        return np.sum(clip_rows(np.asarray(block.average(block.rows)), self.clip), axis=0)


register(OwnVectors)


# ---- the auditor must be able to fail ------------------------------------------------------------------------------


@pytest.mark.parametrize("mistake", ["spectral", "triangles"])
def test_audit_wrong_sensitivity_is_found(mistake: str) -> None:
    found = audit(Scheme("secure-sum"), demonstration(mistake), samples=20_000)
    assert not found.holds
    assert found.reached == pytest.approx(math.sqrt(2) * found.claimed, rel=0.05)


def test_audit_publication_without_class_in_sensitivity_is_found() -> None:
    with seeded("published-class"):
        found = audit(Scheme("local"), published(label_weight=1.0), samples=20_000, units=100)
    assert not found.holds
    assert found.reached == pytest.approx(math.sqrt(1.5) * found.claimed, rel=0.06)


def unbounded() -> AbstractContextManager[None]:
    """Releases sums of any length: the noise of some faults is so large that the bound of the sum stops the study."""
    return seeded("sum-of-any-length")


def test_audit_records_with_equal_noise_are_found() -> None:
    with seeded("one-noise-for-all-records"):
        found = audit(Scheme("secure-sum"), published(), samples=2000, units=50)
    assert not found.holds
    assert found.reached > 5 * found.claimed
    assert any("the estimate" in sentence and "43 apart" in sentence for sentence in found.faults)


@pytest.mark.parametrize(("colluders", "dropouts"), [(2, 0), (1, 2)])
def test_audit_along_tree_reaches_claim_and_no_more(colluders: int, dropouts: int) -> None:
    """Against the coordinator, the colluders, and the transcripts of all inner nodes."""
    found = audit(Scheme("secure-sum"), sites=7, colluders=colluders, dropouts=dropouts, fan_out=2, samples=40_000)
    assert found.holds, found
    assert found.tight, found


def test_audit_along_tree_of_vectors_without_masks_is_found() -> None:
    with seeded("no-masks"):
        assert audit(Scheme("secure-sum"), sites=7, colluders=1, fan_out=2, samples=16_000).reached == math.inf


@pytest.mark.parametrize("scheme", ["secure-sum", "zero-sum", "cape-published", "cape-helper", "pairwise"])
def test_audit_uncounted_colluder_is_found(scheme: str) -> None:
    with seeded("uncounted-colluders"):
        found = audit(Scheme(scheme), sites=4, colluders=1, samples=60_000, helper_apart=scheme == "cape-helper")
    assert not found.holds


@pytest.mark.parametrize(
    ("fault", "scheme", "word", "reached"),
    [
        ("repeated-draws", "secure-sum", "pairs", math.inf),
        ("repeated-draws", "zero-sum", "1 apart", 1.5),
        ("repeated-draws", "cape-helper", "pairs", 2.196),
        ("repeated-halves", "pooled", "4000 apart", math.inf),
        ("repeated-halves", "pairwise", "4000 apart", 1.5),
        ("one-key", "secure-sum", "victim", math.inf),
        ("one-key-a-site", "local", "correlation", math.inf),
        ("one-key-a-site", "cape-published", "correlation", 1.5),
        ("one-key-a-round", "local", "victim", math.inf),
        ("one-key-a-round", "zero-sum", "victim", math.inf),
        ("one-key-a-round", "secure-sum", "site 0.*site 1", math.inf),
        ("correlated-rounds", "secure-sum", "correlation", 1.55),
    ],
)
def test_audit_repeated_noise_is_found(fault: str, scheme: str, word: str, reached: float) -> None:
    """Within a release, from study to study, and between sites."""
    with unbounded(), seeded(fault):
        found = audit(Scheme(scheme), samples=40_000)
    assert not found.holds
    assert any(re.search(rf"\b{word}", sentence) for sentence in found.faults)
    assert found.reached >= reached


def test_audit_noise_repeated_in_next_round_is_found() -> None:
    kmeans = KMeansProgram(columns=tuple(f"x{i}" for i in range(99)), n_clusters=10, rounds=2, clip=1.0)
    with unbounded(), seeded("one-key-a-site"):
        found = audit(Scheme("secure-sum"), kmeans, samples=1000)
    assert any("site 0 in round 2" in sentence and "key" in sentence for sentence in found.faults)
    assert not found.holds


@pytest.mark.parametrize(
    ("fault", "scheme", "word"),
    [
        ("silent-places", "secure-sum", r"\d+ of \d+ numbers"),
        ("silent-places", "pooled", r"coordinator: 1\d* of \d+"),
        ("silent-places", "zero-sum", r"\d+ of \d+ numbers"),
        ("half-noise-first", "secure-sum", r"of 16\b.* 0\.6"),
        ("half-noise-first", "pairwise", r"\b0\.7"),
        ("even-steps", "local", "divided"),
        ("less-noise", "secure-sum", r"\b0\.9"),
    ],
)
def test_audit_noise_of_wrong_shape_is_found(fault: str, scheme: str, word: str) -> None:
    with unbounded(), seeded(fault):
        found = audit(Scheme(scheme), samples=100_000)
    assert not found.holds
    assert any(re.search(word, sentence) for sentence in found.faults)


class OneStingy(Site):
    """Of all sites, the third draws 0.55 of its noise: no colluder, no victim."""

    def _new_share(self, law: NoiseLaw, position: int, size: int, sampler: Sampler, context: bytes) -> NoiseShare:
        return NoiseShare(law.scaled(0.55 if position == 2 else 1.0), position, size, sampler, context)


@pytest.mark.parametrize("scheme", ["local", "zero-sum"])
def test_audit_other_site_with_too_little_noise_is_found(scheme: str) -> None:
    found = audit(Scheme(scheme), samples=20_000, site_kind=OneStingy)
    assert not found.holds
    assert any(re.search(r"site 2\b.* 0\.5", fault) for fault in found.faults)


@pytest.mark.parametrize("scheme", ["secure-sum", "pooled"])
@pytest.mark.parametrize("columns", [1, 3])
def test_audit_release_of_few_numbers_uses_all_of_them(scheme: str, columns: int) -> None:
    found = audit(Scheme(scheme), MeanProgram(columns=tuple("abc"[:columns]), clip=1.0), samples=40)
    assert found.tight
    assert found.faults == ()
    assert found.samples >= 40


class Stingy(Site):
    """A site that draws 15 % too little noise."""

    def _new_share(self, law: NoiseLaw, position: int, size: int, sampler: Sampler, context: bytes) -> NoiseShare:
        return NoiseShare(law.scaled(0.85), position, size, sampler, context)


@pytest.mark.parametrize("scheme", ["secure-sum", "local"])
def test_audit_noise_15_percent_too_small_is_found(scheme: str) -> None:
    found = audit(Scheme(scheme), samples=60_000, site_kind=Stingy)
    assert not found.holds


def test_audit_sensitivity_15_percent_too_small_is_found() -> None:
    class Loose(SecondMoment):
        name: ClassVar[str] = "mistake_loose"

        def sensitivity(self, adjacency: Adjacency) -> float:
            return super().sensitivity(adjacency) / 1.15

    register(Loose)
    algorithm = Demonstration(columns=tuple(f"x{i}" for i in range(50)), clip=1.0, statistic="mistake_loose")
    assert not audit(Scheme("secure-sum"), algorithm, samples=20_000).holds


def test_audit_bad_request_is_refused() -> None:
    with pytest.raises(BadParameter, match="non-private"):
        audit(Scheme("non-private"))
    with pytest.raises(BadParameter, match="collude"):
        audit(Scheme("local"), sites=3, colluders=3)
    with pytest.raises(BadParameter, match="scheme"):
        audit(Scheme("zero-sum"), MeanProgram(columns=("a",), clip=1.0), samples=100)
    with pytest.raises(BadParameter, match=r"\b50000\b.*\b2000\b.*\b4000 samples"):
        audit(Scheme("secure-sum"), MeanProgram(columns=("a", "b"), clip=1.0))


def test_audit_average_of_site_means_with_declared_units_is_tight() -> None:
    with pytest.raises(BadParameter, match="units"):
        audit(Scheme("cape-published", combine=Combine.MEANS))
    found = audit(Scheme("cape-published", combine=Combine.MEANS), samples=60_000, declare_units=True)
    assert found.tight


@pytest.mark.parametrize("helper_apart", [True, False])
def test_audit_weighted_means_by_a_helper_without_printed_solution_is_tight(helper_apart: bool) -> None:
    scheme = Scheme("cape-helper", combine=Combine.WEIGHTED)
    found = audit(scheme, samples=60_000, declare_units=True, helper_apart=helper_apart)
    assert found.tight


def test_worst_pair_search_reaches_sensitivity() -> None:
    algorithm = CovarianceProgram(columns=("a", "b", "c"), clip=1.3)
    request = algorithm.requests(Adjacency.REPLACE_ONE)[0]
    statistic = request.statistic
    one, other = worst_pair([(statistic, 1.0)], candidates(algorithm))
    apart: Floats = statistic.total(Units.from_list([one])) - statistic.total(Units.from_list([other]))
    assert np.linalg.norm(apart) == pytest.approx(statistic.sensitivity(Adjacency.REPLACE_ONE), rel=0.02)


class Coupled(BoundedStatistic):
    """A mistake: the first unit of a block turns all others over, if there are any."""

    name: ClassVar[str] = "coupled_by_tests"

    @property
    def size(self) -> int:
        return self.columns

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0

    def sum_block(self, block: Units) -> Floats:
        rows = np.asarray(block.rows)
        turned = rows if len(rows) == 1 else rows * np.sign(rows[0, 0])
        return np.asarray(np.sum(clip_rows(turned, 1.0), axis=0))


class AsksForIt(Algorithm):
    name: ClassVar[str] = "asks-for-it"

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return (PrivateSum(build("coupled_by_tests", {"columns": len(self.columns)})),)

    def program(self, adjacency: Adjacency) -> Program:
        release = yield self.requests(adjacency)[0]
        return {"sum": Quantity(release.value)}


def test_audit_unit_that_changes_contributions_of_others_is_found() -> None:
    register(Coupled)
    columns = tuple(f"x{i}" for i in range(50))
    assert not audit(Scheme("pooled"), AsksForIt(columns=columns), samples=10_000).holds
