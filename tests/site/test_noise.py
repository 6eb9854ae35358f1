"""The noise of one site's message."""

from __future__ import annotations

import math

import numpy as np
import pytest

from zerosum.kernel import grid
from zerosum.kernel.schemes import Scheme, SiteShape
from zerosum.noise.sampler import Sampler
from zerosum.site.noise import NoiseShare


def test_noise_share_on_grid_has_standard_deviation_of_law() -> None:
    """Off by more than 5 standard errors, 0.6 %, once in 10^6 runs."""
    size = 400_000
    for name in ("local", "secure-sum"):
        law = Scheme(name).law([SiteShape()] * 3, 2).scaled(3.0)
        law = grid.place(law, 2.0, 1.0, size)
        noise = np.asarray(NoiseShare(law, 1, size, Sampler.system(), b"").noisy(np.zeros(size), None)) * law.step
        assert np.sqrt(np.mean(noise**2)) == pytest.approx(float(law.own[1]), rel=5 / math.sqrt(2 * size))
