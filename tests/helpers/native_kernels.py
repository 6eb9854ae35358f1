"""The kernels in C that this processor runs, and NumPy in their place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.compute.backends import native
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.statistics.rounded_scatter import TARGET, RoundedScatter

Floats = NDArray[np.float64]
NUMPY = "numpy"


def kinds() -> list[str]:
    """Those that this processor can run."""
    found = []
    for kind in ("avx512-vnni", "avx2", "any") if native.present() else ():
        try:
            found.append(native.kind(kind))
        except ValueError:
            continue
    if found:
        native.kind(found[0])
    return found


KINDS = kinds()


def by_numpy(stat: BoundedStatistic, rows: Any) -> Floats:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_native", None)
        return np.asarray(stat.sum_block(Units(rows)))


def integers(stat: RoundedScatter, rows: Any) -> list[list[int]]:
    """The sum as it was added up: whole numbers, of which coordinates hold 1/2046^2."""
    matrix = coordinates.unpack(np.asarray(stat.sum_block(Units(rows))), stat.width) * TARGET**2
    numbers = np.rint(matrix)
    assert np.max(np.abs(matrix - numbers), initial=0.0) <= 1e-3  # division and square root of 2 round
    triangle = np.asarray(stat.exact_block(Units(rows)))
    assert np.array_equal(triangle, numbers[np.triu_indices(stat.width)])
    return [[int(each) for each in line] for line in numbers.tolist()]


def added(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    return [[a + b for a, b in zip(*lines, strict=True)] for lines in zip(one, other, strict=True)]


@np.errstate(all="ignore")
def drawn(count: int, columns: int, rng: np.random.Generator, *, odd: bool) -> Floats:
    """Rows of all sizes; with odd ones whose squares over- or underflow, that are zero, and that are not finite."""
    rows = rng.normal(size=(count, columns)) * 10.0 ** rng.integers(-3, 4)
    if odd:
        for size in (1e160, 1e-170, 1e308, 1e-320, 0.0):
            rows[rng.integers(count)] *= size
        rows[rng.integers(count), 0] = math.nan
        rows[rng.integers(count), -1] = -math.inf
    return rows
