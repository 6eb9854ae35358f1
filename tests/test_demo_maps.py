"""The maps at the end of the demo."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zerosum import demo_maps
from zerosum.algorithms.metrics import matched
from zerosum.papers.methods import ica_costs


@pytest.fixture(scope="module")
def played() -> demo_maps.Maps:
    steps: list[tuple[int, int]] = []
    found = demo_maps.play(40, lambda *step: steps.append(step))
    assert steps == [(done, 4) for done in range(5)]
    return found


def test_demo_maps_every_method_states_exact_epsilon(played: demo_maps.Maps) -> None:
    opened, ours, alone, cape = played.lines
    assert opened.epsilon is None
    for line in (ours, alone):
        assert line.epsilon == pytest.approx(demo_maps.EPSILON)
        assert line.with_reduction == line.epsilon
    claimed = ica_costs.exact_epsilon("cape-djica", 1000, demo_maps.CAPE_EPSILON, sites=4, colluders=1)
    assert cape.epsilon == pytest.approx(claimed)
    assert cape.with_reduction is not None
    assert cape.with_reduction > 1000
    record = played.as_record()
    assert record["people"] == 160
    assert [line["method"] for line in record["methods"]] == [line.method for line in played.lines]


def test_demo_maps_have_order_and_sign_of_truth(played: demo_maps.Maps) -> None:
    for line, maps in zip(played.lines, played.found, strict=True):
        pairs = matched(maps, played.truth)
        assert pairs.order.tolist() == list(range(len(maps)))
        assert np.all(pairs.signs == 1)
        assert float(np.mean(pairs.correlations)) == pytest.approx(line.correlation)
        assert np.allclose(np.max(np.abs(maps), axis=1), 1)
    assert played.lines[0].correlation > 0.97


def test_demo_maps_picture_is_small(played: demo_maps.Maps, tmp_path: Path) -> None:
    path = tmp_path / "new" / "maps.png"
    demo_maps.draw(played, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < 400_000
