"""The coordinator's part of the noise: it passes on what sites need from each other and adds up their messages.

The sites' part is `zerosum.site.noise`; secure aggregation is in `zerosum.coordinator.secure`. The trusted helper of
capePCA (Imtiaz and Sarwate 2018) is simulated here too, since in one process there is no other party. Symbols as in
`zerosum.kernel.schemes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.errors import Malformed
from zerosum.kernel.schemes import NoiseLaw, NoiseMechanism
from zerosum.noise.sampler import Sampler
from zerosum.protocol.messages import DealtNoise, DrawSum, NoiseInput, PublicKeys


class Mixer:
    """One attempt at one round whose messages the coordinator can read one by one.

    Parameters
    ----------
    law : NoiseLaw
        The round's noise, with the standard deviations and weights of all S sites.
    size : int
        Number of values of a contribution.
    sampler : Sampler
        Generator of the coordinator's and the helper's draws.
    """

    def __init__(self, law: NoiseLaw, size: int, sampler: Sampler) -> None:
        self._law, self._size, self._sampler = law, size, sampler
        self.keys: dict[int, bytes] = {}  # PAIRWISE: the sites' public keys
        self.draws: DrawSum | None = None  # BROADCAST
        self._own_deals: dict[int, Floats] = {}
        self._helper_deals: Floats | None = None
        # On a grid the sum is exact in integers, in any order of arrival. The cancelling schemes use doubles.
        self._sum: NDArray[Any] = np.zeros(size, dtype=np.int64 if law.step > 0 else np.float64)

    @property
    def needs_everyone(self) -> bool:
        """Whether the loss of a site after the noise was fixed would leave its cancelling noise in the sum."""
        return self._law.mechanism in (NoiseMechanism.BROADCAST, NoiseMechanism.PAIRWISE, NoiseMechanism.HELPER)

    def deal(self, site: int) -> NoiseInput:
        """The input that a site needs to make its noise; None for mechanisms without cancelling noise."""
        match self._law.mechanism:
            case NoiseMechanism.BROADCAST:
                return self.draws
            case NoiseMechanism.PAIRWISE:
                return PublicKeys(dict(self.keys))
            case NoiseMechanism.HELPER:
                return DealtNoise(self._helper()[site], self._coordinator(site))
            case _:
                return None

    def _helper(self) -> Floats:
        """e_s of all sites as a trusted noise generator deals them (capePCA, Algorithm 1, section
        III-A); shape (S, size).
        """
        if self._helper_deals is None:
            law, last = self._law, self._law.sites - 1
            # An infinite entry marks the form for unequal sites: the last site draws nothing and takes the remainder.
            turns = last if np.isinf(law.cancelling[last]) else law.sites
            dealt = np.zeros((law.sites, self._size))
            for s in range(turns):
                dealt[s] = self._sampler.normal(self._size, float(law.cancelling[s]))
            weighed = law.weight @ dealt
            # Both forms make the weighted sum over the sites zero: the last site takes the remainder, or the mean is
            # subtracted.
            if turns == last:
                dealt[last] = -weighed / law.weight[last]
            else:
                dealt -= weighed / (law.weight[:, None] * law.sites)
            self._helper_deals = dealt
        return self._helper_deals

    def _coordinator(self, site: int) -> Floats:
        """Noise that protects a message on its way from the site; the coordinator subtracts it again
        (f_s in capePCA).
        """
        law, S = self._law, self._law.sites
        # Standard deviation of e_s after the mean over S independent draws is subtracted.
        std = float(law.cancelling[site]) * np.sqrt(1 - 1 / S)
        if np.isinf(std):  # the site that takes the remainder: its e_s has this standard deviation
            std = float(np.linalg.norm((law.weight * law.cancelling)[:-1]) / law.weight[-1])
        # Kept until the contribution arrives, where `add` subtracts it: only the coordinator knows f_s, so that it
        # hides the message from readers of the network and not from the coordinator.
        self._own_deals[site] = self._sampler.normal(self._size, std)
        return self._own_deals[site]

    def add(self, site: int, vector: NDArray[Any]) -> None:
        """Add a contribution to the sum. The single vector is not kept."""
        # Refused before it is added: one NaN would destroy the sum of all sites.
        if vector.shape != (self._size,) or vector.dtype != self._sum.dtype or not np.all(np.isfinite(vector)):
            raise Malformed(f"a contribution must be {self._size} finite numbers of type {self._sum.dtype}")
        if self._law.step > 0:
            self._sum += vector  # integer arithmetic: weights are 1 for mechanisms on the grid
        else:
            self._sum += self._law.weight[site] * (vector - self._own_deals.pop(site, 0.0))

    def finish(self) -> Floats:
        """The released sum, shape (size,). Under TRUSTED the coordinator adds its noise here."""
        central = self._law.central
        if self._law.step == 0:
            return self._sum + self._sampler.normal(self._size, central)
        # Drawn on the grid, before the conversion to real numbers: noise added in floating point would leak by its
        # rounding (Mironov 2012).
        noise: NDArray[np.int64] | int = 0
        if central > 0 and self._law.decay > 0:
            noise = self._sampler.laplace_steps(self._size, self._law.decay, self._law.parts)
        elif central > 0:
            noise = self._sampler.steps(self._size, central / self._law.step)
        return np.asarray((self._sum + noise) * self._law.step)


def noise_std(law: NoiseLaw, participants: Sequence[int]) -> float:
    """Standard deviation of the noise of a released sum over these sites.

    The noise that cancels is not in it: a round is abandoned if a part of that noise is missing.

    Parameters
    ----------
    law : NoiseLaw
        The round's noise.
    participants : sequence of int
        Positions of the sites whose contributions are in the sum.
    """
    index = list(participants)
    return float(np.sqrt(np.sum((law.weight[index] * law.own[index]) ** 2) + law.central**2))
