"""A coordinator and four sites along a tree, each a process of its own: results of a star, whatever is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from helpers.coordinator_runs import Killing, in_process, phase
from helpers.deployment import NAMES, Deployment, zerosum
from helpers.process_kills import Killer, in_a_child
from zerosum.engines.base import Engine
from zerosum.engines.tree import Tree
from zerosum.errors import Abandoned, BadParameter, PolicyRefused
from zerosum.kernel.plan import Plan
from zerosum.protocol.messages import Message
from zerosum.study.coordinating import Connect, Settings, begin, coordinate

# Three levels: north and south at the top, east below north, west below east.
PARENTS = {"east": "north", "west": "east"}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("d"), epsilon=1000.0)
    made.join(PARENTS)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def started(deployment: Deployment, study: Path, name: str) -> Path:
    """A state folder; the coordinator knows the sockets of the sites at the top only."""
    state = deployment.folder / name
    top = {each: path for each, path in deployment.sockets().items() if each not in PARENTS}
    out = deployment.folder / f"{name}-out"
    begin(Settings(study=study, out=out, sites=top, seconds=30.0, wait=30.0, every=0.1, patience=0.2), state)
    return state


def tree_mean(deployment: Deployment, study: Path, state: Path, lost: frozenset[str] = frozenset()) -> bytes:
    """The mean of the same plan with all sites in this process; some are lost when they are asked for vectors."""

    def loses(site: str, message: Message) -> bool:
        return site in lost and phase(message) == "contribute"

    result = in_process(deployment, study, state, loses, Tree)
    return result.estimate["mean"].value.tobytes()


def mean(state: Path) -> bytes:
    with np.load(state.parent / f"{state.name}-out" / "estimate.npz") as file:
        found: bytes = file["mean"].tobytes()
    return found


def killing(deployment: Deployment, state: Path, name: str, at: str) -> Connect:
    @contextmanager
    def connect(plan: Plan) -> Iterator[Engine]:
        with Settings.load(state).connect(plan) as engine:
            yield Killing(engine, deployment, name, at)

    return connect


def test_tree_of_processes_gives_result_of_one_process(deployment: Deployment) -> None:
    study = deployment.study(name="whole", parents=PARENTS)
    state = started(deployment, study, "whole")
    assert coordinate(state, lambda sites: None).participants == (NAMES,)
    assert mean(state) == tree_mean(deployment, study, state)


def test_cli_plan_and_check_show_tree(deployment: Deployment) -> None:
    study = deployment.study(name="shown", parents=PARENTS)
    planned = zerosum("plan", study, cwd=deployment.folder)
    assert "north (east (west)), south" in planned.stdout
    checked = zerosum("check", study, "--site", "north/site.toml", cwd=deployment.folder)
    assert checked.returncode == 0, checked.stdout
    assert "relays the messages of east, west" in checked.stdout


def test_inner_node_without_socket_of_child_refuses_and_check_says_so(deployment: Deployment) -> None:
    study = deployment.study(name="unknown", parents={"north": "south"})
    checked = zerosum("check", study, "--site", "south/site.toml", cwd=deployment.folder)
    assert checked.returncode != 0
    assert "'north'" in checked.stdout
    state = deployment.folder / "unknown"
    begin(Settings(study=study, out=deployment.folder / "u", sites=deployment.sockets(), wait=10.0), state)
    with pytest.raises(PolicyRefused, match="'north'"):
        coordinate(state, lambda sites: None)


def test_cli_flare_job_refuses_tree(deployment: Deployment, tmp_path: Path) -> None:
    from zerosum.cli.flare import flare_job

    study = deployment.study(name="flare", parents=PARENTS)
    with pytest.raises(BadParameter, match="FLARE"):
        flare_job(study, tmp_path / "state", tmp_path / "out", tmp_path / "job")
    assert not (tmp_path / "state").exists()


SLOW = [pytest.param(at, marks=pytest.mark.slow) for at in ("advertise", "share", "receive", "sign")]


@pytest.mark.parametrize("at", ["contribute", "open", *SLOW])
def test_leaf_killed_in_each_phase_is_lost_alone(at: str, deployment: Deployment) -> None:
    study = deployment.study(name=f"leaf-{at}", parents=PARENTS)
    state = started(deployment, study, f"leaf-{at}")
    try:
        if at in ("advertise", "share", "receive"):
            with pytest.raises(Abandoned, match="released"):
                coordinate(state, lambda sites: None, connect=killing(deployment, state, "west", at))
        else:
            result = coordinate(state, lambda sites: None, connect=killing(deployment, state, "west", at))
            lost = frozenset({"west"} if at == "contribute" else ())
            assert result.participants == (tuple(name for name in NAMES if name not in lost),)
            assert mean(state) == tree_mean(deployment, study, state, lost)
    finally:
        if "west" not in deployment.running:
            deployment.start("west")


def test_inner_node_killed_in_round_abandons_it_if_branch_exceeds_dropouts(deployment: Deployment) -> None:
    """East is lost with west, and the plan tolerates one loss: nothing is opened, and an attempt is used later."""
    study = deployment.study(name="inner", parents=PARENTS, attempts=1, seed=None)
    state = started(deployment, study, "inner")
    before = {each: len(deployment.spent(each)) for each in NAMES}
    try:
        with pytest.raises(Abandoned, match="2 of 4 sites were lost"):
            coordinate(state, lambda sites: None, connect=killing(deployment, state, "east", "contribute"))
    finally:
        deployment.start("east")
    # The first try and the attempt that the plan has: both were abandoned, and charged where a request arrived.
    assert {each: len(deployment.spent(each)) - before[each] for each in NAMES} == {
        "north": 2,
        "south": 2,
        "east": 0,
        "west": 0,
    }


def test_coordinator_killed_twice_resumes_along_tree(deployment: Deployment) -> None:
    parameters = "n_clusters = 1\nrounds = 5"
    study = deployment.study("k-means", name="shot", parameters=parameters, parents=PARENTS, seed=None)
    state = started(deployment, study, "shot")
    for calls in (500, 1500):  # within the first rounds
        assert not in_a_child(partial(die_soon, state, calls))
    result = coordinate(state, lambda sites: None)
    assert set(result.participants) == {NAMES}
    for each in NAMES:
        spent = [(round, attempt) for study, round, attempt in deployment.spent(each) if study == result.plan.study]
        assert sorted(spent) == [(round, 0) for round in range(len(result.participants))]


def die_soon(state: Path, calls: int) -> None:
    coordinate(state, lambda sites: None, Killer(calls, "set-up"))
