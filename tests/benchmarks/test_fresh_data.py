"""The catalogue of data sets for the benchmark of fresh data."""

from __future__ import annotations

import numpy as np
import pytest

from fresh_data import CATALOGUE, POPULATIONS, SITES, Unavailable, load, maximum_likelihood

SETS = sorted(set(CATALOGUE) - {"indicators", "short-texts", "long-texts"})


@pytest.mark.parametrize("name", SETS)
def test_data_set_when_loaded_keeps_its_ranges_and_is_split_over_all_sites(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fresh_data._population", lambda name: np.zeros(1))
    try:
        data = load(name, seed=1)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert np.all((data.ranges[:, 0] <= data.x) & (data.x <= data.ranges[:, 1]))
    assert data.response[0] <= data.y.min() < data.y.max() <= data.response[1]
    # digits have pixels that are never used
    assert np.mean(data.x.std(axis=0) > 0) > 0.9
    assert sum(map(len, data.parts)) == len(data.y)
    assert len(data.parts) == len(SITES)
    low, high = data.table_ranges
    assert data.rows.shape[1] == len(data.table_columns) == len(low) == len(high)


def test_made_up_set_when_drawn_twice_is_equal_for_equal_seeds_alone() -> None:
    first, again, other = (POPULATIONS["clinic"].table("clinic", seed) for seed in (1, 1, 2))
    assert np.array_equal(first.x, again.x)
    assert np.array_equal(first.site, again.site)
    assert not np.array_equal(first.x, other.x)


def test_maximum_likelihood_of_a_drawn_set_agrees_with_its_slopes() -> None:
    data = POPULATIONS["exposures"].table("exposures", 0, 40_000)
    found = maximum_likelihood("poisson", data.x, data.y, data.offset)
    assert found[:-1] == pytest.approx([0.5, -0.4, 0.3, 0.0, 0.2, 0.0], abs=0.02)
