"""The source of noise: a cipher's key stream, keyed by the operating system or by a secret that it drew.

On the grid the noise is an exact discrete Gaussian (`discrete_gaussian`), or an exact share of discrete Laplace noise
(`discrete_laplace`). The schemes with cancelling noise, which
exist for comparison, use normals in double precision: the inverse distribution function at the centre of one of 2^52
equal cells of (0, 1), whose tails end at 8.2 standard deviations and whose values are not equidistant
(`docs/limitations.md`).
"""

from __future__ import annotations

import math
import os

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.noise import discrete_gaussian, discrete_laplace

_BLOCK = 1 << 17  # numbers per block


class Sampler:
    """Noise from AES-256 in counter mode. `seeded` is for tests and reproduction runs only.

    >>> Sampler.seeded(b"a test").normal(2, 1.0).shape
    (2,)
    """

    def __init__(self, key: bytes, *, rekey_after_fork: bool) -> None:
        self._rekey = rekey_after_fork
        self._start(key)

    def _start(self, key: bytes) -> None:
        """Start a key stream. The counter starts at zero, so that a key must never be used for two streams."""
        # AES in counter mode is a pseudo-random function of the key: the noise is as good as uniform words to every
        # party that does not have the key. This is the computational part of the guarantee (docs/guarantee.md, "The
        # computational promise").
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._pid = os.getpid()

    @classmethod
    def system(cls) -> Sampler:
        """Keyed by the operating system. A forked child draws a new key, so that it does not repeat
        its parent's noise.
        """
        return cls(os.urandom(32), rekey_after_fork=True)

    @classmethod
    def of_secret(cls, secret: bytes, purpose: str) -> Sampler:
        """The stream of one purpose that follows from a secret of 256 bits of the operating system.

        The guarantee is that of `system`. There the key of the cipher is such a secret itself; here it is HKDF of one.
        As long as HKDF-SHA256 is a pseudo-random function of a uniform key, which the masks of the secure sum assume,
        too, the keys of different purposes are independent uniform keys to every party that does not have the secret.
        What else is published of it, a commitment and a salted hash, is HKDF of it for other purposes.

        Unlike the stream of `system` it is repeated by every party that has the secret, and in a forked child: a secret
        must be used for one message only.
        """
        return cls(derive(secret, b"stream " + purpose.encode()), rekey_after_fork=False)

    @classmethod
    def seeded(cls, seed: bytes) -> Sampler:
        """A reproducible stream. A party that knows the seed can subtract the noise."""
        return cls(derive(seed, b"seeded sampler"), rekey_after_fork=False)

    @classmethod
    def shared(cls, key: bytes) -> Sampler:
        """The stream that two sites expand from their shared key."""
        return cls(key, rekey_after_fork=False)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Uniform 64-bit words."""
        # A forked child inherits key and counter. Without a new key parent and child would send two sums with the same
        # noise, whose difference has none.
        if self._rekey and os.getpid() != self._pid:
            self._start(os.urandom(32))
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype="<u8")

    def bernoulli(self, size: int, rate: float) -> NDArray[np.bool_]:
        """Independent coins that are true with probability `rate`, less at most 2^-53."""
        # 53 bits, the precision of a double. Rounding down means that a unit is drawn at most with the probability that
        # the accountant assumes, which is on the safe side.
        return np.asarray((self.words(size) >> np.uint64(11)) < np.uint64(math.floor(rate * 2.0**53)))

    def steps(self, size: int, std: float) -> NDArray[np.int64]:
        """Independent discrete Gaussians of standard parameter `std`, both in steps of the grid."""
        return discrete_gaussian.draw(size, std, self.words)

    def laplace_steps(self, size: int, decay: float, parts: int) -> NDArray[np.int64]:
        """Independent shares of discrete Laplace noise in steps of the grid; `parts` of them add up to it
        (`zerosum.noise.discrete_laplace`).
        """
        return discrete_laplace.draw(size, decay, parts, self.words)

    def normal(self, size: int, std: float) -> Floats:
        """Independent draws from N(0, std^2) in double precision."""
        from scipy.special import ndtri

        out = np.zeros(size)
        if std == 0:
            return out
        for start in range(0, size, _BLOCK):
            part = out[start : start + _BLOCK]
            words = self.words(len(part))
            np.add(words >> np.uint64(12), 0.5, out=part)  # 53 bits: exact in a double
            # Centres of cells are never 0 or 1, where the inverse distribution function is infinite.
            np.multiply(part, 2.0**-52, out=part)
            ndtri(part, out=part)
        return np.multiply(out, std, out=out)


def new_secret() -> bytes:
    """A secret of 256 bits of the operating system, for `Sampler.of_secret`."""
    return os.urandom(32)


def derive(secret: bytes, info: bytes) -> bytes:
    """A 256-bit key for one purpose, by HKDF-SHA256."""
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"zerosum/1 " + info).derive(secret)
