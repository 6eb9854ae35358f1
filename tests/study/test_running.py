"""`zerosum.run`: what it takes, and whom a study protects where the data could be either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerosum
from zerosum import Policy, Site, Units
from zerosum.errors import BadParameter
from zerosum.kernel.plan import Plan

ROWS = np.zeros((20, 2))
PEOPLE = Units.from_list([ROWS[:5], ROWS[5:6], *np.split(ROWS[6:], 14)])
QUESTION = zerosum.algorithms.MeanProgram(columns=("a", "b"), clip=1.0)


def ledgers(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.sqlite"))


def ask(sites: Any, question: Any = QUESTION, **change: Any) -> zerosum.Result:
    return zerosum.run(question, sites, **{"epsilon": 1.0, "delta": 1e-5} | change)


@pytest.mark.parametrize("name", ["Covariance", "Histogram", "ICA", "KMeans", "Mean", "PCA"])
def test_run_of_estimator_is_refused_with_name_of_program(name: str) -> None:
    kind = getattr(zerosum, name)
    mine = type("Mine", (kind,), {})
    for estimator in (kind, kind(), mine, mine()):
        with pytest.raises(BadParameter, match=rf"zerosum\.algorithms\.{name}Program\("):
            ask({"a": ROWS, "b": ROWS}, estimator)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (zerosum.algorithms.MeanProgram, r"zerosum\.algorithms\.MeanProgram\("),
        ("mean", "'str'"),
        (None, "'NoneType'"),
        (np.ones(3), "'ndarray'"),
    ],
)
def test_run_of_other_object_is_refused(given: Any, word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        ask({"a": ROWS, "b": ROWS}, given)


def test_run_of_sites_without_names_is_refused() -> None:
    with pytest.raises(BadParameter, match="sites"):
        ask([ROWS, ROWS], unit="person")


@pytest.mark.parametrize(
    "sites",
    [
        {"a": ROWS, "b": ROWS},
        {"a": Units.from_rows(ROWS), "b": Units.from_rows(ROWS)},
        {"a": PEOPLE, "b": ROWS},
        {"a": Site("a", Units.from_rows(ROWS), Policy(population="a")), "b": PEOPLE},
    ],
)
def test_run_of_plain_rows_without_unit_is_refused_before_spending(sites: Any, tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="unit='person'"):
        ask(sites)
    with pytest.raises(BadParameter, match="'house'"):
        ask(sites, unit="house")
    assert ledgers(tmp_path) == []


def test_run_unit_is_as_declared_and_several_rows_are_persons() -> None:
    assert ask({"a": PEOPLE, "b": PEOPLE}).report.unit == "person"
    assert ask({"c": ROWS, "d": ROWS}, unit="person").report.unit == "person"
    assert ask({"e": ROWS, "f": ROWS}, unit="record").report.unit == "record"
    assert zerosum.PCA(clip=1.0, unit="record").fit({"e": ROWS, "f": ROWS}).privacy_.unit == "record"  # one account


def test_run_with_seed_takes_plain_rows_as_records() -> None:
    def kept(unit: str, *names: str) -> dict[str, Policy]:
        return {name: Policy(population=f"{name} {unit}", unit=unit, data="synthetic") for name in names}

    record = ask({"a": ROWS, "b": ROWS}, policies=kept("record", "a", "b"), random_state=0)
    assert record.report.unit == "record"
    person = ask({"a": ROWS, "b": PEOPLE}, policies=kept("person", "a", "b"), random_state=0)
    assert person.report.unit == "person"


def test_package_attribute_of_program_names_algorithms_module() -> None:
    with pytest.raises(AttributeError, match=r"zerosum\.algorithms\.CustomProgram"):
        _ = zerosum.CustomProgram
    with pytest.raises(AttributeError, match="'median'"):
        _ = zerosum.median
    assert {getattr(zerosum, name).__module__.split(".")[1] for name in ("Mean", "PCA")} == {"estimators"}
    assert set(zerosum.__all__) <= set(dir(zerosum))


def test_run_scans_data_of_each_site_once_and_builds_two_plans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = {"scans": 0, "plans": 0}
    check, built = Units.check, Plan.__post_init__

    def scan(self: Units, *arguments: Any) -> None:
        counts["scans"] += 1
        check(self, *arguments)

    def build(self: Plan) -> None:
        counts["plans"] += 1
        built(self)

    monkeypatch.setattr(Units, "check", scan)
    monkeypatch.setattr(Plan, "__post_init__", build)
    mean = zerosum.algorithms.MeanProgram(columns=("a", "b"), clip=1.0)
    tables = {f"walk {name}": np.zeros((20, 2)) for name in "abc"}
    zerosum.run(mean, tables, epsilon=1.0, delta=1e-5, unit="person")
    assert counts == {"scans": 3, "plans": 1 + 1}
