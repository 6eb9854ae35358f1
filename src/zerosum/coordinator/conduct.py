"""The coordinator: drives a program, one planned release after another, over any engine.

Order of steps in a round: record the request in the journal, send it, collect the contributions, record the release,
give it to the program. A crash between two steps is resolved by the journal (`zerosum.coordinator.journal`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from zerosum.arrays import Floats
from zerosum.coordinator import largest_sum
from zerosum.coordinator.faults import Fault, fault
from zerosum.coordinator.journal import Journal
from zerosum.coordinator.mixing import Mixer, noise_std
from zerosum.coordinator.secure import FALSE_DEALING, LOST_IN_SET_UP, WRONG_KIND, SecureSums, sound
from zerosum.engines.base import Engine
from zerosum.errors import (
    Abandoned,
    AwaitingConsent,
    BadInput,
    BadMessage,
    LedgerRefused,
    NotAgreed,
    OutsidePlan,
    Refused,
    ZerosumError,
)
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, PrivateSum, Release, Request
from zerosum.kernel.schemes import NoiseMechanism
from zerosum.kernel.statistic import Adjacency
from zerosum.noise.sampler import Sampler, derive
from zerosum.protocol.codec import Frame, decode_reply, encode
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    Dismiss,
    DrawSum,
    Lost,
    Message,
    Prepare,
    Prepared,
    Propose,
    Refusal,
    Reply,
)
from zerosum.protocol.progress import Observer, Progress, nobody
from zerosum.protocol.roster import mask_context, slot
from zerosum.secagg.keys import essence

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result of a study: the program's result, the plan, the participants of each round (empty for an abandoned
    round), and the faults of sites that were lost.
    """

    result: T
    plan: Plan
    participants: tuple[tuple[str, ...], ...]
    faults: tuple[Fault, ...] = ()


def conduct(
    plan: Plan,
    program: Generator[Request, Release, T],
    engine: Engine,
    observer: Observer = nobody,
    journal: Journal | None = None,
) -> Outcome[T]:
    """Propose the plan to every site, then answer the program's requests until it returns.

    Parameters
    ----------
    plan:
        The plan; the program must make its releases in this order.
    program:
        A generator that yields requests and receives releases.
    engine:
        Carries frames to the sites and back.
    observer:
        Receives the progress.
    journal:
        Records requests and releases; None: the study cannot be resumed.

    An abandoned round is repeated once if the plan has an attempt left. Otherwise `Abandoned` is raised inside the
    program. A program that catches it continues with its next planned release; any other program ends the study. Budget
    that was spent stays spent in either case.

    With a journal, the program first receives the recorded releases, and sites receive requests from where the journal
    ends. A round that was in progress continues if its sum is masked and all sites still have their keys; the sites
    then repeat their replies. Otherwise it is repeated as the next attempt. Sites that are absent then, or have lost
    their keys, count as lost in a round, within what the plan tolerates. A completed study sends no request.
    """
    if journal is not None and journal.plan.digest() != plan.digest():
        raise Refused(f"the journal {journal.path} is of another plan")
    coordinator = _Coordinator(plan, engine, observer, journal)
    # A new study needs the consent of all sites before the program computes anything. A resumed one proposes the plan
    # again only when a round is left that the journal does not answer.
    if journal is None or not (journal.rounds or journal.finished):
        coordinator.agree(0)
    rounds: list[tuple[str, ...]] = []
    try:
        request = next(program)
        while True:
            round = len(rounds)
            # A settled round sends no message: its release is read from the journal, and no budget is charged twice.
            known = journal is not None and journal.settled(round)
            if not known:
                coordinator.agree(round)
            try:
                if journal is not None and known:
                    release = journal.recall(round, request.digest())
                else:
                    release = coordinator.release(round, request)
            except Abandoned as loss:
                # The round is used up although it gave nothing: sites have charged it, and plan and program stay in
                # step.
                rounds.append(())
                request = program.throw(loss)
                continue
            rounds.append(release.participants)
            observer(Progress("round", len(rounds), plan.rounds))
            request = program.send(release)
    except StopIteration as stop:
        if journal is not None:
            journal.finish()
        return Outcome(stop.value, plan, tuple(rounds), coordinator.faults)
    finally:
        program.close()


class _Coordinator:
    """State of one study: consent, lost sites, attempts used, and secure aggregation."""

    def __init__(self, plan: Plan, engine: Engine, observer: Observer, journal: Journal | None) -> None:
        self._plan, self._engine, self._observer, self._journal = plan, engine, observer, journal
        self._agreed = False
        self._out: set[str] = set()  # sites that receive no requests: they were absent when the study was resumed
        self._continued = False  # whether the sites still have the keys of before this process
        self._extra = 0 if journal is None else journal.extra  # attempts beyond the first, counted over the whole study
        self._index = {site.name: s for s, site in enumerate(plan.sites)}
        self._units: dict[str, int] = {}
        self._faults: list[Fault] = [] if journal is None else list(journal.faults)
        self._round: tuple[int, int] | None = None  # round and attempt in progress; None outside a round
        self._refusing: set[str] = set()  # sites that refused in this attempt
        self._secure = SecureSums(plan, self._exchange, self._blame) if plan.scheme.facts.secure else None

    def agree(self, round: int) -> None:
        """Propose the plan once, before the first request."""
        if self._agreed:
            return
        if self._journal is not None and self._journal.rounds:
            self._observer(Progress("resumed", round, self._plan.rounds))
        self._propose()
        self._agreed = True

    def _propose(self) -> None:
        """Collect the consent of every site before any of them contributes; one refusal ends the study, with nothing
        released.

        In a resumed study sites may be absent: a site that consented before has consented to being lost, and to what
        the others release then.
        """
        journal = self._journal
        kept = None if journal is None or journal.session is None else journal.keys()
        resumed = journal is not None and journal.rounds > 0
        self._consent(keep=journal is not None and journal.session is not None, spare=resumed)
        if self._secure is None:
            return
        self._observer(Progress("set-up", 0, 1))
        keys = self._secure.advertised()
        # Fewer than all sites continue under the recorded keys in two cases: some site is absent (no complete keys), or
        # a site restarted during a round that has no other attempt. In all other cases new keys with all sites lose no
        # site.
        alone = resumed and kept is not None and keys != kept and (keys is None or self._last_attempt())
        if not (alone and kept is not None and self._go_on(kept)):
            self._set_up(keys)
        self._observer(Progress("set-up", 1, 1))

    def _set_up(self, keys: bytes | None) -> None:
        """Set up secure aggregation with all sites: with the advertised keys, or with new ones if a site restarted and
        advertises different keys.
        """
        journal, secure = self._journal, self._secured()
        if keys is None and self._out:
            raise Abandoned(
                f"{_names(self._out)} is away and other sites have restarted: resume when all sites are present"
            )
        if keys is None:
            raise Abandoned(LOST_IN_SET_UP)
        known = None if journal is None else journal.session
        # Same keys as recorded: no site has restarted, so a round in progress can go on under its attempt.
        self._continued = hashlib.sha256(keys).hexdigest() == known
        # One site has new keys. All others must make new ones too: masks between old and new keys do not cancel, and a
        # site masks only once under the keys of an attempt.
        if known is not None and not self._continued:
            self._consent(keep=False)
            secure = self._secure = SecureSums(self._plan, self._exchange, self._blame)
            keys = secure.advertised()
            if keys is None:
                raise Abandoned(LOST_IN_SET_UP)
        # Recorded after the set-up is complete: keys in the journal mean that every site holds the shares of all
        # others.
        secure.set_up()
        if journal is not None:
            journal.set_up(keys)

    def _go_on(self, keys: bytes) -> bool:
        """Continue without the sites that are absent or have lost their keys, if the plan tolerates that many losses;
        return whether it does.

        All sites shared their secrets when these keys were made, so the others can remove the masks of a lost site, as
        in a round that loses it.
        """
        try:
            there = self._secured().go_on(keys)
        except BadMessage:  # the keys were made by a version of Zerosum with other messages
            return False
        gone = [name for name in self._index if name not in there]
        # More losses would leave fewer than H - L honest sites, whose noise the plan accounts for.
        if len(gone) > self._plan.coalition.dropouts:
            return False
        restarted = set(gone) - self._out
        for _ in self._exchange(dict.fromkeys(restarted, Dismiss())):  # so that they release the reserved budget
            pass
        self._out, self._continued = set(gone), True
        return True

    def _last_attempt(self) -> bool:
        """Whether a round is in progress that could not be repeated under other keys."""
        journal = self._journal
        if journal is None or not journal.rounds or self._extra < self._plan.attempts:
            return False
        return journal.in_flight(journal.rounds - 1) and journal.same_keys(journal.rounds - 1)

    def _consent(self, *, keep: bool, spare: bool = False) -> None:
        """Propose the plan to all sites. With `spare`, tolerated losses are accepted."""
        lost, agreed, most = dict[str, str](), 0, self._plan.coalition.dropouts
        gone: tuple[type[ZerosumError], ...] = (NotAgreed,)
        if spare and most:  # the site is busy or undecided since it restarted, or its ledger has the study whole
            gone = NotAgreed, AwaitingConsent, LedgerRefused
        for reply in self._exchange(dict.fromkeys(self._index, Propose(self._plan, keep)), gone):
            if isinstance(reply, Consent):
                agreed += 1
                self._count(reply)
                self._observer(Progress("consent", agreed, len(self._index), reply.site))
            else:
                lost[reply.site] = reply.why if isinstance(reply, Lost) else ""
        if spare and len(lost) <= most:
            self._out.update(lost)
        elif spare:
            names = ", ".join(f"{name!r} ({why})" if why else repr(name) for name, why in lost.items())
            raise Abandoned(f"no answer from {names}, and the plan tolerates {most} losses: resume when they are back")
        elif lost:
            raise Abandoned(f"no answer from {_names(lost)}; the study did not start and nothing was released")

    def _count(self, consent: Consent) -> None:
        """Store a site's number of units, where it is public; it must equal the declared number."""
        counted = self._plan.adjacency is Adjacency.REPLACE_ONE
        declared = self._plan.sites[self._index[consent.site]].units
        # Under add-remove the number of units is data: a site that sends it is refused, as the number would reach
        # results without noise.
        if (consent.units is not None) != counted or (declared is not None and consent.units != declared):
            raise BadInput(f"site {consent.site!r} consents with another number of units than the plan has for it")
        if consent.units is not None:
            self._units[consent.site] = consent.units

    def release(self, round: int, request: Request) -> Release:
        """One planned round, repeated once if it is abandoned and the plan has an attempt left.

        The journal is durable before a message is sent, and before the program sees a release.
        """
        self._check_planned(round, request)
        plan, journal, repeated = self._plan, self._journal, False
        while True:
            try:
                # Crash points: before `asked` nothing was sent; between `asked` and `released` the round is in flight,
                # and `_first` decides whether it goes on or needs another attempt; after `released` it is settled.
                attempt = self._next() if repeated else self._first(round)
                if journal is not None:
                    journal.asked(round, attempt, request.digest())
                self._round, self._refusing = (round, attempt), set()
                if isinstance(request, PrivatePublication):
                    release = self._published(round, attempt, request)
                elif plan.law(round).mechanism is NoiseMechanism.MASKED:
                    release = self._summed(round, request, *self._hidden(round, attempt, request))
                else:
                    release = self._summed(round, request, *self._readable(round, attempt, request))
                if journal is not None:
                    journal.released(round, release, self._committed(round))
                return release
            except Abandoned as loss:
                # Once only: what ended the second attempt will probably end a third, and each one is charged by every
                # site.
                if repeated or self._extra >= plan.attempts:
                    whose = "".join(f"; {each.in_words()}" for each in self._faults if each.round == round)
                    raise Abandoned(
                        f"round {round + 1} was abandoned: {loss}; what was spent stays spent{whose}"
                    ) from None
                repeated = True
            finally:
                self._round = None

    def _check_planned(self, round: int, request: Request) -> None:
        """Raise `OutsidePlan` unless the plan has this request in this round."""
        plan = self._plan
        if round >= plan.rounds:
            raise OutsidePlan(f"the program asks for release {round + 1}, the plan has {plan.rounds}")
        # Checked here for a clear message; each site checks the same against its own plan and trusts no check of the
        # coordinator.
        planned, asked = plan.release(round), request.statistic.name
        sampling = request.sampling if isinstance(request, PrivateSum) else None
        kind = "sum" if isinstance(request, PrivateSum) else "publication"
        wanted = planned.statistic, planned.share, planned.kind, planned.sampling
        if (asked, request.share, kind, sampling) != wanted:
            raise OutsidePlan(
                f"release {round + 1} was planned as {planned.statistic!r} with share {planned.share:g}, "
                f"the program asks for {asked!r} with share {request.share:g}, or for another kind of request"
            )

    def _first(self, round: int) -> int:
        """The attempt under which a round is sent first. A round in progress continues under its attempt if the sites
        still have their keys and can repeat their replies; otherwise it takes the next attempt.
        """
        journal = self._journal
        if journal is None or not journal.in_flight(round):
            return 0
        masked = self._plan.law(round).mechanism is NoiseMechanism.MASKED
        # Only masked rounds can go on: sites keep the reply and the keys of the attempt. In the other mechanisms the
        # coordinator's own draws, which were in memory, are gone.
        if self._continued and masked and journal.same_keys(round):
            return journal.attempt(round)
        return self._next()

    def _next(self) -> int:
        """The number of another attempt; attempts are numbered through the whole study."""
        if self._extra >= self._plan.attempts:
            raise Abandoned("it was under way when the study was stopped, and the plan has no attempt left")
        self._extra += 1
        return self._extra

    def _summed(self, round: int, request: PrivateSum, value: Floats, arrived: Iterable[str]) -> Release:
        """The release of a sum `value` over the sites that `arrived`: with its noise and the number of its units."""
        plan = self._plan
        # In the order of the plan: a result must not depend on which reply came first.
        names = tuple(sorted(arrived, key=self._index.__getitem__))
        spread = noise_std(plan.law(round), [self._index[name] for name in names])
        units = None if plan.adjacency is Adjacency.ADD_REMOVE else plan.effective_units(names, self._units)
        if units is not None and request.sampling is not None:
            # The expected number of units in the sample: the true number is secret.
            units *= request.sampling.rate
        return Release(value, spread, units, names)

    def _published(self, round: int, attempt: int, request: PrivatePublication) -> Release:
        """The rows of all sites, each with the noise of its own site."""
        plan, law = self._plan, self._plan.law(round)
        rows: dict[str, Floats] = {}
        for reply in self._exchange(dict.fromkeys(self._index, Contribute(round, attempt, request))):
            if isinstance(reply, Contribution) and isinstance(reply.payload, np.ndarray):
                shape = self._units[reply.site], plan.release(round).size
                factor = float(law.factor[self._index[reply.site]])
                if reply.payload.shape != shape or not np.all(np.isfinite(reply.payload)):
                    self._blame(reply.site, "its rows have another shape, or are not finite")
                    continue  # counts as a lost reply
                rows[reply.site] = np.asarray(reply.payload * ((law.step or 1.0) / factor))
        self._enough(list(rows))
        names = tuple(sorted(rows, key=self._index.__getitem__))
        # The largest of the sites' noise, a safe value for all rows.
        noise = float(max(law.own[self._index[n]] / law.factor[self._index[n]] for n in names))
        counts = tuple(len(rows[name]) for name in names)
        return Release(np.concatenate([rows[name] for name in names]), noise, float(sum(counts)), names, counts)

    def _hidden(self, round: int, attempt: int, request: PrivateSum) -> tuple[Floats, Iterable[str]]:
        """A round of secure aggregation: masked contributions, and the shares that open their sum."""
        plan, law = self._plan, self._plan.law(round)
        secure, mine = self._secured(), slot(plan, round, attempt)
        secure.begin(mine, plan.release(round).size, mask_context(plan, round, request))
        journal = self._journal
        # A list that was sent before a crash is the only one that sites will sign or open in this attempt. Sites that
        # are not on it receive no request: their vectors could not enter the sum.
        listed = None if journal is None else journal.listed(round, attempt)
        for reply in self._exchange(dict.fromkeys(listed or self._index, Contribute(round, attempt, request))):
            if isinstance(reply, Contribution) and isinstance(reply.payload, memoryview):
                secure.take(mine, reply.site, reply.payload)
            elif not isinstance(reply, Lost):
                self._blame(reply.site, WRONG_KIND)

        def settle(names: Sequence[str]) -> None:
            if listed is not None and set(names) != set(listed):
                raise Abandoned("a site was lost after the list of sites in the sum had been sent: resume the study")
            if journal is not None and plan.coalition.dropouts:  # without tolerated losses the list is always all sites
                journal.settled_list(round, attempt, names)

        def largest(sites: Sequence[int]) -> float:
            planned = plan.release(round)
            counts = {self._index[name]: count for name, count in self._units.items()}
            return largest_sum.of_contributions(law, planned.bound, planned.size, sites, counts)

        total, present = secure.finish(mine, settle, largest)
        return np.asarray(total * law.step, dtype=np.float64), present

    def _readable(self, round: int, attempt: int, request: PrivateSum) -> tuple[Floats, Iterable[str]]:
        """A round with readable messages: prepare the noise, collect the contributions, and add them up."""
        plan, law = self._plan, self._plan.law(round)
        mixer = Mixer(law, plan.release(round).size, self._sampler(round, attempt))
        present = list(self._index)
        if law.mechanism is NoiseMechanism.BROADCAST:
            present = self._draws(round, attempt, mixer)
        elif law.mechanism is NoiseMechanism.PAIRWISE:
            present = self._keys(round, attempt, mixer)
        messages = {name: Contribute(round, attempt, request, mixer.deal(self._index[name])) for name in present}
        arrived = []
        for reply in self._exchange(messages):
            if not (isinstance(reply, Contribution) and isinstance(reply.payload, np.ndarray)):
                if not isinstance(reply, Lost):
                    self._blame(reply.site, WRONG_KIND)
                continue
            if sound(partial(mixer.add, self._index[reply.site]), reply.payload, partial(self._blame, reply.site)):
                arrived.append(reply.site)
        # The cancelling noise was divided among `present`. A missing share of it stays in the sum, with a variance far
        # above that of a full sum (docs/guarantee.md, "Dropouts").
        if mixer.needs_everyone and len(arrived) < len(present):
            missing = [name for name in present if name not in arrived]
            raise Abandoned(
                f"{_names(missing)} was lost after the noise had been fixed, and its share of it would stay in the sum"
            )
        self._enough(arrived)
        return mixer.finish(), arrived

    def _draws(self, round: int, attempt: int, mixer: Mixer) -> list[str]:
        """Algorithm 1 of capeDJICA and capeFM: the sum of the sites' draws by secure aggregation, for all sites."""
        secure, mine = self._secured(), slot(self._plan, round, attempt)
        secure.begin(mine, self._plan.release(round).size, mask_context(self._plan, round, None))
        for reply in self._exchange(dict.fromkeys(self._index, Prepare(round, attempt))):
            if isinstance(reply, Prepared):
                secure.take(mine, reply.site, reply.payload)
        size = self._plan.release(round).size
        law = self._plan.law(round)
        total, present = secure.finish(mine, lambda names: None, partial(largest_sum.of_draws, law, size))
        mixer.draws = DrawSum(total, len(present))
        return list(present)

    def _keys(self, round: int, attempt: int, mixer: Mixer) -> list[str]:
        """Collect the public keys of the pairwise streams."""
        for reply in self._exchange(dict.fromkeys(self._index, Prepare(round, attempt))):
            # Checked here: all other sites would refuse a list with a key that is none.
            if isinstance(reply, Prepared) and sound(essence, bytes(reply.payload), partial(self._blame, reply.site)):
                mixer.keys[self._index[reply.site]] = reply.payload
        present = [name for name, s in self._index.items() if s in mixer.keys]
        self._enough(present)
        return present

    def _secured(self) -> SecureSums:
        """Secure aggregation of this study."""
        if self._secure is None:
            raise OutsidePlan("this plan has no secure sum")
        return self._secure

    def _enough(self, arrived: list[str]) -> None:
        """Raise `Abandoned` if more sites were lost than the plan tolerates."""
        lost, most = len(self._index) - len(arrived), self._plan.coalition.dropouts
        if lost > most:
            raise Abandoned(f"{lost} of {len(self._index)} sites were lost, the plan tolerates {most}")

    def _exchange(
        self, messages: Mapping[str, Message], gone: tuple[type[ZerosumError], ...] = (NotAgreed,)
    ) -> Iterable[Reply | Lost]:
        """Replies as they arrive. A reply that cannot be read, or names another site, counts as a loss, and so does a
        site that restarted and has no session of the study.
        """
        # `id` is safe as a key: `messages` keeps every message alive during the exchange.
        known: dict[int, bytes] = {}  # frames by message: a message to all sites is encoded once
        asked = {name: m for name, m in messages.items() if name not in self._out}
        frames = {name: known.get(id(m)) or known.setdefault(id(m), encode(m)) for name, m in asked.items()}
        for name, frame in self._engine.exchange(frames):
            reply: Reply | Lost = Lost(name) if frame is None else _read(name, frame)
            if isinstance(reply, Lost) and frame is not None:
                self._blame(name, "it sent bytes that are no reply of this site")
            # `NotAgreed` after a consent means that the site restarted and has no session: a loss, not a refusal of the
            # study.
            if isinstance(reply, Refusal) and isinstance(reply.error, gone):
                reply = Lost(name, str(reply.error))
            if isinstance(reply, Refusal):
                reply = self._refused(reply)
            yield reply

    def _refused(self, reply: Refusal) -> Lost:
        """A refusal in a round as a loss, as far as the plan tolerates losses: a full disk or a steward's decision at
        one site does not end the study of the others. Raises the refusal otherwise.
        """
        error = reply.error if isinstance(reply.error, BadInput | Refused) else Refused(str(reply.error))
        self._refusing.add(reply.site)
        # More refusals than tolerated losses are probably not the fault of single sites: their reason ends the study.
        if self._round is None or len(self._refusing) > self._plan.coalition.dropouts:
            raise error.about(f"site {reply.site!r}") from reply.error
        self._blame(reply.site, f"it refused: {error}")
        return Lost(reply.site, str(error))

    def _committed(self, round: int) -> Mapping[str, bytes]:
        """The signed commitments that came with the contributions of a round under secure aggregation."""
        masked = self._plan.law(round).mechanism is NoiseMechanism.MASKED
        return self._secured().commitments if masked else {}

    def _blame(self, site: str, why: str, message: Frame | None = None, proof: bytes = b"") -> None:
        """Record the fault of a site, in the journal first. Of each site one for each attempt is recorded.

        Parameters
        ----------
        site : str
            The site.
        why : str
            What was wrong, in one sentence.
        message : bytes, optional
            The message of the secure sum that could not be used.
        proof : bytes, optional
            A proof of its guilt (`zerosum.secagg.blame`).
        """
        # Under the same keys its shares would spoil every later round, too: it takes part in none, within what the plan
        # tolerates.
        if why == FALSE_DEALING and len(self._out) < self._plan.coalition.dropouts:
            self._out.add(site)
        round, attempt = self._round or (None, 0)
        if any((each.site, each.round, each.attempt) == (site, round, attempt) for each in self._faults):
            return
        found = fault(self._plan, site, round, attempt, why, message)
        if self._journal is not None:
            self._journal.fault(found, proof)
        self._faults.append(found)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of sites so far, those before a resumption included."""
        return tuple(self._faults)

    def _sampler(self, round: int, attempt: int) -> Sampler:
        """The generator of the coordinator's noise: from the operating system, or from the seed of a
        non-private run.
        """
        if self._plan.seed is None:
            return Sampler.system()
        purpose = f"coordinator {round} {attempt}" if attempt else f"coordinator {round}"
        return Sampler.seeded(derive(str(self._plan.seed).encode(), purpose.encode()))


def _read(name: str, frame: Frame) -> Reply | Lost:
    """The reply in a frame, or a loss."""
    try:
        reply = decode_reply(frame)
    except BadMessage:
        return Lost(name)
    # A reply under another site's name must not be added twice, or take that site's place.
    return reply if reply.site == name else Lost(name)


def _names(sites: Iterable[str]) -> str:
    return ", ".join(repr(site) for site in sites)
