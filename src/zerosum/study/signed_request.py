"""Requests of a site to the operator of a transport, signed with the site's identity.

The key in the request carries bytes and nothing else. What makes a request a site's is the identity that the roster
names.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from zerosum.errors import BadInput, Refused
from zerosum.secagg.keys import Identity, check_signature


@dataclass(frozen=True)
class SignedRequest:
    """A site's request, signed with its identity. Subclasses state the purpose."""

    #: Domain separation: the site's identity signs other messages too, and no signature may be valid for two purposes.
    purpose: ClassVar[bytes]
    #: The request in words, for errors.
    what: ClassVar[str]

    site: str
    identity: str
    request: bytes
    signature: bytes

    @classmethod
    def of(cls, site: str, identity: Identity, request: bytes) -> Self:
        """Sign the bytes of a request with the site's identity."""
        return cls(site, identity.public.hex(), request, identity.sign(cls._content(site, request)))

    def check(self) -> None:
        """Raise if the signature is not of `identity`. Whether the roster has this identity: `check_roster`."""
        check_signature(bytes.fromhex(self.identity), self.signature, self._content(self.site, self.request))

    def check_roster(self, roster: Mapping[str, str | None]) -> None:
        """Refuse a request that is not of a site of the roster, under the identity that the roster names.

        Parameters
        ----------
        roster : mapping
            Identity of each site by its name, from the study file.
        """
        if self.site not in roster:
            raise Refused(f"there is no site named {self.site!r} on the roster")
        if roster[self.site] != self.identity:
            raise Refused(f"the request comes under another identity for {self.site!r} than the roster names")

    def to_json(self) -> bytes:
        """The file that a site sends: the signed request with its bytes in base64."""
        record = {"site": self.site, "identity": self.identity, "signature": self.signature.hex()}
        return json.dumps(record | {"request": base64.b64encode(self.request).decode()}, indent=2).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a request file and check its signature."""
        try:
            record = json.loads(path.read_bytes())
            raw = base64.b64decode(record["request"], validate=True)
            loaded = cls(str(record["site"]), str(record["identity"]), raw, bytes.fromhex(record["signature"]))
            bytes.fromhex(loaded.identity)
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
        except (ValueError, TypeError, KeyError):
            raise BadInput(f"{path} is no {cls.what}") from None
        loaded.check()
        return loaded

    @classmethod
    def _content(cls, site: str, request: bytes) -> bytes:
        """Bytes that the site's identity signs: purpose, name of the site, and digest of the request."""
        return cls.purpose + json.dumps([site, hashlib.sha256(request).hexdigest()]).encode()
