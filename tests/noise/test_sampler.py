from __future__ import annotations

import os

import numpy as np
import pytest
from scipy import stats

from zerosum.noise.sampler import Sampler


def test_draws_are_standard_normal() -> None:
    """Kolmogorov-Smirnov and tail counts on 10^6 draws; a false alarm about once in 10^5 runs."""
    draws = Sampler.system().normal(1_000_000, 1.0)
    assert stats.kstest(draws, "norm").pvalue > 1e-6
    for cut in (2.0, 3.0, 4.0):
        expected = 2 * stats.norm.sf(cut) * len(draws)
        assert abs(np.sum(np.abs(draws) > cut) - expected) < 5.5 * np.sqrt(expected) + 1
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 5.5e-3


@pytest.mark.system_randomness
def test_every_system_sampler_has_a_stream_of_its_own() -> None:
    first, second = (Sampler.system().normal(1000, 1.0) for _ in range(2))
    assert not np.intersect1d(first, second).size
    sampler = Sampler.system()
    assert not np.intersect1d(sampler.normal(1000, 1.0), sampler.normal(1000, 1.0)).size


@pytest.mark.system_randomness
def test_a_forked_child_does_not_repeat_its_parents_noise() -> None:
    sampler = Sampler.system()
    sampler.normal(10, 1.0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, sampler.normal(100, 1.0).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 800))
    os.close(read)
    os.close(write)
    assert not np.intersect1d(sampler.normal(100, 1.0), theirs).size


def test_seeds_repeat_and_blocks_do_not_matter() -> None:
    whole = Sampler.seeded(b"x").normal(300_000, 2.0)
    sampler = Sampler.seeded(b"x")
    parts = np.concatenate([sampler.normal(100_000, 2.0) for _ in range(3)])
    assert np.array_equal(whole, parts)
    assert not np.array_equal(whole[:10], Sampler.seeded(b"y").normal(10, 2.0))


def test_no_noise_is_no_noise() -> None:
    assert not np.any(Sampler.system().normal(5, 0.0))


def test_the_outermost_words_give_finite_and_symmetric_draws() -> None:
    class Extreme:
        def update(self, size: bytes) -> bytes:
            return np.tile(np.array([0, 2**64 - 1], dtype="<u8"), len(size) // 16).tobytes()

    sampler = Sampler.system()
    sampler._stream = Extreme()  # type: ignore[assignment]
    low, high = sampler.normal(2, 1.0)
    assert low == -high
    assert 8.1 < high < 8.3
