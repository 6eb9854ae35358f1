"""Frozen PyTorch modules as features (make test-torch)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.statistics import build as statistic
from zerosum.statistics.features import build
from zerosum.statistics.module_registry import register_module

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

SETTINGS = {"kind": "module", "module": "frozen, of tests", "shape": [1, 8, 8], "outputs": 8, "highest": 1.0}


@register_module("frozen, of tests")
def frozen(together: bool = False) -> Any:
    nn = torch.nn

    class Centred(nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
        def forward(self, x: Any) -> Any:
            return x - x.mean(0, keepdim=True)

    layers = [nn.Conv2d(1, 4, 3, 2), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 8)]
    made = nn.Sequential(*layers, *([Centred()] if together else []))
    return made.requires_grad_(False)


def test_module_features_of_row_are_independent_of_others() -> None:
    made = build(SETTINGS)
    rows = np.random.default_rng(0).random((100, 64))
    whole = made(rows)
    assert whole.shape == (100, 8)
    for at in (0, 5, 63, 64, 99):
        assert np.array_equal(made(rows[at : at + 1])[0], whole[at])
    assert np.array_equal(build(SETTINGS)(rows), whole)
    assert not np.array_equal(build({**SETTINGS, "seed": 1})(rows), whole)


def test_module_features_of_coupled_module_go_row_by_row() -> None:
    made = build({**SETTINGS, "settings": {"together": True}})
    rows = np.random.default_rng(1).random((70, 64))
    assert made._together == 1  # type: ignore[attr-defined]
    assert np.array_equal(made(rows)[3], made(rows[3:4])[0])


def test_module_features_bad_setting_is_refused_before_rows_are_used() -> None:
    for change, named in (
        ({"outputs": 9}, "9"),
        ({"module": "unheard of"}, "unheard"),
        ({"shape": [3, 8, 8]}, "shape"),
        ({"settings": {"nothing": 1}}, "nothing"),
    ):
        made = {**SETTINGS, **change}
        columns = int(np.prod(made["shape"])) + 1  # type: ignore[call-overload]
        with pytest.raises(BadParameter, match=named):
            statistic("feature_moments", {"columns": columns, "features": made}).check(Units(np.zeros((3, columns))))
