"""The benchmark of many sites at small sizes: what is computed is what is counted; never how long anything took."""

from __future__ import annotations

import pytest

import scale


@pytest.mark.parametrize(
    ("sites", "size", "rounds"), [(4, 20, 1), (6, 50, 3), pytest.param(42, 10, 2, marks=pytest.mark.slow)]
)
def test_scale_measured_counts_equal_computed_counts(sites: int, size: int, rounds: int) -> None:
    found, expected = scale.measured(sites, size, rounds), scale.computed(sites, size, rounds)
    assert found.neighbours == expected.neighbours
    for phase in scale.PHASES:
        counted, computed = found.phases[phase], expected.phases[phase]
        assert counted.messages == computed.messages
        assert counted.site_bytes == pytest.approx(computed.site_bytes, rel=0.02)
        assert counted.coordinator_bytes == pytest.approx(sites * counted.site_bytes)
        assert counted.site_seconds is not None
        assert counted.site_seconds > 0
        assert computed.site_seconds is None
