"""Every statistic on a device that is not the host: no parameter stays behind, and nobody decides for others there.

array-api-strict's second device stands for a GPU where there is none. With one (`pytest -m gpu`), the same is asked of
PyTorch's tensors on it, through the fused kernels and without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import array_api_strict
import numpy as np
import pytest
from array_api_compat import device as device_of
from numpy.typing import NDArray

from statistic_cases import SMALL, WIDE, Case, with_holes
from zerosum.kernel import devices
from zerosum.kernel.devices import like, release, to_numpy
from zerosum.kernel.grid import BLOCK_ROWS, MAX_UNITS, rows_allowed, summation_slack
from zerosum.kernel.statistic import Adjacency, BoundedStatistic
from zerosum.kernel.units import Runs, Units
from zerosum.statistics import build, fused
from zerosum.statistics.rows import counts, gram

Floats = NDArray[np.float64]

OTHER = array_api_strict.Device("device1")
CASES = SMALL + WIDE
OFFSETS = np.array([0, 1, 5, 9, 13, 50, 87, 124, 125, 160, 200, 240])
# single precision in between, or Fourier transforms by another way
ROUNDING = {"rotation_score": 1e-5, "band_scatter": 1e-6, "module_gradient": 1e-6}


def name(case: Case) -> str:
    return f"{case[0]}-{case[1].get('clip', '')}"


def elsewhere(rows: Floats) -> Any:
    return array_api_strict.asarray(rows, device=OTHER)


def cuda(rows: Floats) -> Any:
    import torch  # type: ignore[import-not-found,unused-ignore]

    return torch.from_numpy(np.ascontiguousarray(rows)).cuda()


def has_gpu() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


gpu = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="PyTorch finds no GPU here")]


def draws(stat: BoundedStatistic, rng: np.random.Generator, count: int) -> Iterator[Floats]:
    """Numbers, and codes or counts."""
    yield with_holes(stat, rng.normal(size=(count, stat.columns)), rng)
    yield with_holes(stat, rng.integers(0, 4, (count, stat.columns)).astype(float), rng)


def apart(stat: BoundedStatistic, one: Floats, other: Floats, units: int) -> float:
    return float(np.linalg.norm(one - other)) / (stat.sensitivity(Adjacency.ADD_REMOVE) * units)


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("there", [pytest.param(elsewhere, id="strict"), pytest.param(cuda, id="cuda", marks=gpu)])
def test_a_device_gives_what_the_host_gives(
    case: Case, there: Callable[[Floats], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Records and people, some of them with several recordings; and no parameter stays on the host."""
    stat, rng = build(*case), np.random.default_rng(1)
    runs = Runs(np.sort(np.append(OFFSETS, [7, 60])), np.full(len(OFFSETS) + 1, 1.5))
    sizes = []
    for rows in draws(stat, rng, int(OFFSETS[-1])):
        for offsets, recordings in ((None, None), (OFFSETS, None), (OFFSETS, runs)):
            here = stat.total(Units(rows, offsets, recordings))
            found = stat.total(Units(there(rows), offsets, recordings))
            units = len(rows) if offsets is None else len(offsets) - 1
            assert apart(stat, here, found, units) <= ROUNDING.get(stat.name, 1e-10)
            sizes.append(float(np.linalg.norm(here)))
    assert max(sizes) > 0
    assert not caplog.records  # no block failed: that would count as units of zeros
