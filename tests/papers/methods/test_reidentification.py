"""Attacks on published records: they succeed where nothing protects, and are at chance where noise is large."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.papers.methods import collaboration as methods
from zerosum.papers.methods import reidentification as attacks
from zerosum.papers.methods.collaboration import Records

RNG = np.random.default_rng(0)
MIX = RNG.standard_normal((8, 40)) / 4


def records(count: int) -> Records:
    x = 0.5 + 0.1 * RNG.standard_normal((count, 8)) @ MIX + 0.01 * RNG.standard_normal((count, 40))
    return Records(np.clip(x, 0, 1), RNG.integers(0, 10, count))


SITES = [records(200) for _ in range(3)]
OTHERS = records(400).x


def test_a_colluder_opens_the_map() -> None:
    joint = methods.collaborate(SITES, 10, 0)
    found = attacks.fitted_map(joint.anchors, joint.mapped_anchors[1])
    assert np.allclose(found(OTHERS), joint.maps[1](OTHERS), atol=1e-8)


@pytest.mark.parametrize(
    ("noise", "linked", "left"), [(0.0, (0.99, 1.0), (0.0, 0.1)), (100.0, (0.0, 0.03), (0.9, 1.2))]
)
def test_success_follows_the_noise(noise: float, linked: tuple[float, float], left: tuple[float, float]) -> None:
    joint = methods.collaborate(SITES, 10, 0, noise)
    known = attacks.fitted_map(joint.anchors, joint.mapped_anchors[1])
    assert linked[0] <= attacks.linked(joint.published[1], known(SITES[1].x)) <= linked[1]
    simulated = known(OTHERS) + noise * RNG.standard_normal((len(OTHERS), 10))
    assert left[0] <= attacks.left_over(joint.published[1], SITES[1].x, simulated, OTHERS) <= left[1]
    apart = attacks.told_apart(joint.published[1], known(SITES[1].x), known(OTHERS))
    assert apart > 0.99 if noise == 0 else abs(apart - 0.5) < 0.1
