"""ICA in scikit-learn's manner: its checks where they apply, every way to hand in people, what a site does at home."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from zerosum.compute.units import Units
from zerosum.data.fmri import Brains, make_fmri
from zerosum.errors import BadData, BadParameter, BudgetExceeded
from zerosum.estimators import ICA
from zerosum.site.policy import Policy

Floats = NDArray[np.float64]
MADE_UP = make_fmri(36, sites=3, components=3, points=60, side=5, noise=0.1)
_ONE = "scikit-learn sets n_components to 1, and one source alone cannot be separated from anything"


def three(made_up: Brains = MADE_UP) -> list[Floats]:
    return [np.asarray(made_up.observed(s)) for s in range(made_up.sites)]


def rhythms(people: int = 12, points: int = 120, seed: int = 5) -> list[Floats]:
    """Gaussian sources that differ in how fast they move only, mixed by the same maps at three sites."""
    rng = np.random.default_rng(seed)
    keep = [np.exp(-0.5 * ((np.fft.rfftfreq(points, 2.0) - f) / 0.02) ** 2) for f in (0.03, 0.1, 0.18)]
    found = []
    for _ in range(3):
        noise = np.fft.rfft(rng.normal(size=(people, 3, points)), axis=2)
        sources = np.fft.irfft(noise * np.array(keep), points, axis=2)
        sources /= sources.std(axis=2, keepdims=True)
        mixed = np.swapaxes(sources, 1, 2) @ MADE_UP.maps
        found.append(mixed + 0.1 * rng.normal(size=mixed.shape))
    return found


def seeded(**change: Any) -> ICA:
    settings: dict[str, Any] = {"n_components": 3, "epsilon": 15.0, "rounds": 5, "random_state": 0, "data": "synthetic"}
    return ICA(**settings | change)


def exact(**change: Any) -> ICA:
    """With hardly any noise."""
    return seeded(**{"scheme": "pooled", "epsilon": 25.0, "rounds": 9} | change)


def ledgers(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.sqlite"))


@parametrize_with_checks(  # type: ignore[untyped-decorator]  # theirs
    [ICA(scheme="pooled", epsilon=10.0, n_passes=1, rounds=3, random_state=0, data="synthetic")],
    expected_failed_checks=lambda _ica: {
        "check_dont_overwrite_parameters": _ONE,
        "check_fit2d_predict1d": _ONE,
        "check_methods_sample_order_invariance": _ONE,
        "check_methods_subset_invariance": _ONE,
    },
)
def test_ica_estimator_passes_sklearn_checks(estimator: ICA, check: Callable[[ICA], None]) -> None:
    check(estimator)


def test_ica_estimator_transform_of_rows_is_independent_of_order() -> None:
    ica = exact()
    before = set(vars(ica))
    rows = three()[0][0]
    ica.fit(three())
    assert all(name.startswith("_") or name.endswith("_") for name in set(vars(ica)) - before)
    order = np.random.default_rng(0).permutation(len(rows))
    assert np.allclose(ica.transform(rows)[order], ica.transform(rows[order]))
    assert np.allclose(ica.transform(rows)[10:20], ica.transform(rows[10:20]))
    with pytest.raises(ValueError, match="2D"):
        ica.transform(rows[0])


# ---- what is found ---------------------------------------------------------------------------------------------


def test_ica_estimator_without_noise_finds_shared_maps() -> None:
    ica = exact().fit(three())
    assert np.all(ica.match(MADE_UP.maps).correlations > 0.97)
    assert np.allclose(np.linalg.norm(ica.maps_, axis=1), 1)
    assert np.all(np.max(ica.maps_, axis=1) == np.max(np.abs(ica.maps_), axis=1))
    assert np.allclose(ica.components_ @ ica.mixing_, np.eye(3))
    assert np.all(np.diff(ica.strength_) <= 0)
    assert ica.strength_.sum() == pytest.approx(1)
    assert ica.above_noise_ == 3
    assert not any("stability_" in note for note in ica.notes_)
    assert ica.stability_.shape == (3,)
    assert [line.statistic for line in ica.privacy_.releases] == ["scatter"] * 3 + ["fourth_cumulants"] + [
        "unmixing_score"
    ] * 9


@pytest.mark.parametrize("clock", [{"seconds": 2.0}, {"band": (0.0, 0.24)}])
def test_ica_estimator_with_clock_takes_second_order_solver(clock: dict[str, Any]) -> None:
    sites: list[Any] = rhythms()
    if "seconds" not in clock:  # then recordings bring their own
        sites = [Units.from_runs([[rows[:50], rows[50:]] for rows in site], [[2.0, 2.0]] * 12) for site in sites]
    ica = exact(**clock).fit(sites)
    assert ica.privacy_.releases[-1].statistic == "band_scatter"
    assert np.all(ica.match(MADE_UP.maps).correlations > 0.95)


def test_ica_estimator_second_order_without_clock_is_refused() -> None:
    with pytest.raises(BadParameter, match="band"):
        exact(solver="second-order").fit(three())
    with pytest.raises(BadData, match="seconds"):
        exact(band=(0.01, 0.1)).fit(three())


def test_ica_estimator_maps_lie_in_span_of_public_basis() -> None:
    rng = np.random.default_rng(3)
    basis = np.column_stack([MADE_UP.maps.T, rng.normal(size=(25, 2))])
    ica = seeded(basis=basis, random_state=1).fit(three())
    assert ica.privacy_.releases[0].size == 5 * 6 // 2
    inside = np.linalg.qr(basis)[0]
    assert np.allclose(inside @ (inside.T @ ica.maps_.T), ica.maps_.T)
    assert np.all(ica.match(MADE_UP.maps).correlations > 0.8)
    with pytest.raises(BadParameter, match="basis"):
        seeded(basis=basis[:10]).fit(three())


def test_ica_estimator_match_orders_maps_by_template() -> None:
    ica = exact().fit(three())
    found = ica.match(-MADE_UP.maps)
    lined_up = ica.maps_[found.order] * found.signs[:, None]
    assert np.all(np.sum(lined_up * -MADE_UP.maps, axis=1) > 0)
    assert np.argmax(np.abs(np.corrcoef(ica.maps_, MADE_UP.maps[1])[-1, :-1])) == ica.match(MADE_UP.maps[1]).order[0]
    with pytest.raises(BadParameter, match=r"\(2, 7\)"):
        ica.match(np.ones((2, 7)))


# ---- at the site -----------------------------------------------------------------------------------------------


def test_ica_estimator_time_courses_equal_sources() -> None:
    ica = exact().fit(three())
    found = ica.match(MADE_UP.maps)
    courses = ica.time_courses(three()[1])
    assert [own.shape for own in courses] == [(60, 3)] * 12
    own = courses[4][:, found.order] * found.signs
    truth = MADE_UP.sources[1][4]
    assert all(np.corrcoef(own[:, r], truth[:, r])[0, 1] > 0.9 for r in range(3))
    rows = three()[1][4]
    assert np.allclose(courses[4], ica.transform(rows - rows.mean(axis=0)))
    back = ica.inverse_transform(ica.transform(rows))
    assert np.allclose(ica.transform(back), ica.transform(rows))


def test_ica_estimator_time_courses_are_standardised_per_recording() -> None:
    ica = exact(per_recording="standardise").fit(three())
    person = three()[0][0]
    (courses,) = ica.time_courses(Units.from_runs([[person[:40], 5 * person[40:] + 9]], [[2.0, 2.0]]))
    alone = ica.time_courses([person[:40], person[40:]])
    assert np.allclose(courses, np.concatenate(alone))
    with pytest.raises(ValueError, match="time_courses"):
        ica.time_courses(person)
    with pytest.raises(ValueError, match="7 columns"):
        ica.time_courses(np.ones((2, 5, 7)))


def test_ica_estimator_before_fit_raises_not_fitted() -> None:
    for ask in (ICA().transform, ICA().inverse_transform, ICA().match, ICA().time_courses):
        with pytest.raises(NotFittedError):
            ask(three()[0][0])


# ---- the ways in -----------------------------------------------------------------------------------------------


def test_ica_estimator_arrays_lists_units_and_labels_give_same_study() -> None:
    tables = three()
    names = [f"site {s}" for s in range(3)]
    listed = seeded().fit(tables)
    people = [person for table in tables for person in table]
    where = np.repeat(names, 12)
    for other in (
        seeded().fit(dict(zip(names, tables, strict=True))),
        seeded().fit([list(table) for table in tables]),
        seeded().fit([Units.from_list(list(table)) for table in tables]),
        seeded().fit(people, sites=where),
        seeded().fit(np.array(people), sites=where),
        seeded().fit(np.vstack(people), sites=np.repeat(where, 60), people=np.repeat(np.arange(36), 60)),
    ):
        assert np.array_equal(listed.components_, other.components_)
        assert [line.site for line in other.privacy_.per_site] == names


def test_ica_estimator_rows_of_person_in_any_order_give_same_components() -> None:
    rows = np.concatenate(three()).reshape(-1, 25)
    whose, order = np.repeat(np.arange(36), 60), np.argsort(np.tile(np.arange(60), 36), kind="stable")
    together = seeded(scheme="pooled").fit(rows, people=whose)
    apart = seeded(scheme="pooled").fit(rows[order], people=whose[order])
    assert np.allclose(together.components_, apart.components_)


def test_ica_estimator_rows_without_people_are_accepted_in_seeded_run_only() -> None:
    rows = np.vstack([person for table in three() for person in table])
    ica = exact().fit(rows)
    assert any("50 rows" in note for note in ica.notes_)
    assert np.all(ica.match(MADE_UP.maps).correlations > 0.9)
    assert exact().fit(rows, sites=np.arange(len(rows)) % 2).privacy_.per_site[1].site == "1"
    assert any("50 rows" in note for note in exact().fit({"a": rows[:1000], "b": rows[1000:]}).notes_)
    for scheme in ("pooled", "secure-sum"):
        with pytest.raises(ValueError, match="people="):
            ICA(scheme=scheme).fit(rows)
    with pytest.raises(ValueError, match="sites="):
        seeded().fit(rows)


@pytest.mark.parametrize(
    ("X", "labels", "word"),
    [
        (three()[0], {}, "sites="),
        (list(three()[0]), {}, "sites="),
        (three(), {"sites": [0, 1]}, "sites="),
        (three(), {"people": [0, 1]}, "people="),
        (three()[0], {"sites": [0, 1]}, r"\[12, 2\]"),
        (three()[0][0], {"people": [0] * 60, "sites": [0] * 30 + [1] * 30}, "sites"),
        (three()[0][0], {"people": [0] * 59}, r"\[60, 59\]"),
        ([], {}, "sites"),
        ([Units.from_rows(table[0]) for table in three()], {}, "row"),
        (Units.from_list(list(three()[0])), {}, "Units"),
        ([three()[0], three()[1][:, :, :7]], {}, "'site 1'.* 7 "),
        ([list(three()[0]), list(three()[1][:, :, :7])], {}, "'site 1'.* 7 "),
        ({"a": three()[0], "b": np.full((3, 20, 25), np.nan)}, {}, "'b'.*finite"),
        ({"a": three()[0], "b": np.ones(5)}, {}, r"'b'.*\(5,\)"),
        ({"a": three()[0], "b": three()[1][0]}, {}, "'b'.*people="),
    ],
)
def test_ica_estimator_bad_data_are_refused_before_spending(
    X: Any, labels: dict[str, Any], word: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=word):
        ICA(n_components=3).fit(X, **labels)
    assert ledgers(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"n_components": 1}, "components"),
        ({"n_components": 26}, "26"),
        ({"solver": "infomax"}, "solver"),
        ({"band": (0.2, 0.1)}, "band"),
        ({"rounds": 1}, "rounds"),
        ({"unit": "house"}, "'house'"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_ica_estimator_bad_parameter_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        seeded(**change).fit(three())


# ---- privacy ---------------------------------------------------------------------------------------------------


def test_ica_estimator_seeded_run_repeats_and_writes_no_ledger(tmp_path: Path) -> None:
    first, second, other = (seeded(random_state=seed).fit(three()) for seed in (0, 0, 1))
    assert np.array_equal(first.maps_, second.maps_)
    assert not np.array_equal(first.maps_, other.maps_)
    assert not first.privacy_.private
    assert first.privacy_.unit == "person"
    assert ledgers(tmp_path) == []


def test_ica_estimator_private_run_spends_until_cap(tmp_path: Path) -> None:
    policies = {f"site {s}": Policy(population=f"p{s}", epsilon=1.2, data="synthetic") for s in range(3)}
    ica = ICA(n_components=2, rounds=3, policies=policies).fit(three())
    assert ica.privacy_.private
    assert ica.privacy_.worst_epsilon <= 1.0
    assert len(ledgers(tmp_path)) == 3
    with pytest.raises(BudgetExceeded):
        ica.fit(three())


def test_ica_estimator_components_below_noise_are_noted() -> None:
    ica = seeded(n_components=2, epsilon=1.0, rounds=3).fit(three())
    assert ica.above_noise_ < 2
    assert any("stability_" in note for note in ica.notes_)


def test_ica_estimator_unstable_components_are_noted() -> None:
    """Too little noise to drown the space, and too few volumes to turn it: stability goes down to 1e-6."""
    short = [site[:, :4] for site in three()]
    ica = seeded(epsilon=1.0).fit(short)
    unstable = int(np.sum(ica.stability_ < 0.5))
    assert unstable > 0
    assert any(f"{unstable} of 3" in note and "stability" in note for note in ica.notes_)
    assert not any("stability" in note for note in exact().fit(three()).notes_)


def test_ica_estimator_parameters_survive_clone_and_pickle() -> None:
    ica = ICA(4, basis=np.eye(25), band=(0.01, 0.1))
    assert clone(ica).get_params()["band"] == (0.01, 0.1)
    fitted = seeded().fit(three())
    assert fitted.get_feature_names_out().tolist() == ["ica0", "ica1", "ica2"]
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.maps_, fitted.maps_)
