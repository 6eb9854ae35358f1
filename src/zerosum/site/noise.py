"""A site's part of the noise: its own draws, and the cancelling noise made with other sites' draws.

One object serves one attempt at one round. The coordinator's part is `zerosum.coordinator.mixing`. Symbols as in
`zerosum.kernel.schemes`: the message is m_s = c_s f_s + e_s + g_s.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from zerosum.arrays import Floats
from zerosum.errors import BadData, Malformed, OutOfTurn
from zerosum.kernel.schemes import NoiseLaw, NoiseMechanism, draw_step
from zerosum.noise.sampler import Sampler, derive
from zerosum.protocol.messages import DealtNoise, DrawSum, NoiseInput, PublicKeys, Steps

_PIECE = 1 << 17  # numbers per piece, so that no second copy of a long vector is held


class NoiseShare:
    """The noise of one site under a law, for a vector of `size` numbers.

    Parameters
    ----------
    law:
        The calibrated noise of the round.
    site:
        Index of the site on the roster.
    size:
        How many numbers the message has.
    sampler:
        The generator of this site's secret draws.
    context:
        Binds streams that two sites share to this plan, round and attempt.
    """

    def __init__(self, law: NoiseLaw, site: int, size: int, sampler: Sampler, context: bytes) -> None:
        self._law, self._site, self._size = law, site, size
        self._sampler, self._context = sampler, context
        self._drawn: Steps | None = None
        self._coming: Future[Steps] | None = None
        self._secret: X25519PrivateKey | None = None

    def draw(self) -> Steps:
        """BROADCAST: this site's p_s r_s in steps of the grid of `draw_step`, for a secure sum over the sites."""
        std = float(self._law.cancelling[self._site] * self._law.weight[self._site])
        # Whole steps, because the secure sum adds integers.
        self._drawn = np.rint(self._sampler.normal(self._size, std) / draw_step(self._law)).astype(np.int64)
        return self._drawn

    def key(self) -> bytes:
        """PAIRWISE: a fresh public key for the other sites."""
        # A fresh key for each round and attempt: a stream that is used twice would be visible as a difference of two
        # messages.
        self._secret = X25519PrivateKey.generate()
        return self._secret.public_key().public_bytes_raw()

    def begin(self) -> None:
        """Start drawing this site's own noise in a thread while units are added up. If no thread can be started, the
        noise is drawn on use.
        """
        # Only noise on the grid is drawn ahead; the schemes in double precision are for comparison and need no speed.
        if self._law.step > 0 and self._coming is None:
            with suppress(RuntimeError):
                # A `RuntimeError` means that no thread can be started.
                thread = ThreadPoolExecutor(1)
                self._coming = thread.submit(self._steps)
                thread.shutdown(wait=False)

    def _steps(self) -> Steps:
        """This site's own noise g_s as integers, in steps of the grid."""
        if self._law.decay > 0:
            # A share of Laplace noise; under TRUSTED the coordinator draws the whole noise, and a site has none.
            if self._law.own[self._site] > 0:
                return self._sampler.laplace_steps(self._size, self._law.decay, self._law.parts)
            return np.zeros(self._size, dtype=np.int64)
        own = float(self._law.own[self._site]) / self._law.step
        return self._sampler.steps(self._size, own) if own > 0 else np.zeros(self._size, dtype=np.int64)

    def noisy(self, total: Floats, noise_input: NoiseInput) -> Floats | Steps:
        """A site's message: its sum, scaled and with its noise; in grid steps where the law has a grid.

        Parameters
        ----------
        total:
            f_s, shape (size,).
        noise_input:
            Draws of other parties, by mechanism.
        """
        if not np.all(np.isfinite(total)):  # no bounded statistic returns such a sum, so nothing may leave
            raise BadData("this site's sum is not finite, so nothing was sent")
        law, factor = self._law, float(self._law.factor[self._site])
        if law.step > 0:
            coming, self._coming = self._coming, None  # noise is used for one message only
            steps = self._steps() if coming is None else coming.result()
            for start in range(0, self._size, _PIECE):
                here = slice(start, start + _PIECE)
                # Round the sum to the grid before the noise is added: then the sum of both is exact, and rounding is
                # part of the sensitivity (`zerosum.kernel.grid`), not of the noise.
                steps[here] += np.rint(factor * total[here] / law.step).astype(np.int64)
            return steps
        own_noise = self._sampler.normal(self._size, float(law.own[self._site]))
        return np.asarray(factor * total + own_noise + self._cancelling(noise_input))

    def _cancelling(self, noise_input: NoiseInput) -> Floats | float:
        """The cancelling noise e_s, or a refusal of input that does not fit the plan."""
        try:
            noise = self._combined(noise_input)
        except (LookupError, ValueError) as error:
            if isinstance(error, OutOfTurn):
                raise
            raise Malformed("what this site was dealt does not fit the plan") from None
        if np.shape(noise) not in ((), (self._size,)) or not np.all(np.isfinite(noise)):
            raise Malformed("what this site was dealt does not fit the plan")
        return noise

    def _combined(self, noise_input: NoiseInput) -> Floats | float:
        """The cancelling noise e_s, by mechanism; 0 for mechanisms without it."""
        match self._law.mechanism, noise_input:
            case NoiseMechanism.BROADCAST, DrawSum(total, sites) if sites > 0:
                return self._centred(total, sites)
            case NoiseMechanism.HELPER, DealtNoise(from_helper, from_coordinator):
                return np.asarray(from_helper + from_coordinator)
            case NoiseMechanism.PAIRWISE, PublicKeys(keys):
                return self._streams(keys)
            case ((NoiseMechanism.BROADCAST | NoiseMechanism.HELPER | NoiseMechanism.PAIRWISE), _):
                raise Malformed("what this site was dealt does not fit the plan")
        return 0.0

    def _centred(self, total: Steps, sites: int) -> Floats:
        """e_s = r_s - B/(p_s S) for the public sum B of p_s r_s. The draw is deleted after use."""
        if self._drawn is None:
            raise OutOfTurn("this site was asked to contribute before it had drawn its part of the noise")
        # Used once: with the same draw under two sums B, the difference of two messages would have no cancelling noise.
        drawn, self._drawn = self._drawn, None
        apart = drawn - np.asarray(total) / sites
        return np.asarray(apart * (draw_step(self._law) / self._law.weight[self._site]))

    def _streams(self, keys: Mapping[int, bytes]) -> Floats:
        """PAIRWISE: the sum of the streams shared with every other site, with sign + for sites later on the roster and
        - for earlier ones.
        """
        if self._secret is None:
            raise OutOfTurn("this site was asked to contribute before it had made a key")
        secret, self._secret = self._secret, None
        mine, total = secret.public_key().public_bytes_raw(), np.zeros(self._size)
        # A coordinator that replaced this site's key could agree on streams itself.
        if keys.get(self._site) != mine:
            raise OutOfTurn("the list of keys does not hold this site's own key")
        for other, key in keys.items():
            if other == self._site:
                continue
            # Both sites derive the same key: the shared secret, the context, and both public keys in the order of the
            # roster.
            pair = b"".join(keys[s] for s in sorted((self._site, other)))
            shared = secret.exchange(X25519PublicKey.from_public_bytes(key))
            part = self._stream(other, derive(shared, b"pairwise noise " + self._context + pair))
            total += part if self._site < other else -part
        return total

    def _stream(self, other: int, key: bytes) -> Floats:
        """The stream of one pair, expanded from its shared key."""
        return Sampler.shared(key).normal(self._size, float(self._law.cancelling[self._site]))
