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
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import zerosum
from zerosum.errors import BadParameter, BudgetExceeded, Refused, ZerosumError
from zerosum.kernel.accountant import epsilon, mu_for
from zerosum.study.archive import ArchivedStudy

NAMES = ("north", "east", "south")


def tables(count: int = 40) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(count, 2)) for name in NAMES}


def mean(budget: zerosum.Budget | None, **more: Any) -> zerosum.Mean:
    settings: dict[str, Any] = {"epsilon": 0.5, "noise": "gaussian"} | more
    return zerosum.Mean(clip=3.0, unit="person", budget=budget, **settings)


def test_budget_shared_by_several_estimators_adds_up_exactly() -> None:
    budget = zerosum.Budget(epsilon=1.0, delta=1e-5)
    mean(budget).fit(tables())
    zerosum.Covariance(clip=3.0, unit="person", epsilon=0.5, budget=budget).fit(tables())
    both = epsilon(2**0.5 * mu_for(0.5, 1e-5), 1e-5)
    assert budget.spent == pytest.approx(both, rel=1e-4)
    assert 1 - both < budget.left < 1
    with pytest.raises(BudgetExceeded, match=r"0\.6\d+"):
        mean(budget, epsilon=0.9).fit(tables())
    assert budget.spent == pytest.approx(both, rel=1e-4)
    mean(budget, epsilon=budget.left * (1 - 1e-6)).fit(tables())  # what is said to be left is
    assert budget.spent == pytest.approx(1.0, rel=1e-4)
    assert "3 fits" in repr(budget)


def test_budget_of_laplace_noise_adds_up_by_its_losses() -> None:
    budget = zerosum.Budget(epsilon=1.0, delta=1e-5)
    mean(budget, epsilon=0.4, noise="auto").fit(tables())
    assert budget.spent == pytest.approx(0.4, rel=1e-4)
    left = budget.left_for("laplace")
    assert 0.6 - 1e-3 < left < budget.left
    with pytest.raises(BudgetExceeded, match=f"{left:.4g} left"):
        mean(budget, epsilon=0.7, noise="laplace").fit(tables())
    mean(budget, epsilon=left * (1 - 1e-6), noise="laplace").fit(tables())
    assert budget.spent == pytest.approx(1.0, abs=1e-3)


def test_budget_of_refused_fit_is_returned(tmp_path: Path) -> None:
    budget = zerosum.Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises(ZerosumError):
        mean(budget).fit(tables(5))  # the policies ask for ten people
    assert (budget.spent, budget.fitted) == (0.0, 0)
    program = zerosum.algorithms.MeanProgram(columns=("a", "b"), clip=1.0)

    def stop(seen: Any) -> None:
        if seen.stage == "round":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        zerosum.run(program, tables(), epsilon=0.5, delta=1e-5, unit="person", budget=budget, observer=stop)
    assert budget.spent == pytest.approx(0.5, rel=1e-4)  # it was released


def test_budget_returned_by_one_fit_leaves_payment_of_another() -> None:
    """Two fits at once in two threads: one is refused while the other is paid for."""
    budget = zerosum.Budget(epsilon=3.0, delta=1e-5)
    program = zerosum.algorithms.MeanProgram(columns=("a", "b"), clip=1.0)

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
def test_budget_in_forked_process_is_refused() -> None:
    budget = zerosum.Budget(epsilon=1.0, delta=1e-5)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        _INHERITED.append(budget)
        with pytest.raises(Refused, match="n_jobs=1"):
            pool.submit(_fit_inherited).result()
    _INHERITED.clear()


_INHERITED: list[zerosum.Budget] = []


def _fit_inherited() -> None:
    mean(_INHERITED[0]).fit(tables())


def test_clone_of_which_one_site_is_private_is_refused(tmp_path: Path) -> None:
    made_up = zerosum.Policy.throwaway("north", tmp_path / "north.sqlite", unit="person", delta=1e-5, data="synthetic")
    with pytest.raises(BadParameter, match="private"):
        clone(mean(None, policies={"north": made_up})).fit(tables())


@pytest.mark.parametrize("fits", [None, 100])
def test_clone_on_private_data_whatever_the_budget_is_refused(fits: int | None) -> None:
    budget = zerosum.Budget(epsilon=3.0, delta=1e-5, fits=fits)
    copy_ = clone(mean(budget)).set_params(epsilon=0.4)
    for each in (copy_, clone(copy_), pickle.loads(pickle.dumps(copy_)).set_params(budget=budget)):
        with pytest.raises(BadParameter, match="private"):
            each.fit(tables())
    assert (budget.fitted, ArchivedStudy.all()) == (0, [])


@pytest.mark.parametrize("budget", [None, zerosum.Budget(epsilon=3.0, delta=1e-5, fits=5)], ids=["none", "five fits"])
def test_grid_search_on_private_data_is_refused_before_anything_is_scored(budget: zerosum.Budget | None) -> None:
    labels = np.repeat(NAMES, 40)
    rows = np.concatenate(list(tables().values()))
    scored: list[Any] = []

    def score(model: Any, held_out: Any, y: object = None) -> float:
        scored.append(held_out)
        return 0.0

    plain = zerosum.KMeans(clip=3.0, unit="person", epsilon=0.2, rounds=2, budget=budget)
    search = GridSearchCV(plain, {"n_clusters": [1, 2]}, cv=2, scoring=score)
    with pytest.raises(ValueError, match="private"):
        search.fit(rows, sites=labels)
    assert (scored, ArchivedStudy.all()) == ([], [])
    assert not hasattr(search, "best_params_")
    assert not hasattr(search, "cv_results_")
    assert budget is None or (budget.fitted, budget.spent) == (0, 0.0)


def test_cross_validation_on_private_data_is_refused() -> None:
    rows = np.concatenate(list(tables().values()))
    budget = zerosum.Budget(epsilon=3.0, delta=1e-5, fits=5)
    model = zerosum.LogisticRegression(lower=-4, upper=4, unit="person", epsilon=0.5, budget=budget)
    with pytest.raises(ValueError, match="private"):
        cross_val_score(
            model, rows, (rows[:, 0] > 0).astype(int), cv=2, params={"sites": np.repeat(NAMES, 40)}, error_score="raise"
        )
    assert budget.fitted == 0


@pytest.mark.parametrize("mark", ["synthetic", "public"])
def test_grid_search_on_public_or_synthetic_data_is_fitted(mark: Any) -> None:
    budget = zerosum.Budget(epsilon=3.0, delta=1e-5, fits=5)
    plain = zerosum.KMeans(clip=3.0, unit="person", epsilon=0.2, rounds=2, budget=budget, data=mark)
    search = GridSearchCV(make_pipeline(plain), {"kmeans__n_clusters": [1, 2]}, cv=2, scoring=lambda *_: 0.0)
    rows, labels = np.concatenate(list(tables().values())), np.repeat(NAMES, 40)
    search.fit(rows, kmeans__sites=labels)
    assert budget.fitted == 5  # two by two, and the best again
    with pytest.raises(BudgetExceeded, match="fits"):
        search.best_estimator_.fit(rows, kmeans__sites=labels)


def test_estimator_constructed_with_parameters_of_another_fits_private_data() -> None:
    budget = zerosum.Budget(epsilon=3.0, delta=1e-5)
    first = mean(budget).fit(tables())
    again = type(first)(**first.get_params(deep=False)).fit(tables())
    assert again.budget is budget
    assert budget.fitted == 2


def test_budget_with_a_cap_on_fits_pays_for_no_more_private_fits() -> None:
    budget = zerosum.Budget(epsilon=3.0, delta=1e-5, fits=2)
    model = mean(budget, epsilon=0.2).fit(tables())
    model.fit(tables())
    with pytest.raises(BudgetExceeded, match="fits"):
        model.fit(tables())
    assert [kept.as_record()["state"] for kept in ArchivedStudy.all()] == ["done"] * 2  # the refusal loses nothing


def test_budget_is_shared_by_clone_and_refused_after_pickling() -> None:
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
def test_budget_bad_parameter_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ZerosumError):
        zerosum.Budget(**{"epsilon": 1.0} | wrong)
    with pytest.raises(BadParameter, match="budget"):
        mean(3.0).fit(tables())  # type: ignore[arg-type]
