"""The public bound of an opened sum: above every honest sum, and far below the sums that no honest sites make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.small_studies import make, make_sites
from zerosum.coordinator import largest_sum
from zerosum.kernel.grid import MOST_UNITS
from zerosum.kernel.schemes import NoiseLaw, draw_step
from zerosum.noise.sampler import Sampler
from zerosum.study import pin

UNITS = dict(enumerate((12, 20, 40, 30)))


def law(tmp_path: Path, scheme: str = "secure-sum") -> NoiseLaw:
    return pin(make(scheme), make_sites(tmp_path)).law(0)


def honest(noise: NoiseLaw, size: int, sampler: Sampler) -> np.ndarray:
    """The sum of the four sites if every unit has the largest contribution, all in one direction."""
    total = np.zeros(size, dtype=np.int64)
    for s, units in UNITS.items():
        if noise.decay:
            total += sampler.laplace_steps(size, noise.decay, noise.parts)
        else:
            total += sampler.steps(size, float(noise.own[s]) / noise.step)
        total[0] += np.int64(np.rint(noise.factor[s] * units / noise.step))
    return total


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_largest_sum_is_above_every_honest_sum(kind: str, size: int, tmp_path: Path) -> None:
    noise = law(tmp_path)
    if kind == "laplace":
        noise = replace(noise, decay=1e-6, parts=3)
    most = largest_sum.of_contributions(noise, 1.0, size, range(4), UNITS)
    sampler = Sampler.seeded(f"{kind} {size}".encode())
    longest = max(largest_sum.norm(honest(noise, size, sampler)) for _ in range(200))
    assert longest < most
    # Close enough to be of use: without its people the allowance is a small multiple of the noise that occurs.
    alone = largest_sum.of_contributions(noise, 1.0, size, range(4), dict.fromkeys(range(4), 0))
    assert most - alone == pytest.approx(sum(UNITS.values()) / noise.step, rel=1e-3)
    typical = largest_sum.norm(honest(replace(noise, factor=np.zeros(4)), size, sampler))
    assert alone < (200 if size == 1 else 150) * max(typical, 0.1 * float(np.max(noise.own)) / noise.step)


def test_largest_sum_gaussian_allowance_has_the_stated_probability() -> None:
    """With fewer bits the bound of Hsu, Kakade and Zhang is exceeded no more often than it says."""
    ones = np.ones(1)
    noise = NoiseLaw(make("secure-sum").law(0).mechanism, ones, ones, 1000 * ones, 0 * ones, step=1.0)
    sampler = Sampler.seeded(b"tail")
    with pytest.MonkeyPatch.context() as patch:
        for bits in (1, 3, 6):
            patch.setattr(largest_sum, "BITS", bits)
            for size in (1, 30):
                most = largest_sum.of_contributions(noise, 1.0, size, (0,), {0: 0})
                draws = sampler.steps(size * 20_000, 1000.0).reshape(-1, size).astype(np.float64)
                assert np.mean(np.linalg.norm(draws, axis=1) > most) <= 2.0**-bits


def test_largest_sum_of_uniform_numbers_or_of_one_far_number_is_exceeded(tmp_path: Path) -> None:
    noise, rng = law(tmp_path), np.random.default_rng(3)
    most = largest_sum.of_contributions(noise, 1.0, 2, range(4), UNITS)
    for _ in range(1000):
        assert largest_sum.norm(rng.integers(-(2**63), 2**63 - 1, 2)) > most
    sampler = Sampler.seeded(b"far")
    for _ in range(100):
        total = honest(noise, 2, sampler)
        total[int(rng.integers(2))] += np.int64(2 * most)
        assert largest_sum.norm(total) > most


def test_largest_sum_without_public_units_counts_the_most_that_a_site_may_have(tmp_path: Path) -> None:
    noise = law(tmp_path)
    unknown = largest_sum.of_contributions(noise, 1.0, 2, (0, 1), {})
    assert unknown == pytest.approx(2 * MOST_UNITS / noise.step, rel=1e-3)


def test_largest_sum_of_draws_is_never_exceeded(tmp_path: Path) -> None:
    noise = law(tmp_path, "zero-sum")
    most = largest_sum.of_draws(noise, 1, range(4))
    step, sampler = draw_step(noise), Sampler.seeded(b"draws")
    for _ in range(1000):
        total = sum(
            np.rint(sampler.normal(1, float(noise.cancelling[s] * noise.weight[s])) / step).astype(np.int64)
            for s in range(4)
        )
        assert largest_sum.norm(np.asarray(total)) < most
    assert most < 2.0**60
