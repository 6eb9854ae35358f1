"""The benchmarks of networks: what they rest on, at tiny sizes, and never how long anything took."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import network as bench
from zerosum.kernel import accountant
from zerosum.kernel.events import Sampling
from zerosum.kernel.phases import step_mu


def test_pld_epsilon_without_sampling_is_exact() -> None:
    whole = accountant.mu_for(1.0, bench.DELTA)
    assert bench.pld_epsilon(whole / (2 * math.sqrt(9)), 1.0, 9) == pytest.approx(1.0, rel=2e-3)


def test_pld_epsilon_of_added_unit_is_below_replaced_unit() -> None:
    mu = step_mu(accountant.mu_for(1.0, bench.DELTA), Sampling(0.5, 15), bench.DELTA)
    assert bench.pld_epsilon(mu, 0.5, 15) <= 1.0
    assert bench.pld_epsilon(mu, 0.5, 15, replaced=False) < 0.7


def test_torch_images_train_and_gradients_are_those_of_torch_func() -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
    import network_images as images

    rng = np.random.default_rng(0)
    label = torch.from_numpy(rng.integers(0, 10, 96))
    x = 0.3 * torch.rand(96, 1, 28, 28) + label[:, None, None, None] / 10
    images.check(images.net(), x[:32], label[:32])
    data = (x, label, x, label)
    scores = [images.train(data, 0, 30, 60.0, noise, 0.9, 64) for noise in (0.0, 1e4)]
    assert scores[0] > 0.25 > scores[1]
    assert set(images.CHOSEN) == set(images.DP_SGD) == {epsilon for epsilon, _ in images.NOISE}
    for epsilon, (steps, _travel, sample) in images.CHOSEN.items():
        assert (steps, sample) == (images.SMALL_STEPS, images.SMALL) or (epsilon, steps) in images.NOISE
