from __future__ import annotations

import os

import numpy as np
import pytest
from scipy import stats

from zerosum.noise.sampler import Sampler, new_secret


def test_sampler_normal_draws_are_standard_normal() -> None:
    """Kolmogorov-Smirnov and tail counts on 10^6 draws; a false alarm about once in 10^5 runs."""
    draws = Sampler.system().normal(1_000_000, 1.0)
    assert stats.kstest(draws, "norm").pvalue > 1e-6
    for cut in (2.0, 3.0, 4.0):
        expected = 2 * stats.norm.sf(cut) * len(draws)
        assert abs(np.sum(np.abs(draws) > cut) - expected) < 5.5 * np.sqrt(expected) + 1
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 5.5e-3


@pytest.mark.system_randomness
def test_sampler_of_system_has_own_stream() -> None:
    first, second = (Sampler.system().normal(1000, 1.0) for _ in range(2))
    assert not np.intersect1d(first, second).size
    sampler = Sampler.system()
    assert not np.intersect1d(sampler.normal(1000, 1.0), sampler.normal(1000, 1.0)).size


def test_sampler_of_secret_has_own_stream_for_every_purpose() -> None:
    """The same secret and purpose repeat the stream, which is what the site's auditor needs."""
    secret, other = new_secret(), new_secret()
    found = [
        Sampler.of_secret(*what).words(1000)
        for what in ((secret, "0"), (secret, "sample"), (secret, "order 0"), (other, "0"))
    ]
    assert len(np.unique(np.concatenate(found))) == 4000
    assert np.array_equal(Sampler.of_secret(secret, "0").words(1000), found[0])


@pytest.mark.system_randomness
def test_secret_of_system_is_fresh_and_has_256_bits() -> None:
    found = {new_secret() for _ in range(100)}
    assert len(found) == 100
    assert {len(each) for each in found} == {32}


@pytest.mark.system_randomness
def test_sampler_in_forked_child_does_not_repeat_parent() -> None:
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


def test_sampler_same_seed_in_any_blocks_gives_same_draws() -> None:
    whole = Sampler.seeded(b"x").normal(300_000, 2.0)
    sampler = Sampler.seeded(b"x")
    parts = np.concatenate([sampler.normal(100_000, 2.0) for _ in range(3)])
    assert np.array_equal(whole, parts)
    assert not np.array_equal(whole[:10], Sampler.seeded(b"y").normal(10, 2.0))


def test_sampler_zero_std_gives_zeros() -> None:
    assert not np.any(Sampler.system().normal(5, 0.0))


def test_sampler_extreme_words_give_finite_symmetric_draws() -> None:
    class Extreme:
        def update(self, size: bytes) -> bytes:
            return np.tile(np.array([0, 2**64 - 1], dtype="<u8"), len(size) // 16).tobytes()

    sampler = Sampler.system()
    sampler._stream = Extreme()  # type: ignore[assignment]
    low, high = sampler.normal(2, 1.0)
    assert low == -high
    assert 8.1 < high < 8.3


def test_sampler_draws_of_one_release_are_all_different() -> None:
    """Two of 4000 draws are alike by chance once in 10^5 runs; of doubles, less often."""
    steps = Sampler.system().steps(4000, 2.0**39)
    assert len(np.unique(np.abs(steps))) == 4000
    assert len(np.unique(np.abs(Sampler.system().normal(4000, 1.0)))) == 4000


@pytest.mark.system_randomness
def test_sampler_key_is_32_bytes_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit cannot tell a short key from a long one. 64 fair bytes have 20 values or fewer less than once in 10^9
    runs."""
    given, keys, start, urandom = [], [], Sampler._start, os.urandom

    def random(size: int) -> bytes:
        given.append(urandom(size))
        return given[-1]

    def started(self: Sampler, key: bytes) -> None:
        keys.append(key)
        start(self, key)

    monkeypatch.setattr(os, "urandom", random)
    monkeypatch.setattr(Sampler, "_start", started)
    for _ in range(64):
        sampler = Sampler.system()
        sampler._pid = -1  # as in a forked child, which draws its own key
        sampler.words(1)
    assert keys == given
    assert {len(key) for key in keys} == {32}
    for half in (keys[::2], keys[1::2]):
        assert all(len(set(column)) > 20 for column in zip(*half, strict=True))
