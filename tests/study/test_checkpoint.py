"""Studies that are killed and go on: finished rounds are never run again, a kill costs at most the round under way."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from helpers.process_kills import Killer, in_a_child
from zerosum import algorithms
from zerosum.algorithms.program import Algorithm, Program
from zerosum.coordinator.conduct import conduct
from zerosum.coordinator.journal import Journal
from zerosum.engines.in_process import InProcess
from zerosum.errors import Abandoned, BadInput, BadParameter, Refused
from zerosum.kernel.events import Sampling
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency
from zerosum.protocol.codec import decode_message
from zerosum.protocol.messages import Contribute, Message
from zerosum.protocol.progress import Progress
from zerosum.report.record import Result
from zerosum.site.identity import keep_identity
from zerosum.site.policy import Policy
from zerosum.statistics.vectors import VectorSum
from zerosum.study import Study, run

DATA = {name: np.random.default_rng(n).normal(size=(40 + n, 2)) * 0.3 for n, name in enumerate("abc")}


class Walk(Algorithm):
    """Two plain sums, then a phase: full batches, or samples."""

    name: ClassVar[str] = "walk"
    rate: float | None = None
    steps: int = 6

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        statistic = VectorSum(columns=len(self.columns), clip=1.0)
        if self.rate is None:
            return (PrivateSum(statistic, 1 / (self.steps + 2)),) * (self.steps + 2)
        phase = PrivateSum(statistic, 0.6, Sampling(self.rate, self.steps))
        return PrivateSum(statistic, 0.2), PrivateSum(statistic, 0.2), phase

    def program(self, adjacency: Adjacency) -> Program:
        requests = self.requests(adjacency)
        seen = []
        for request in (*requests, *requests[-1:] * (self.steps + 2 - len(requests))):
            release = yield request
            seen.append(release.value)
        return {"sums": Quantity(np.array(seen))}


def policies(folder: Path) -> dict[str, Policy]:
    return {
        name: Policy(population=name, ledger=folder / f"{name}.sqlite", data="synthetic", epsilon=2.0) for name in DATA
    }


def start(
    question: Walk, folder: Path, observer: Callable[[Progress], None] = lambda _: None, **changes: Any
) -> Result:
    settings: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "unit": "person", "scheme": "secure-sum"}
    settings |= {"policies": policies(folder), "checkpoint": folder / "kept", "observer": observer}
    return run(question, DATA, **settings | changes)


def spent(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """Every round and attempt in each site's ledger; no site has spent more than was planned."""
    found = {}
    for name, policy in policies(folder).items():
        with policy.open_ledger() as ledger:
            found[name] = [(each.spend.round, each.spend.attempt) for each in ledger.entries()]
            found[name] += [(each.round, each.attempt) for each in ledger.draws()]
            assert ledger.epsilon(1e-5) <= 2.0 * (1 + 1e-12)
    return found


def killed_until_done(question: Walk, folder: Path, kills: int, seed: int, **changes: Any) -> int:
    """Kill a study so many times, at random moments, and let it end; how many kills it took."""
    rng = np.random.default_rng(seed)
    agreed = "consent" if changes["scheme"] == "local" else "set-up"
    done = 0
    while done < kills:
        if in_a_child(lambda: start(question, folder, Killer(int(rng.integers(0, 6000)), agreed), **changes)):
            break
        done += 1
    result = start(question, folder, **changes)
    assert len(result.participants) == question.steps + 2
    assert result.participants[0] == ("a", "b", "c")
    return done


def releases(folder: Path) -> list[Release]:
    journal = Journal.open(folder / "kept")
    assert journal is not None
    with journal:
        return [journal.recall(round, each.request) for round, each in enumerate(journal._rounds)]


QUESTIONS = {
    "plain": Walk(columns=("x", "y")),
    "full": Walk(columns=("x", "y"), rate=1.0),
    "sampled": Walk(columns=("x", "y"), rate=0.25),
}


def check(
    kind: str, folder: Path, kills: int, seed: int, scheme: str, seeds: tuple[int | None, ...] = (None, 1)
) -> None:
    question = QUESTIONS[kind]
    start(question, folder / "warm", random_state=1, attempts=10)  # so that forked children need not account anew
    for random_state in seeds:
        place = folder / f"{random_state}"
        done = killed_until_done(question, place, kills, seed, attempts=10, random_state=random_state, scheme=scheme)
        assert done > kills / 2
        asked = spent(place)
        for keys in asked.values():
            assert len(keys) == len(set(keys))
            assert {round for round, _ in keys} == set(range(question.steps + 2))
            assert sum(attempt > 0 for _, attempt in keys) <= done
        if random_state is not None:
            start(question, folder / "whole", attempts=10, random_state=random_state, scheme=scheme)
            again = {round for keys in asked.values() for round, attempt in keys if attempt > 0}
            pairs = zip(releases(folder / "whole"), releases(place), strict=True)
            same = [whole.value.tobytes() == killed.value.tobytes() for whole, killed in pairs]
            assert same == [round not in again for round in range(question.steps + 2)]


@pytest.mark.parametrize("kind", ["plain", "full"])
def test_checkpoint_killed_study_resumes(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path, 4, 5, "secure-sum")


def test_checkpoint_killed_sampled_phase_resumes(tmp_path: Path) -> None:
    check("sampled", tmp_path, 2, 6, "zero-sum", (1,))


@pytest.mark.slow
@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("scheme", ["secure-sum", "zero-sum", "local"])
@pytest.mark.parametrize("seed", range(3))
def test_checkpoint_study_killed_ten_times_resumes(kind: str, scheme: str, seed: int, tmp_path: Path) -> None:
    check(kind, tmp_path, 10, seed, scheme)


# ---- stopped where it matters, and started again ---------------------------------------------------------------------


class Stopped(Exception):
    pass


def stop_at(round: int) -> Callable[[Progress], None]:
    def observer(seen: Progress) -> None:
        if (seen.stage, seen.done) == ("round", round):
            raise Stopped

    return observer


def test_checkpoint_stop_between_rounds_costs_nothing_and_changes_no_bit(tmp_path: Path) -> None:
    question = QUESTIONS["full"]
    for round in (1, 3, 6):
        with pytest.raises(Stopped):
            start(question, tmp_path / "stopped", stop_at(round), random_state=3)
    heard: list[Progress] = []
    result = start(question, tmp_path / "stopped", heard.append, random_state=3)
    whole = start(question, tmp_path / "whole", random_state=3)
    assert heard[0] == Progress("round", 1, 8)  # what is known is heard again
    assert Progress("resumed", 6, 8) in heard
    assert np.asarray(result.estimate["sums"]).tobytes() == np.asarray(whole.estimate["sums"]).tobytes()
    assert spent(tmp_path / "stopped") == spent(tmp_path / "whole")
    assert result.report.public_digest == whole.report.public_digest
    before = spent(tmp_path / "stopped")
    again = start(question, tmp_path / "stopped", random_state=3)  # over: for nothing
    assert np.asarray(again.estimate["sums"]).tobytes() == np.asarray(whole.estimate["sums"]).tobytes()
    assert again.report == result.report
    assert spent(tmp_path / "stopped") == before


class Dying(InProcess):
    """The process dies in round 3, before its first attempt reaches site b."""

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for name, frame in frames.items():
            message = decode_message(frame)
            if isinstance(message, Contribute) and (message.round, message.attempt, name) == (2, 0, "b"):
                raise Stopped
            yield from super().exchange({name: frame})


def test_checkpoint_round_under_way_is_repeated_or_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = QUESTIONS["plain"]
    for attempts in (0, 1):
        folder = tmp_path / f"{attempts}"
        with monkeypatch.context() as patch:
            patch.setattr("zerosum.study.running.InProcess", Dying)
            with pytest.raises(Stopped):
                start(question, folder, attempts=attempts)
        if attempts == 0:
            for _ in range(2):
                with pytest.raises(Abandoned, match="round 3"):
                    start(question, folder, attempts=attempts)
        else:
            start(question, folder, attempts=attempts)
            assert spent(folder)["a"][2:4] == [(2, 0), (2, 1)]  # answered before b died
            assert spent(folder)["b"][2:4] == [(2, 1), (3, 0)]


@pytest.mark.parametrize("scheme", ["secure-sum", "zero-sum", "pairwise", "local"])
def test_lost_round_is_repeated_where_attempt_is_planned(scheme: str, tmp_path: Path) -> None:
    question = QUESTIONS["plain"]
    lost = {(1, 0), (4, 0), (6, 0)}

    def loses(site: str, message: Message) -> bool:
        return site == "b" and isinstance(message, Contribute) and (message.round, message.attempt) in lost

    class Losing(InProcess):
        def __init__(self, sites: Any) -> None:
            super().__init__(sites, loses)

    for attempts in (3, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("zerosum.study.running.InProcess", Losing)
            if attempts == 3:
                start(question, tmp_path / "3", attempts=3, scheme=scheme)
                assert [key for key in spent(tmp_path / "3")["a"] if key[1]] == [(1, 1), (4, 2), (6, 3)]
            else:
                with pytest.raises(Abandoned, match="round 7"):
                    start(question, tmp_path / "2", attempts=2, scheme=scheme)


def test_checkpoint_of_other_study_is_refused(tmp_path: Path) -> None:
    question = QUESTIONS["plain"]
    start(question, tmp_path)
    before = spent(tmp_path)
    others: list[tuple[Walk, dict[str, Any]]] = [
        (Walk(columns=("x", "z")), {}),
        (question, {"epsilon": 1.5}),
        (question, {"attempts": 1}),
    ]
    for asked, changes in others:
        with pytest.raises(Refused, match="study"):
            start(asked, tmp_path, **changes)
    assert spent(tmp_path) == before


def test_checkpoint_identities_are_readable_by_owner_only(tmp_path: Path) -> None:
    first = keep_identity(tmp_path / "deep" / "a.key")
    assert keep_identity(tmp_path / "deep" / "a.key").public == first.public
    assert stat.S_IMODE((tmp_path / "deep" / "a.key").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.key"]
    (tmp_path / "deep" / "a.key").write_bytes(b"short")
    with pytest.raises(BadInput, match="damaged"):
        keep_identity(tmp_path / "deep" / "a.key")
    question = QUESTIONS["plain"]
    with pytest.raises(Stopped):
        start(question, tmp_path, stop_at(1))
    for kept in sorted((tmp_path / "kept" / "identities").iterdir())[:2]:  # a key, and what its data are known by
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        kept.unlink()
    with pytest.raises(BadParameter, match="identity"):
        start(question, tmp_path)


def test_checkpoint_program_with_other_requests_is_refused(tmp_path: Path) -> None:
    question = QUESTIONS["plain"]
    with pytest.raises(Stopped):
        start(question, tmp_path, stop_at(2))
    with Journal(tmp_path / "kept" / "journal") as journal, pytest.raises(Refused, match="round 1"):
        conduct(journal.plan, QUESTIONS["full"].program(Adjacency.REPLACE_ONE), InProcess([]), journal=journal)


STUDY = """
name = "kept"
algorithm = "k-means"
[parameters]
columns = ["x", "y"]
clip = 1.0
n_clusters = 2
rounds = 3
[unit]
kind = "person"
[privacy]
epsilon = 2.0
delta = 1e-5
attempts = 1
random_state = 1
"""


def test_checkpoint_of_study_file_gives_same_result(tmp_path: Path) -> None:
    text = STUDY
    for name, rows in DATA.items():
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="x,y", comments="")
        text += f'[[sites]]\nname = "{name}"\ndata = "{name}.csv"\n'
        text += f'policy = {{ population = "{name}", data = "synthetic", ledger = "{name}.sqlite" }}\n'
    (tmp_path / "study.toml").write_text(text)
    study = Study.load(tmp_path / "study.toml")
    assert study.plan().attempts == 1
    with pytest.raises(Stopped):
        study.run(stop_at(2), checkpoint=tmp_path / "kept")
    heard: list[Progress] = []
    result = study.run(heard.append, checkpoint=tmp_path / "kept")
    assert Progress("resumed", 2, study.plan().rounds) in heard
    assert result.report.attempts == 1
    assert any("round" in note for note in result.report.notes)  # the attempt is on the report
    again = study.run(checkpoint=tmp_path / "kept")
    assert again.as_record() == result.as_record()
    approved = study.plan()
    with pytest.raises(Refused, match="plan"):
        study.run(plan=approved, checkpoint=tmp_path / "kept")


def test_checkpoint_continued_with_other_data_is_refused(tmp_path: Path) -> None:
    data = {name: np.random.default_rng(n).normal(size=(30, 2)) for n, name in enumerate("ab")}
    policies = {name: Policy.throwaway(name, tmp_path / f"{name}.sqlite", unit="record") for name in data}
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "unit": "record", "policies": policies}
    asked |= {"checkpoint": tmp_path / "kept"}
    program = algorithms.MeanProgram(columns=("x", "y"), clip=1.0)
    run(program, data, **asked)
    with pytest.raises(Refused, match="not those"):
        run(program, {**data, "b": data["b"] + 1}, **asked)
