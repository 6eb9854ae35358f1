"""One budget for several studies: exact, shared by clones, and refusing what goes beyond."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import zerosum
from zerosum.errors import BadParameter, BudgetExceeded, Refused, ZerosumError
from zerosum.kernel.accountant import epsilon, mu_for
from zerosum.study.kept import Kept

NAMES = ("north", "east", "south")


def tables(count: int = 40) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(count, 2)) for name in NAMES}


def mean(budget: zerosum.Budget | None, **more: Any) -> zerosum.Mean:
    return zerosum.Mean(clip=3.0, unit="person", budget=budget, **{"epsilon": 0.5} | more)


def test_several_estimators_share_it_exactly() -> None:
    budget = zerosum.Budget(epsilon=1.0, delta=1e-5)
    mean(budget).fit(tables())
    zerosum.Covariance(clip=3.0, unit="person", epsilon=0.5, budget=budget).fit(tables())
    both = epsilon(2**0.5 * mu_for(0.5, 1e-5), 1e-5)
    assert budget.spent == pytest.approx(both, rel=1e-4)
    assert 1 - both < budget.left < 1
    with pytest.raises(BudgetExceeded, match=r"has 0\.6\d+ left for one more study"):
        mean(budget, epsilon=0.9).fit(tables())
    assert budget.spent == pytest.approx(both, rel=1e-4)
    mean(budget, epsilon=budget.left * (1 - 1e-6)).fit(tables())  # what is said to be left is
    assert budget.spent == pytest.approx(1.0, rel=1e-4)
    assert "3 fits" in repr(budget)


def test_what_was_refused_is_given_back(tmp_path: Path) -> None:
    budget = zerosum.Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises(ZerosumError):
        mean(budget).fit(tables(5))  # the policies ask for ten people
    assert (budget.spent, budget.fitted) == (0.0, 0)
    program = zerosum.algorithms.Mean(columns=("a", "b"), clip=1.0)

    def stop(seen: Any) -> None:
        if seen.stage == "round":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        zerosum.run(program, tables(), epsilon=0.5, delta=1e-5, unit="person", budget=budget, observer=stop)
    assert budget.spent == pytest.approx(0.5, rel=1e-4)  # it was released


def test_what_one_fit_is_given_back_is_not_what_another_paid() -> None:
    """Two fits at once in two threads: one is refused while the other is paid for."""
    budget = zerosum.Budget(epsilon=3.0, delta=1e-5)
    program = zerosum.algorithms.Mean(columns=("a", "b"), clip=1.0)

    def fit_another_and_stop(seen: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(mean(budget).fit, tables()).result()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        zerosum.run(
            program,
            tables(),
            epsilon=0.5,
            delta=1e-5,
            unit="person",
            budget=budget,
            observer=fit_another_and_stop,
        )
    assert budget.spent == pytest.approx(0.5, rel=1e-4)
    assert budget.fitted == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_pays_nothing() -> None:
    budget = zerosum.Budget(epsilon=1.0, delta=1e-5)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        _INHERITED.append(budget)
        with pytest.raises(Refused, match="n_jobs=1"):
            pool.submit(_fit_inherited).result()
    _INHERITED.clear()


_INHERITED: list[zerosum.Budget] = []


def _fit_inherited() -> None:
    mean(_INHERITED[0]).fit(tables())


def test_a_search_is_refused_where_any_site_is_private(tmp_path: Path) -> None:
    made_up = zerosum.Policy.throwaway("north", tmp_path / "north.sqlite", unit="person", delta=1e-5, data="synthetic")
    with pytest.raises(BadParameter, match="every fit of one is a study of its own"):
        clone(mean(None, policies={"north": made_up})).fit(tables())


def test_a_search_for_parameters_is_refused_unless_it_is_paid_for() -> None:
    labels = np.repeat(NAMES, 40)
    rows = np.concatenate(list(tables().values()))
    grid = {"n_clusters": [1, 2]}
    plain = zerosum.KMeans(clip=3.0, unit="person", epsilon=0.2, rounds=2)
    with pytest.raises(ValueError, match="every fit of one is a study of its own"):
        GridSearchCV(plain, grid, cv=2, scoring=lambda *_: 0.0).fit(rows, sites=labels)
    assert Kept.all() == []
    budget = zerosum.Budget(epsilon=3.0, delta=1e-5, fits=5)
    search = GridSearchCV(plain.set_params(budget=budget), grid, cv=2, scoring=lambda *_: 0.0)
    search.fit(rows, sites=labels)
    assert (budget.fitted, len(Kept.all())) == (5, 5)  # two by two, and the best again
    with pytest.raises(BudgetExceeded, match="pays for 5 fits"):
        search.best_estimator_.fit(rows, sites=labels)


def test_a_refit_that_fails_loses_nothing() -> None:
    budget = zerosum.Budget(epsilon=3.0, delta=1e-5, fits=4)
    plain = zerosum.KMeans(clip=3.0, unit="person", epsilon=0.2, rounds=2, budget=budget)
    search = GridSearchCV(plain, {"n_clusters": [1, 2]}, cv=2, scoring=lambda *_: 0.0)
    rows = np.concatenate(list(tables().values()))
    with pytest.raises(BudgetExceeded):
        search.fit(rows, sites=np.repeat(NAMES, 40))
    assert [kept.as_record()["state"] for kept in Kept.all()] == ["done"] * 4


def test_a_clone_has_the_same_budget_and_a_pickled_one_pays_for_nothing() -> None:
    budget = zerosum.Budget(epsilon=1.0, delta=1e-5, fits=9)
    assert clone(mean(budget)).budget is budget
    assert copy.deepcopy(budget) is budget is copy.copy(budget)
    away = pickle.loads(pickle.dumps(mean(budget)))
    with pytest.raises(Refused, match="n_jobs=1"):
        away.fit(tables())
    assert budget.fitted == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": "much"},
        {"epsilon": None},
        {"delta": 2.0},
        {"fits": 0},
        {"fits": True},
        {"fits": 1.5},
    ],
)
def test_bad_budgets_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ZerosumError):
        zerosum.Budget(**{"epsilon": 1.0} | wrong)
    with pytest.raises(BadParameter, match=r"a zerosum\.Budget"):
        mean(3.0).fit(tables())  # type: ignore[arg-type]
