"""Runs of a coordinator process beside `Deployment`: its settings, the same study in one process, and killed sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from helpers.deployment import NAMES, Deployment
from zerosum.coordinator.journal import Journal
from zerosum.engines.base import Engine
from zerosum.engines.in_process import InProcess, Loses
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame, decode_message
from zerosum.protocol.messages import Message, Relay, Secure
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import Study, execute
from zerosum.study.coordinating import Settings
from zerosum.study.site_data import load_for


def settings(deployment: Deployment, study: Path, name: str) -> Settings:
    """Settings of a coordinator of all four sites."""
    out = deployment.folder / f"{name}-out"
    return Settings(study=study, out=out, sites=deployment.sockets(), seconds=60.0, wait=30.0, every=0.1)


def in_process(
    deployment: Deployment,
    study: Path,
    state: Path,
    loses: Loses | None = None,
    engine_of: Callable[[Plan, InProcess], Engine] = lambda plan, engine: engine,
) -> Result:
    """The plan of a state folder again, with all sites in this process and ledgers of their own.

    `engine_of` may wrap the engine, in a tree for example.
    """
    journal = Journal.open(state)
    assert journal is not None
    with journal:
        plan = journal.plan
    members = []
    for name in NAMES:
        file = deployment.site(name)
        policy = Policy.throwaway(name, state / f"{name}.sqlite")
        members.append(Site(name, load_for(plan, file), policy, file.keep_identity()))
    engine = InProcess(members, loses)
    result = execute(plan, Study.load(study).build_algorithm(), engine_of(plan, engine))
    engine.close()
    return result


def phase(message: Message) -> str:
    """The phase of a round that a message belongs to; of a relayed one, that of its first frame."""
    if isinstance(message, Relay):
        return phase(decode_message(message.frames[0]))
    return message.step if isinstance(message, Secure) else type(message).__name__.lower()


class Killing:
    """Kills the process of one site when frames of some phase are about to go out from the coordinator."""

    def __init__(self, engine: Engine, deployment: Deployment, name: str, at: str) -> None:
        self._engine, self._deployment, self._name, self._at = engine, deployment, name, at

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        if self._name in self._deployment.running and phase(decode_message(next(iter(frames.values())))) == self._at:
            self._deployment.kill(self._name)
        return self._engine.exchange(frames)
