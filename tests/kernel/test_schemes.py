from __future__ import annotations

import math

import numpy as np
import pytest

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.schemes import SCHEMES, Combine, NoiseMechanism, Scheme, SiteShape
from zerosum.kernel.view import view


def marginal_noise(name: str, shapes: list[SiteShape]) -> tuple[Floats, float]:
    """Each message's own noise variance and the release's, from the matrices of the law."""
    law = Scheme(name, combine=Combine.WEIGHTED).law(shapes, len(shapes))
    seen = view(law, range(len(shapes)))
    covariance = (seen.read * seen.variance) @ seen.read.T
    return np.diag(covariance), float(law.weight @ covariance @ law.weight)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("cape-published", (None,) * 4),
        ("cape-published", (0.19, 0.22, 0.27, 0.32)),
        ("cape-helper", (0.156, 0.195, 0.235, 0.414)),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 0.9])
def test_scheme_published_solutions_for_unequal_sites_meet_constraints(
    name: str, weights: tuple[float | None, ...], scale: float
) -> None:
    """var(e_s) + var(g_s) = tau_s^2 at every site, and the weighted mean has the pooled variance 1/N^2."""
    units = [40, 50, 60, 70]
    shapes = [SiteShape(n, scale if n == 40 else 1.0, w) for n, w in zip(units, weights, strict=True)]
    messages, released = marginal_noise(name, shapes)
    asked = np.array([shape.scale for shape in shapes])
    assert np.allclose(messages, 1 / (np.array(units) * asked) ** 2, rtol=1e-9)
    assert released == pytest.approx(1.0)  # N times a mean whose noise variance is 1/N^2


def test_capepca_has_no_solution_for_four_equal_sites() -> None:
    """Its e_S carries the noise of all others, (S - 1) var(e), which must stay below tau^2."""
    Scheme("cape-helper", combine=Combine.WEIGHTED).law([SiteShape(8)] * 2, 1)
    with pytest.raises(BadParameter, match="sums"):
        Scheme("cape-helper", combine=Combine.WEIGHTED).law([SiteShape(8)] * 4, 3)


def test_scheme_average_of_means_has_published_variance() -> None:
    """H(n) = N^2/S^3 sum of 1/n_s^2 (capeDJICA, remark 3); sums lose nothing."""
    units = np.array([10, 100, 1000])
    shapes = [SiteShape(int(n)) for n in units]
    means = Scheme("cape-published", combine=Combine.MEANS).law(shapes, 3)
    assert means.noise_std**2 == pytest.approx(float(np.sum(units)) ** 2 / 27 * float(np.sum(1 / units**2)))
    sums = Scheme("cape-published").law(shapes, 3)
    assert sums.noise_std == pytest.approx(1.0)


def test_scheme_unsolvable_weights_are_refused() -> None:
    shapes = [SiteShape(10, 0.1), SiteShape(1000), SiteShape(1000)]
    for name in ("cape-published", "cape-helper"):
        with pytest.raises(BadParameter, match="sums"):
            Scheme(name, combine=Combine.WEIGHTED).law(shapes, 2)
    with pytest.raises(BadParameter, match="sums"):
        Scheme("cape-published", combine=Combine.WEIGHTED).law([SiteShape(5, 0.5), SiteShape(9)], 1)


def test_scheme_bad_parameter_is_refused() -> None:
    with pytest.raises(BadParameter, match="'cape'"):
        Scheme("cape")
    with pytest.raises(BadParameter, match="ratio"):
        Scheme("zero-sum", ratio=math.inf)
    with pytest.raises(BadParameter, match="ratio"):
        Scheme("zero-sum", ratio=-1)
    with pytest.raises(BadParameter, match="means"):
        Scheme("local", combine=Combine.MEANS)
    with pytest.raises(BadParameter, match="weighted"):
        Scheme("cape-helper", combine=Combine.MEANS)
    with pytest.raises(BadParameter, match="units"):
        Scheme("cape-published", combine=Combine.MEANS).law([SiteShape()] * 3, 2)
    with pytest.raises(BadParameter, match="weights"):
        Scheme("cape-published", combine=Combine.WEIGHTED).law([SiteShape(3, weight=0.5), SiteShape(3)], 1)
    with pytest.raises(BadParameter, match="scale"):
        Scheme("local").law([SiteShape(scale=0.0), SiteShape()], 1)


@pytest.mark.parametrize("name", SCHEMES)
def test_scheme_of_every_name_has_law(name: str) -> None:
    law = Scheme(name).law([SiteShape(10)] * 4, 3)
    assert law.sites == 4
    assert (law.noise_std == 0) == (name == "non-private")
    assert law.scaled(2.0).noise_std == 2 * law.noise_std
    assert Scheme(name).as_record()["name"] == name
    assert law.mechanism in NoiseMechanism
