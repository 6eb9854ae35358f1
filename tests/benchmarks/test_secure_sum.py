"""The benchmarks at tiny sizes: what they report, never how long anything took."""

from __future__ import annotations

import importlib
import json
import tracemalloc
from typing import Any

import numpy as np
import pytest

import secure_sum as bench
from zerosum.errors import BadParameter, CheckFailed
from zerosum.secagg import masks


def tiny_secagg(**changes: Any) -> bench.SecaggFigures:
    sizes: dict[str, Any] = {
        "sites": 4,
        "size": 5000,
        "repeats": 2,
        "memory_sites": (3, 5),
        "cost_sites": (3, 41),
        "cost_sizes": (10,),
    }
    return bench.bench_secagg(**(sizes | changes))


def sound(spread: bench.Spread) -> bool:
    return 0 < spread.lowest <= spread.median <= spread.highest


def test_secure_sum_benchmark_has_every_figure() -> None:
    steps: list[tuple[int, int]] = []
    found = tiny_secagg(on_step=lambda done, planned: steps.append((done, planned)))
    assert steps == [(done, 6) for done in range(1, 7)]
    each = found.masking
    assert (each.sites, each.size) == (4, 5000)
    assert each.threads == masks.THREADS
    assert all(map(sound, (each.cipher, each.add, each.mask, each.add_ratio, each.mask_ratio, each.work_ratio)))
    assert [(cost.sites, cost.size) for cost in found.costs] == [(3, 10), (41, 10)]
    for cost in found.costs:
        assert sound(cost.set_up)
        assert sound(cost.round)
        assert min(cost.set_up_coordinator, cost.round_coordinator) > 0
        assert cost.colluders + 2 * cost.dropouts < cost.sites
    assert json.loads(json.dumps(found.as_record()))["masking"]["add_ratio"]["median"] > 0
    rows = found.rows()
    assert len({name for name, _ in rows}) == len(rows) == 6 + 2 + 4 * 2
    assert all(isinstance(value, str) and value for _, value in rows)


def test_secure_sum_benchmark_coordinator_memory_does_not_grow_with_sites() -> None:
    """It holds the sum and the vector it is folding in, whatever the number of sites."""
    found = tiny_secagg(size=300_000, memory_sites=(3, 9))
    few, many = (line.vectors for line in found.memory)
    assert 2 <= few < 2.3
    assert abs(many - few) < 0.1
    assert not tracemalloc.is_tracing()


def test_secure_sum_benchmark_of_1000_sites_runs_only_if_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    cost = bench._cost(3, 10)

    def ask(sites: int, size: int) -> bench.Cost:
        asked.append((sites, size))
        return cost

    monkeypatch.setattr(bench, "_cost", ask)
    tiny_secagg(cost_sites=(3,))
    assert asked == [(3, 10)]
    tiny_secagg(cost_sites=(3,), large=True)
    assert asked == [(3, 10)] * 2 + [(1000, 10_000)]


def test_secure_sum_benchmark_wrong_sum_fails_check(monkeypatch: pytest.MonkeyPatch) -> None:
    true = masks.add

    def wrong(vector: masks.Ring, keys: list[tuple[bytes, bool]], *more: Any) -> None:
        true(vector + np.uint64(1), keys, *more or (vector,))

    monkeypatch.setattr(masks, "add", wrong)
    with pytest.raises(CheckFailed):
        bench._cost(3, 10)


def tiny_sampler(**changes: Any) -> bench.SamplerFigures:
    sizes: dict[str, Any] = {"sigmas": (2.0**10, 2.0**20), "draws": 2000, "opendp_draws": 20, "repeats": 3}
    return bench.bench_sampler(**(sizes | changes))


def test_sampler_benchmark_has_every_figure() -> None:
    steps: list[tuple[int, int]] = []
    found = tiny_sampler(on_step=lambda done, planned: steps.append((done, planned)))
    assert steps[-1] == (6, 6)
    assert steps == sorted(steps)
    assert [line.sigma for line in found.lines] == [2.0**10, 2.0**20]
    for line in found.lines:
        assert all(map(sound, (line.ours, line.numpy, line.ours_to_numpy)))
    assert json.loads(json.dumps(found.as_record()))["lines"][0]["ours"]["median"] > 0
    names = [name for name, _ in found.rows()]
    assert len(set(names)) == len(names)
    assert "2^10" in names[0]


def test_sampler_benchmark_with_opendp_compares() -> None:
    pytest.importorskip("opendp")
    for line in tiny_sampler().lines:
        assert line.opendp is not None
        assert line.opendp_to_ours is not None
        assert sound(line.opendp)
        assert sound(line.opendp_to_ours)


def test_sampler_benchmark_without_opendp_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", absent)
    found = tiny_sampler()
    assert all(line.opendp is None and line.opendp_to_ours is None for line in found.lines)
    assert sum("OpenDP" in name for name, _ in found.rows()) == len(found.lines)


def test_sampler_benchmark_without_repeats_is_refused() -> None:
    with pytest.raises(BadParameter, match="0"):
        tiny_sampler(repeats=0)
