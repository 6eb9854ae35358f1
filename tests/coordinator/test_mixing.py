"""The coordinator's half of readable noise: what it deals cancels, and what it adds up is what came."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.coordinator.mixing import Mixer, noise_std
from zerosum.errors import BadInput
from zerosum.kernel.schemes import Combine, NoiseLaw, Scheme, SiteShape
from zerosum.noise.sampler import Sampler
from zerosum.protocol.messages import DealtNoise

SHAPES = [SiteShape(units=units) for units in (10, 20, 70)]


def mixer(law: NoiseLaw, size: int = 50) -> Mixer:
    return Mixer(law, size, Sampler.seeded(b"mixing"))


@pytest.mark.parametrize(
    ("combine", "shapes"),
    [
        (Combine.SUMS, SHAPES),
        (Combine.WEIGHTED, [SiteShape(units=30)] * 3),  # the printed solution: the last site takes the remainder
        (Combine.WEIGHTED, [SiteShape(10, weight=0.5), SiteShape(20, weight=0.2), SiteShape(70, weight=0.3)]),
    ],
)
def test_mixer_noise_of_helper_cancels_and_of_coordinator_is_subtracted(
    combine: Combine, shapes: list[SiteShape]
) -> None:
    law = Scheme("cape-helper", combine=combine).law(shapes, 2)
    mixed = mixer(law)
    dealt = [mixed.deal(s) for s in range(3)]
    noise = [each for each in dealt if isinstance(each, DealtNoise)]
    assert len(noise) == 3
    weighed = np.sum([law.weight[s] * noise[s].from_helper for s in range(3)], axis=0)
    assert np.max(np.abs(weighed)) < 1e-9 * np.max(np.abs(noise[0].from_helper)) * float(np.max(law.weight))
    for s in range(3):
        mixed.add(s, np.full(50, float(s)) + noise[s].from_helper + noise[s].from_coordinator)
    expected = float(law.weight @ np.arange(3.0))
    assert np.allclose(mixed.finish(), expected, rtol=0, atol=1e-8 * float(np.max(law.weight)))


def test_mixer_vector_of_other_shape_is_refused() -> None:
    mixed = mixer(Scheme("zero-sum").law(SHAPES, 2))
    for vector in (np.zeros(49), np.zeros(50, dtype=np.int64), np.full(50, np.nan)):
        with pytest.raises(BadInput, match="50"):
            mixed.add(0, vector)


def test_noise_std_of_sum_is_that_of_participants() -> None:
    law = Scheme("local").law(SHAPES, 2)
    assert noise_std(law, [0, 1, 2]) == pytest.approx(np.sqrt(3))
    assert noise_std(law, [1]) == pytest.approx(1.0)
