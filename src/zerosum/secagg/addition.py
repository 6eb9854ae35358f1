"""The addition of masked vectors in one attempt, by the coordinator or by an inner node of a tree.

In a star every vector comes from its site. In a tree (`zerosum.kernel.tree`) an inner node adds the vectors of its
branch modulo 2^64, and sends their sum with the list of its sites, signed by the inner node. The body of such a partial
sum is

    32 bytes    SHA-256 of the context that identifies the request
    w bytes     the list of the sites whose vectors are in the sum, as in a LIST
    ...         for each of them the message with its commitments, as it came
    ...         the sum, little-endian

A vector comes with the signed commitments of its site (`zerosum.secagg.commitments`), which are of this attempt and
request or the vector is not added. They are passed on and not opened: only the site itself can show what they are of.

A node accepts vectors of its own branches only, each site at most once. A fault in a partial sum loses its whole branch
and nothing else, because it is found before anything is added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

import numpy as np

from zerosum.errors import BadParameter, Inconsistent, Malformed, Misdirected, OutOfTurn
from zerosum.secagg import wire
from zerosum.secagg.commitments import COMMITTED_BYTES, HASH_BYTES
from zerosum.secagg.keys import Identity
from zerosum.secagg.masks import Ring
from zerosum.secagg.session import Roster
from zerosum.secagg.wire import Kind, Message


class Addition:
    """The masked vectors of one attempt, added as they arrive.

    Parameters
    ----------
    roster, attempt:
        The parties, and the number of the attempt.
    size:
        Length of the vectors.
    context:
        Bytes that identify the request; the same as in the `mask` of every site.
    branches:
        For each site that may send here, the sites of its branch.

    Attributes
    ----------
    total : array of shape (size,), uint64
        The sum of the vectors that arrived, modulo 2^64.
    arrived : set of int
        The sites whose vectors are in it.
    commitments : dict
        For each of them the message with its commitments.
    """

    def __init__(
        self, roster: Roster, attempt: int, size: int, context: bytes, branches: Mapping[int, Collection[int]]
    ) -> None:
        if size < 1:
            raise BadParameter(f"a sum has at least one number, got {size}")
        self._roster, self._attempt, self._branches = roster, attempt, branches
        self._asked = hashlib.sha256(context).digest()
        self.total: Ring = np.zeros(size, dtype=np.uint64)
        self.arrived: set[int] = set()
        self.commitments: dict[int, bytes] = {}

    def take(self, data: bytes | bytearray | memoryview) -> int:
        """Add one masked vector, or the partial sum of a branch, and return its sender. Nothing is kept of it."""
        partial = wire.decode(data).kind is Kind.PARTIAL
        message = self._roster.take(data, Kind.PARTIAL if partial else Kind.MASKED, self._attempt)
        if message.sender not in self._branches:
            raise Misdirected(f"the vectors of site {message.sender} do not come this way")
        listed, rest = self._opened(message) if partial else ({message.sender}, message.body)
        committed, vector = _split(rest, len(listed))
        # All checks come before the addition: a faulty partial sum must leave no trace in the total.
        if not self.arrived.isdisjoint(listed):
            raise OutOfTurn("a vector came twice")
        if len(vector) != 8 * len(self.total):
            raise Malformed(f"a vector of {len(self.total)} numbers was expected, got {len(vector)} bytes")
        self._check(sorted(listed), committed)
        # Unsigned 64-bit addition wraps around, which is addition in Z_2^64. "<u8" is the byte order of the wire.
        np.add(self.total, np.frombuffer(vector, dtype="<u8"), out=self.total)
        self.arrived |= listed
        self.commitments |= {site: bytes(each) for site, each in zip(sorted(listed), committed, strict=True)}
        return message.sender

    def _check(self, sites: list[int], committed: list[memoryview]) -> None:
        """Refuse commitments that these sites did not sign for this attempt and request."""
        for site, data in zip(sites, committed, strict=True):
            message = self._roster.take(data, Kind.COMMITTED, self._attempt)
            if message.sender != site or len(message.body) != 3 * HASH_BYTES:
                raise Inconsistent(f"the commitments that came with the vector of site {site} are not its own")
            if message.body[:HASH_BYTES] != self._asked:
                raise Misdirected(f"site {site} committed itself to another request")

    def _opened(self, message: Message) -> tuple[set[int], memoryview]:
        """The sites in a partial sum, and what follows them."""
        context, rest = message.body[:32], message.body[32:]
        width = (self._roster.sites + 7) // 8
        listed = set(wire.unpack_list(rest[:width], self._roster.sites))
        # Masks of sites with another request do not cancel: the sum of all branches would be uniform.
        if context != self._asked:
            raise Misdirected(f"site {message.sender} added up the vectors of another request")
        if not listed or not listed.issubset(self._branches[message.sender]):
            raise Inconsistent(f"site {message.sender} added up no vector, or one of a site outside its branch")
        return listed, rest[width:]

    def partial_sum(self, me: int, identity: Identity) -> bytes:
        """The sum so far as the message of the inner node `me`."""
        listed = wire.pack_list(sorted(self.arrived), self._roster.sites)
        head = self._asked + listed + b"".join(self.commitments[site] for site in sorted(self.arrived))

        def fill(body: memoryview) -> bytes:
            body[: len(head)] = head
            body[len(head) :] = self.total.astype("<u8", copy=False).view(np.uint8).data
            return hashlib.sha256(body).digest()

        length = len(head) + 8 * len(self.total)
        study = self._roster.study
        return wire.encode_in_place(Kind.PARTIAL, study, self._attempt, me, length, fill, identity)


def sites_and_vector(data: bytes | bytearray | memoryview, sites: int) -> tuple[tuple[int, ...], memoryview]:
    """The sites in a message of kind MASKED or PARTIAL of `sites` sites, and its vector, as the message claims; no
    signature is checked.
    """
    message = wire.decode(data)
    listed: tuple[int, ...] = (message.sender,)
    rest = message.body
    if message.kind is Kind.PARTIAL:
        end = 32 + (sites + 7) // 8
        listed, rest = wire.unpack_list(message.body[32:end], sites), message.body[end:]
    return listed, _split(rest, len(listed))[1]


def _split(rest: memoryview, sites: int) -> tuple[list[memoryview], memoryview]:
    """The commitments of this number of sites, and the vector behind them."""
    end = COMMITTED_BYTES * sites
    if len(rest) < end:
        raise Malformed(f"a vector comes with the commitments of its sites, {COMMITTED_BYTES} bytes each")
    return [rest[at : at + COMMITTED_BYTES] for at in range(0, end, COMMITTED_BYTES)], rest[end:]
