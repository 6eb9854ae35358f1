"""A site's half of the noise: what it draws itself, and what it does with what the others drew.

One object serves one attempt at one round. The coordinator's half is `zerosum.engines.mixing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from zerosum.errors import BadInput
from zerosum.kernel.schemes import Floats, Law, Mixing
from zerosum.site.sampler import Sampler, derive


class NoiseShare:
    """The noise of site `site` under a law, for a vector of `size` numbers.

    `context` binds streams that two sites share to this plan, round and attempt.
    """

    def __init__(self, law: Law, site: int, size: int, sampler: Sampler, context: bytes) -> None:
        self._law, self._site, self._size = law, site, size
        self._sampler, self._context = sampler, context
        self._drawn: Floats | None = None
        self._secret: X25519PrivateKey | None = None

    def prepare(self) -> Any:
        """What the others need from this site before it can contribute."""
        match self._law.mixing:
            case Mixing.BROADCAST:
                self._drawn = self._sampler.normal(self._size, float(self._law.cancelling[self._site]))
                return self._drawn * self._law.weight[self._site]
            case Mixing.PAIRWISE:
                self._secret = X25519PrivateKey.generate()
                return self._secret.public_key().public_bytes_raw()
            case mixing:
                raise BadInput(f"nothing is prepared under {mixing.value} mixing")

    def noise(self, dealt: Any) -> Floats:
        """e_s + g_s, to be added to this site's sum."""
        own = self._sampler.normal(self._size, float(self._law.own[self._site]))
        match self._law.mixing:
            case Mixing.NONE | Mixing.TRUSTED:
                return own
            case Mixing.BROADCAST:
                return own + self._centred(*dealt)
            case Mixing.HELPER:
                from_helper, from_coordinator = dealt
                return np.asarray(own + from_helper + from_coordinator)
            case Mixing.PAIRWISE:
                return own + self._streams(dealt)
            case Mixing.MASKED:
                raise BadInput("the secure sum is not part of this engine yet; use zero-sum")

    def _centred(self, total: Floats, sites: int) -> Floats:
        """r_s - B/(p_s S) for the public sum B of p_s r_s; what was drawn is used up."""
        if self._drawn is None:
            raise BadInput("this site was asked to contribute before it had drawn its part of the noise")
        drawn, self._drawn = self._drawn, None
        return np.asarray(drawn - total / (self._law.weight[self._site] * sites))

    def _streams(self, keys: Mapping[int, bytes]) -> Floats:
        """The streams shared with every other site: added to those further down the roster, subtracted above."""
        if self._secret is None:
            raise BadInput("this site was asked to contribute before it had made a key")
        secret, self._secret = self._secret, None
        mine, total = secret.public_key().public_bytes_raw(), self._sampler.normal(self._size, 0.0)
        if keys.get(self._site) != mine:
            raise BadInput("the list of keys does not hold this site's own key")
        for other, key in keys.items():
            if other == self._site:
                continue
            pair = b"".join(keys[s] for s in sorted((self._site, other)))
            shared = secret.exchange(X25519PublicKey.from_public_bytes(key))
            stream = Sampler.shared(derive(shared, b"pairwise noise " + self._context + pair))
            part = stream.normal(self._size, float(self._law.cancelling[self._site]))
            total += part if self._site < other else -part
        return total
