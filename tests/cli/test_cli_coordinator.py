"""A coordinator and four sites, each a process of its own: results as in one process, whatever is killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from helpers.coordinator_runs import Killing, in_process, phase, settings
from helpers.deployment import NAMES, Deployment, zerosum
from helpers.process_kills import Killer, in_a_child
from zerosum.arrays import Floats
from zerosum.engines.base import Engine
from zerosum.errors import Abandoned, BadInput, BadStudy, Refused, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame, decode_message
from zerosum.protocol.messages import Contribute, Message
from zerosum.report.record import Result, write_whole
from zerosum.study import Study
from zerosum.study.coordinating import Connect, Settings, begin, coordinate


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("d"), epsilon=1000.0)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def estimate(folder: Path) -> dict[str, Floats]:
    with np.load(folder / "estimate.npz") as file:
        return dict(file)


def same(found: dict[str, Floats], expected: Result) -> bool:
    return all(found[name].tobytes() == quantity.value.tobytes() for name, quantity in expected.estimate.items())


def test_coordinator_studies_in_sequence_equal_in_process_results(deployment: Deployment) -> None:
    folder = deployment.folder
    studies = [
        (deployment.study(name="secure"), False),
        (deployment.study(name="zero-sum", scheme="zero-sum"), True),  # doubles, added up as they arrive
        (deployment.study("pca", name="pca", parameters="n_components = 2"), False),
    ]
    for study, off_grid in studies:
        name = study.stem
        begin(settings(deployment, study, name), folder / name)
        coordinate(folder / name, lambda sites: None)
        found, expected = estimate(folder / f"{name}-out"), in_process(deployment, study, folder / name)
        assert (
            np.allclose(found["mean"], expected.estimate["mean"].value, rtol=1e-12)
            if off_grid
            else same(found, expected)
        )
    for name in NAMES:
        spent = deployment.spent(name)
        assert len(set(spent)) == len(spent) > 2


def test_cli_coordinator_run_then_again_after_end_spends_once(deployment: Deployment) -> None:
    folder, study = deployment.folder, deployment.study(name="line", seed=None)
    plan = folder / "line.json"
    write_whole(plan, Study.load(study).plan().to_json())
    sites = [word for each, path in deployment.sockets().items() for word in ("--site", f"{each}={path}")]
    command = ["coordinator", "run", study, "--plan", plan, "--state", folder / "line", "--out", folder / "line-out"]
    done = zerosum(*command, *sites, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "north: agreed, east: agreed, south: agreed, west: agreed" in done.stderr
    before = {name: deployment.spent(name) for name in NAMES}
    again = zerosum("coordinator", "resume", "--state", folder / "line", "--json", cwd=folder)
    assert (
        json.loads(again.stdout)["estimate"]
        == json.loads((folder / "line-out" / "result.json").read_text())["estimate"]
    )
    assert {name: deployment.spent(name) for name in NAMES} == before
    with pytest.raises(Refused, match="resume"):
        begin(settings(deployment, study, "line"), folder / "line")


def test_study_with_site_files_runs_in_one_process(deployment: Deployment) -> None:
    """With the keys that the roster names; ledgers are those of the sites, which do not serve meanwhile or do."""
    study = Study.load(deployment.study(name="rehearsal"))
    result = study.with_sites([deployment.site(name) for name in NAMES]).run()
    assert result.participants == (NAMES,)
    assert deployment.spent("north")[-1][0].startswith("rehearsal")


def test_coordinator_missing_site_or_identity_is_refused_at_start(deployment: Deployment, tmp_path: Path) -> None:
    study = deployment.study(name="unfit")
    known = settings(deployment, study, "unfit")
    with pytest.raises(BadStudy, match="'west'"):
        begin(known.model_copy(update={"sites": {name: Path(name) for name in NAMES[:3]}}), tmp_path / "s")
    text = study.read_text()
    study.write_text(text.replace(f'identity = "{deployment.identities["east"]}"', ""))
    with pytest.raises(BadStudy, match="'east'"):
        begin(known, tmp_path / "s")
    study.write_text(text)
    begin(known, tmp_path / "s")
    study.write_text(text.replace("epsilon = 2.0", "epsilon = 3.0"))
    with pytest.raises(Refused, match="changed"):
        coordinate(tmp_path / "s", lambda sites: None)
    with pytest.raises(BadInput, match="nowhere"):
        coordinate(tmp_path / "nowhere", lambda sites: None)


def test_coordinator_absent_site_is_waited_for_and_named(deployment: Deployment, tmp_path: Path) -> None:
    study = deployment.study(name="away")
    known = settings(deployment, study, "away")
    begin(known.model_copy(update={"sites": known.sites | {"west": tmp_path / "socket"}, "wait": 0.5}), tmp_path / "s")
    seen: list[Mapping[str, str]] = []
    with pytest.raises(Abandoned, match=r"'west' \(absent\)"):
        coordinate(tmp_path / "s", seen.append)
    assert seen == [dict.fromkeys(NAMES[:3], "agreed") | {"west": "absent"}]


# ---- kills ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["advertise", "share", "receive", "contribute", "sign", "open"])
def test_site_killed_in_each_phase_joins_next_study(at: str, deployment: Deployment) -> None:
    """In set-up nothing is spent; in a round the others end it. The site joins the next study."""
    name, folder = f"killed-{at}", deployment.folder
    study = deployment.study(name=name)
    begin(settings(deployment, study, name), folder / name)
    known = Settings.load(folder / name)

    @contextmanager
    def connect(plan: Plan) -> Iterator[Engine]:
        with known.connect(plan) as engine:
            yield Killing(engine, deployment, "east", at)

    before = {each: deployment.spent(each) for each in NAMES}
    try:
        if at in ("advertise", "share", "receive"):
            with pytest.raises(Abandoned, match="released"):
                coordinate(folder / name, lambda sites: None, connect=connect)
            assert {each: deployment.spent(each) for each in NAMES} == before
        else:
            coordinate(folder / name, lambda sites: None, connect=connect)
            gone: list[str] = []

            def loses(site: str, message: Message) -> bool:
                gone.extend([site] if site == "east" and phase(message) == at else [])
                return site in gone

            assert same(estimate(folder / f"{name}-out"), in_process(deployment, study, folder / name, loses))
            fresh = {each: len(deployment.spent(each)) - len(before[each]) for each in NAMES}
            assert fresh == dict.fromkeys(NAMES, 1) | {"east": 0 if at == "contribute" else 1}
    finally:
        if "east" not in deployment.running:
            deployment.start("east")
    if at in ("advertise", "share", "receive"):  # nothing was spent, and the study goes on
        coordinate(folder / name, lambda sites: None)
        assert same(estimate(folder / f"{name}-out"), in_process(deployment, study, folder / name))


@pytest.mark.parametrize("seed", [7, None])
@pytest.mark.parametrize("kills", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_coordinator_killed_at_random_spends_nothing_twice(
    kills: int, seed: int | None, deployment: Deployment
) -> None:
    """In as many studies as that takes. A round that was under way goes on: each is in every ledger once, no attempt is
    needed, and with a seed the bits are those of one process."""
    folder, rng, killed, studies = deployment.folder, np.random.default_rng(kills), 0, 0
    while killed < kills:
        name = f"shot-{kills}-{seed}-{studies}"
        study = deployment.study("k-means", name=name, parameters="n_clusters = 1\nrounds = 5", seed=seed)
        plan = begin(settings(deployment, study, name), folder / name)
        while killed < kills and not in_a_child(partial(die_soon, folder / name, *rng.random(2))):
            killed += 1
        result = coordinate(folder / name, lambda sites: None)
        assert result.participants == (NAMES,) * plan.rounds
        for each in NAMES:
            spent = [(round, attempt) for study, round, attempt in deployment.spent(each) if study == plan.study]
            assert sorted(spent) == [(round, 0) for round in range(plan.rounds)]
        if seed is not None:
            assert same(estimate(folder / f"{name}-out"), in_process(deployment, study, folder / name))
        studies += 1


def die_soon(folder: Path, which: float, when: float) -> None:
    """A study whose process dies so many calls after everybody agreed, or after the secure sum was set up."""
    killer = Killer(int(400 * when), "consent") if which < 0.2 else Killer(int(6000 * when), "set-up")
    coordinate(folder, lambda sites: None, killer)


class Gone(Exception):
    """A coordinator's process ended."""


class Ending:
    """The coordinator's process ends when frames of a phase are about to go out for the n-th time. Until then one site
    is not reached by requests for contributions."""

    def __init__(self, engine: Engine, at: str, times: int, away: str) -> None:
        self._engine, self._at, self._times, self._away = engine, at, times, away

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        now = phase(decode_message(next(iter(frames.values()))))
        self._times -= now == self._at
        if self._times == 0:
            raise Gone
        missed = self._away if now == "contribute" else ""
        yield from self._engine.exchange({name: frame for name, frame in frames.items() if name != missed})
        if missed in frames:
            yield missed, None


def ending(state: Path, at: str, times: int, away: str = "") -> Connect:
    @contextmanager
    def connect(plan: Plan) -> Iterator[Engine]:
        with Settings.load(state).connect(plan) as engine:
            yield Ending(engine, at, times, away)

    return connect


@pytest.mark.parametrize("at", ["sign", "open"])
def test_coordinator_resumed_round_keeps_announced_list_of_sites(at: str, deployment: Deployment) -> None:
    """A site that was not reached then is there again, and stays out of that round: nobody signs a second list."""
    folder, name = deployment.folder, f"listed-{at}"
    study = deployment.study(name=name)
    begin(settings(deployment, study, name), folder / name)
    with pytest.raises(Gone):
        coordinate(folder / name, lambda sites: None, connect=ending(folder / name, at, 1, "east"))
    result = coordinate(folder / name, lambda sites: None)
    assert result.participants == (("north", "south", "west"),)
    expected = in_process(deployment, study, folder / name, lambda site, m: site == "east" and phase(m) == "contribute")
    assert same(estimate(folder / f"{name}-out"), expected)


def test_coordinator_restored_from_backup_gets_no_second_release(deployment: Deployment) -> None:
    """Its sites have gone on: they refuse what is over, and nothing is spent twice."""
    folder, name = deployment.folder, "backup"
    parameters = "n_clusters = 1\nrounds = 3"
    study = deployment.study("k-means", name=name, attempts=1, parameters=parameters, seed=None)
    plan = begin(settings(deployment, study, name), folder / name)
    with pytest.raises(Gone):
        coordinate(folder / name, lambda sites: None, connect=ending(folder / name, "open", 3))
    shutil.copytree(folder / name, folder / "restored")
    assert coordinate(folder / name, lambda sites: None).participants == (NAMES,) * plan.rounds
    before = {each: deployment.spent(each) for each in NAMES}
    with pytest.raises(ZerosumError, match="over"):
        coordinate(folder / "restored", lambda sites: None)
    assert {each: deployment.spent(each) for each in NAMES} == before


def test_coordinator_and_site_restarted_together_use_one_attempt(deployment: Deployment) -> None:
    """Its keys are gone, so everybody makes new ones, and the round that was under way is asked again as bought."""
    folder, name = deployment.folder, "both"
    study = deployment.study(name=name, attempts=1, seed=None)
    plan = begin(settings(deployment, study, name), folder / name)
    before = {each: len(deployment.spent(each)) for each in NAMES}
    with pytest.raises(Gone):
        coordinate(folder / name, lambda sites: None, connect=ending(folder / name, "sign", 1))
    deployment.kill("south")
    deployment.start("south")
    result = coordinate(folder / name, lambda sites: None)
    assert result.participants == (NAMES,)
    for each in NAMES:
        spent = deployment.spent(each)[before[each] :]
        assert sorted((round, attempt) for _, round, attempt in spent) == [(0, 0), (0, 1)], plan.study


def test_coordinator_killed_goes_on_without_absent_site(deployment: Deployment) -> None:
    """Within L, and bit for bit as if the site had been lost in that round; it joins the next study."""
    folder, name = deployment.folder, "alone"
    study = deployment.study("k-means", name=name, parameters="n_clusters = 1\nrounds = 1")
    plan = begin(settings(deployment, study, name).model_copy(update={"patience": 0.2}), folder / name)
    with pytest.raises(Gone):
        coordinate(folder / name, lambda sites: None, connect=ending(folder / name, "contribute", 3))
    deployment.kill("east")
    seen: list[Mapping[str, str]] = []
    try:
        result = coordinate(folder / name, seen.append)
    finally:
        deployment.start("east")
    rest = ("north", "south", "west")
    assert seen == [dict.fromkeys(NAMES, "agreed") | {"east": "absent"}]
    assert result.participants == (NAMES,) * 2 + (rest,) * (plan.rounds - 2)
    for each in NAMES:
        spent = [(round, attempt) for which, round, attempt in deployment.spent(each) if which == plan.study]
        assert sorted(spent) == [(round, 0) for round in range(plan.rounds if each in rest else 2)]

    def loses(site: str, message: Message) -> bool:
        return site == "east" and isinstance(message, Contribute) and message.round >= 2

    assert same(estimate(folder / f"{name}-out"), in_process(deployment, study, folder / name, loses))
    following = deployment.study(name="after-alone")
    begin(settings(deployment, following, "after-alone"), folder / "after-alone")
    assert coordinate(folder / "after-alone", lambda sites: None).participants == (NAMES,)
