"""Shared by all tests: a state folder of their own, and the data and oracles that may or may not be here."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.native_kernels import KINDS, NUMPY
from helpers.reproducibility import EXPLORE, load_profile, reproducible
from zerosum.compute.backends import native

load_profile()

SHARED = Path(__file__).parents[2] / "shared"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if EXPLORE or item.get_closest_marker("system_randomness"):
        return (yield)
    with reproducible(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """A fixture that several tests share has a seed of its own, because the test that runs first differs from run to
    run."""
    if EXPLORE or fixturedef.scope == "function":
        return (yield)
    with reproducible(f"{fixturedef.baseid}::{fixturedef.argname}"):
        return (yield)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROSUM_STATE", str(tmp_path / "state"))


@pytest.fixture
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are not wrapped; the console reads $COLUMNS when it is imported only."""
    from zerosum.cli import terminal

    monkeypatch.setattr(terminal.out, "_width", 200)


@pytest.fixture(scope="session")
def oracle() -> dict[str, Any]:
    """Independent 60-digit values."""
    path = SHARED / "oracles" / "exact.json"
    if not path.exists():
        pytest.skip("the independent high-precision values are not here (shared/oracles/exact.json)")
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Where a real data set lies; the test is skipped where it is not there."""

    def find(name: str) -> Path:
        path = SHARED / "data" / name
        if not path.exists():
            pytest.skip(f"the data set is not here (shared/data/{name})")
        return path

    return find


@pytest.fixture(params=["mask", "atlas"])
def space(request: pytest.FixtureRequest) -> Any:
    """A small grid of brain images, of either kind."""
    from helpers.brain_images import grid

    return grid(request.param)


@pytest.fixture
def voxels() -> Any:
    from helpers.brain_images import grid

    return grid("mask")


@pytest.fixture(params=KINDS or [NUMPY])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """A kernel of every kind that this processor can run."""
    if request.param == NUMPY:
        pytest.skip("the kernels in C were not compiled")
    native.kind(request.param)
    yield request.param
    native.kind(KINDS[0])


@pytest.fixture(params=[*KINDS, NUMPY])
def computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What computes: a kernel of every kind, and NumPy."""
    if request.param == NUMPY:
        monkeypatch.setattr(native, "_native", None)
        yield NUMPY
        return
    native.kind(request.param)
    yield request.param
    native.kind(KINDS[0])
