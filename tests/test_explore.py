"""Default runs draw the same examples and noise everywhere; exploring runs draw afresh, with a larger budget."""

from __future__ import annotations

import importlib
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.reproducibility import EXPLORE, reproducible
from zerosum.noise import sampler
from zerosum.noise.sampler import Sampler

TESTS = Path(__file__).parent
default_run = pytest.mark.skipif(EXPLORE, reason="an exploring run draws afresh")


def drawn() -> list[list[int]]:
    """Draws of two noise streams, and of `random`."""
    shared = Sampler.shared(os.urandom(32))  # a fresh secret, as two sites would agree on
    return [Sampler.system().words(4).tolist(), shared.words(4).tolist(), [random.getrandbits(64)]]


def test_noise_under_one_seed_is_the_same_and_under_another_not() -> None:
    found = []
    for seed in ("one test", "one test", "another test"):
        with reproducible(seed):
            found.append([drawn(), drawn()])
    assert found[0] == found[1]
    numbers = [n for run in (found[0], found[2]) for draws in run for stream in draws for n in stream]
    assert len(set(numbers)) == len(numbers)  # by chance once in 10^16 runs


def test_shared_streams_under_a_seed_are_the_same_for_the_same_key_only() -> None:
    with reproducible("one test"):
        mine, yours, another = (Sampler.shared(key).words(4).tolist() for key in (bytes(32), bytes(32), b"\1" * 32))
    assert mine == yours
    assert mine != another


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_child_under_seed_draws_keys_of_system() -> None:
    with reproducible("one test"):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, Sampler.system().words(4).tobytes())
            os._exit(0)
        os.waitpid(child, 0)
        theirs = os.read(read, 32)
        os.close(read)
        os.close(write)
        assert Sampler.system().words(4).tobytes() != theirs


@default_run
def test_noise_of_a_test_follows_from_its_name(request: pytest.FixtureRequest) -> None:
    found = drawn()
    with reproducible(request.node.nodeid):
        assert drawn() == found


@pytest.mark.system_randomness
def test_noise_of_a_marked_test_is_the_systems() -> None:
    assert sampler.os is os  # type: ignore[attr-defined]


@default_run
def test_examples_do_not_depend_on_the_modules_imported_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[object]] = []

    @given(st.lists(st.one_of(st.integers(), st.floats(), st.text())))
    def look(values: list[object]) -> None:
        found[-1].append(repr(values))

    for run in range(2):
        found.append([])
        look()
        name = f"constants_of_run_{run}"
        values = [random.getrandbits(60) for _ in range(200)]  # Hypothesis skips modules with over 1024 constants
        (tmp_path / f"{name}.py").write_text(f"VALUES = {values, list(map(str, values)), [n / 7 for n in values]}\n")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.import_module(name)
    assert len(found[0]) >= 100
    assert found[0] == found[1]


def test_explore_profile_has_ten_times_the_examples_and_new_draws() -> None:
    code = "from helpers.reproducibility import examples, load_profile; from hypothesis import settings; "
    code += "load_profile(); "
    code += "print(settings().max_examples, settings().derandomize, settings(max_examples=examples(40)).max_examples)"
    said = []
    for value in ("", "1"):
        environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}", "ZEROSUM_EXPLORE": value}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        said.append(done.stdout.split())
    assert said == [["100", "True", "40"], ["1000", "False", "400"]]


def test_explore_profile_scales_every_max_examples() -> None:
    budgets = [
        (path.name, budget)
        for path in TESTS.rglob("test_*.py")
        for budget in re.findall(r"max_examples=(\w+)", path.read_text(encoding="utf-8"))
    ]
    assert {budget for _, budget in budgets} == {"examples"}, budgets
