"""Transcripts for the audit: messages to the coordinator, secrets of colluders, and all draws of all sites.

The coalition sees the first two. The draws of honest sites are recorded for the tests of the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.engines.in_process import InProcess, Loses
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import NoiseLaw, NoiseMechanism, draw_step
from zerosum.noise.sampler import Sampler
from zerosum.protocol.codec import decode_message, decode_reply
from zerosum.protocol.messages import (
    Contribute,
    Contribution,
    DealtNoise,
    DrawSum,
    Message,
    NoiseInput,
    Relay,
    Relayed,
    Reply,
    Steps,
)
from zerosum.protocol.relaying import masked_vector
from zerosum.site.noise import NoiseShare
from zerosum.site.policy import Policy
from zerosum.site.site import Site

WORDS = 256  # words of a key stream that identify it


class _ColludingShare(NoiseShare):
    """Noise of a colluder, which records everything that it draws or receives."""

    handed: list[Floats]
    last: Any = None

    def draw(self) -> Steps:
        """Draw, and record the draw in units of the sum."""
        drawn = super().draw()
        self.handed.append(np.asarray(drawn * draw_step(self._law), dtype=np.float64))
        return drawn

    def noisy(self, total: Floats, noise_input: NoiseInput) -> Floats | Steps:
        """Add noise, and record dealt noise and the message."""
        if isinstance(noise_input, DealtNoise):
            self.handed.append(noise_input.from_helper)
        # The message itself: under secure aggregation the coalition subtracts it from the sum.
        self.last = super().noisy(total, noise_input)
        return self.last  # type: ignore[no-any-return]  # what super returns

    def _stream(self, other: int, key: bytes) -> Floats:
        """Expand a shared key, and record the stream."""
        stream = super()._stream(other, key)
        self.handed.append(stream)
        return stream


class ColludingSite(Site):
    """A site that follows the protocol and discloses everything to the coordinator."""

    def __init__(self, name: str, units: Units, policy: Policy) -> None:
        super().__init__(name, units, policy)
        self.shares: list[_ColludingShare] = []

    def _new_share(self, *arguments: Any) -> NoiseShare:
        """Noise of a round, recorded in `shares`."""
        share = _ColludingShare(*arguments)
        share.handed = []
        self.shares.append(share)
        return share


@dataclass
class SiteDraws:
    """Draws of one site in one round.

    Attributes
    ----------
    draws : dict
        Draws by name, in steps if there is a grid.
    own : array
        The last draw, in units of the sum.
    words : array
        First words of the key stream.
    order : array or None
        Order of the units in a publication.
    """

    draws: dict[str, NDArray[Any]] = field(default_factory=dict)
    own: Floats = field(default_factory=lambda: np.zeros(0))
    words: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    order: NDArray[np.intp] | None = None


class _RecordingSampler(Sampler):
    """Sampler that reports its draws to `note`."""

    def __init__(self, sampler: Sampler, note: Callable[[NDArray[Any], float], None]) -> None:
        self._sampler, self._note = sampler, note

    def steps(self, size: int, std: float) -> NDArray[np.int64]:
        """Discrete Gaussian draws, reported."""
        drawn = self._sampler.steps(size, std)
        self._note(drawn, std)
        return drawn

    def laplace_steps(self, size: int, decay: float, parts: int) -> NDArray[np.int64]:
        """Shares of discrete Laplace noise, reported."""
        drawn = self._sampler.laplace_steps(size, decay, parts)
        self._note(drawn, decay)
        return drawn

    def normal(self, size: int, std: float) -> Floats:
        """Normal draws, reported."""
        drawn = self._sampler.normal(size, std)
        self._note(drawn, std)
        return drawn


def record_draws(site: Site) -> list[SiteDraws]:
    """Record all later draws of a site.

    The draws are taken where the site makes them and not where it accounts for them, so that noise which is planned but
    not drawn shows as missing.

    Parameters
    ----------
    site : Site
        A site of the audit. Its methods are replaced on this one object.

    Returns
    -------
    list of SiteDraws
        Receives one entry per round, while the study runs.
    """
    make = site._new_share
    rounds: list[SiteDraws] = []

    def new_share(law: NoiseLaw, position: int, size: int, sampler: Sampler, context: bytes) -> NoiseShare:
        draws = SiteDraws()
        rounds.append(draws)

        def note(drawn: NDArray[Any], std: float) -> None:
            # Under BROADCAST a site draws twice: first the noise that cancels, then its own.
            cancelling = law.mechanism is NoiseMechanism.BROADCAST and not draws.draws
            draws.draws["cancelling noise" if cancelling else "noise"] = drawn
            draws.own = np.asarray(drawn * (law.step or 1.0), dtype=np.float64)

        # Methods of this one object are replaced, not of its class.
        give = sampler.words

        def words(count: int) -> NDArray[np.uint64]:
            given = give(count)
            draws.words = np.concatenate([draws.words, given])[:WORDS]
            return given

        sampler.words = words  # type: ignore[method-assign]  # this sampler's only
        share = make(law, position, size, _RecordingSampler(sampler, note), context)
        expand, send = share._stream, share.noisy

        def noisy(total: Floats, noise_input: NoiseInput) -> Floats | Steps:
            sent = send(total, noise_input)
            # On the grid the noise in a message is its difference from the rounded sum, even if it was not drawn by the
            # sampler.
            if law.step > 0:
                draws.draws["noise"] = sent - np.rint(float(law.factor[position]) * total / law.step).astype(np.int64)
            return sent

        def stream(other: int, key: bytes) -> Floats:
            expanded = expand(other, key)
            if position < other:  # Both sites of a pair expand the stream; it is recorded once.
                draws.draws[f"stream shared with site {other}"] = expanded
            return expanded

        share._stream = stream  # type: ignore[method-assign]  # this share's only
        share.noisy = noisy  # type: ignore[method-assign]
        return share

    arrange = site._order

    def arranged(plan: Plan, round: int, attempt: int, secret: bytes) -> NDArray[np.intp]:
        rounds[-1].order = arrange(plan, round, attempt, secret)
        return rounds[-1].order

    site._new_share = new_share  # type: ignore[method-assign]  # this site's only
    site._order = arranged  # type: ignore[method-assign]
    return rounds


def planned_size(law: NoiseLaw, position: int, name: str) -> float:
    """Planned standard deviation of a draw, in steps if there is a grid.

    Parameters
    ----------
    law : NoiseLaw
        Noise of the round.
    position : int
        Index of the site.
    name : str
        "noise", "cancelling noise", or a stream shared with another site.
    """
    if name == "noise":
        return float(law.own[position]) / (law.step or 1.0)
    return float(law.cancelling[position] * (law.weight[position] if name == "cancelling noise" else 1.0))


class Recorder(InProcess):
    """Engine that records every message that the coordinator can read, or in a tree any inner node."""

    def __init__(self, sites: Iterable[Site], loses: Loses | None = None) -> None:
        super().__init__(sites, loses)
        self.seen: list[tuple[Message, Reply]] = []

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        """Exchange messages, and record them with the replies. Inner nodes exchange theirs by this method too."""
        for site, reply in super().exchange(frames):
            # A lost site sends nothing that a coordinator could read.
            if reply is not None:
                self.seen.append((decode_message(frames[site]), decode_reply(reply)))
            yield site, reply


def masked_at_nodes(plan: Plan, round: int, recorder: Recorder) -> list[tuple[tuple[str, ...], Floats]]:
    """The masked vectors and partial sums that travel along a tree in one round, in units of the sum: for each the
    names of the sites in it, and its numbers. In a star there is no inner node, and the list is empty.
    """
    if not plan.parents:
        return []
    messages = []
    for message, reply in recorder.seen:
        # A partial sum stays in the frame of its branch; all other vectors are replies by themselves.
        asked = decode_message(message.frames[0]) if isinstance(message, Relay) else message
        frame = decode_reply(reply.total) if isinstance(reply, Relayed) and reply.total is not None else reply
        if isinstance(asked, Contribute) and asked.round == round and isinstance(frame, Contribution):
            names, vector = masked_vector(plan, frame)
            messages.append((names, np.frombuffer(vector, dtype="<i8") * plan.law(round).step))
    return messages


def view(
    plan: Plan, round: int, recorder: Recorder, colluding: list[ColludingSite], released: Floats, helper_apart: bool
) -> Floats:
    """View of the coalition in one round, shape (rows, numbers), the victim's row first.

    Parameters
    ----------
    plan, round : Plan, int
        The plan and the index of the round.
    recorder : Recorder
        Messages of the study.
    colluding : list of ColludingSite
        The colluders, with all they drew or received.
    released : array
        The released numbers.
    helper_apart : bool
        Whether the noise that the helper dealt to honest sites is hidden from the coalition.
    """
    law = plan.law(round)
    shares = [site.shares[round] for site in colluding]
    if law.mechanism is NoiseMechanism.TRUSTED:
        return released[None, :]
    if law.mechanism is NoiseMechanism.MASKED:
        # The coalition subtracts its own vectors from the sum. Masked vectors are uniform and contain no information,
        # which `masked_at_nodes` tests for those that travel along a tree.
        theirs = sum((np.asarray(share.last, dtype=np.float64) * law.step for share in shares), np.zeros(len(released)))
        return (released - theirs)[None, :]
    names = {site.name for site in colluding}
    rows, known = [], []
    for message, reply in recorder.seen:
        if isinstance(message, Contribute) and message.round == round and isinstance(reply, Contribution):
            # Rows are what honest sites sent; `known` is noise that the coordinator can subtract, because it dealt it
            # or published its sum.
            dealt = message.noise_input
            if isinstance(dealt, DealtNoise):
                known.append(dealt.from_coordinator)
                if not helper_apart and reply.site not in names:
                    known.append(dealt.from_helper)
            # The sum is the same in the messages to all sites: once is enough.
            if isinstance(dealt, DrawSum) and not known:
                known.append(np.asarray(dealt.total, dtype=np.float64) * draw_step(law))
            if reply.site not in names:
                rows.append(np.asarray(reply.payload, dtype=np.float64).ravel() * (law.step or 1.0))
    return np.vstack([*rows, *known, *(row for share in shares for row in share.handed)])
