"""The calculator: noise to epsilon and back, against the closed forms of the README's table."""

from __future__ import annotations

from typing import Any

import pytest

from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.kernel.calculator import account
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.view import Coalition

SETTING: dict[str, Any] = {"sensitivity": 1.5, "delta": 1e-5}
RATIO = 100.0  # of zero-sum and pairwise


@pytest.mark.parametrize(("sites", "colluders"), [(4, 1), (10, 3), (3, 0)])
@pytest.mark.parametrize(
    "name", ["pooled", "secure-sum", "zero-sum", "pairwise", "cape-helper", "cape-published", "local"]
)
def test_the_variance_against_pooled(name: str, sites: int, colluders: int) -> None:
    S, H = sites, sites - colluders
    expected = {
        "pooled": 1.0,
        "secure-sum": S / H,
        "zero-sum": S / H + S * (1 - 1 / H) / (1 + RATIO**2),
        "pairwise": S / H + S * (1 - 1 / H) / (1 + RATIO**2),
        "cape-helper": S / H + (1 - 1 / H) * S / (S + 1),
        "cape-published": S / H + (1 - 1 / H) * S / (S + 1),
        "local": float(S),
    }[name]
    cost = account(Scheme(name), sites=S, coalition=Coalition(colluders), epsilon=1.0, **SETTING)
    assert cost.epsilon == pytest.approx(1.0, rel=1e-6)
    assert cost.variance_ratio == pytest.approx(expected, rel=1e-6)
    pooled = SETTING["sensitivity"] / accountant.mu_for(1.0, SETTING["delta"])
    assert cost.noise_std == pytest.approx(pooled * expected**0.5, rel=1e-6)


@pytest.mark.parametrize(
    "name", ["pooled", "secure-sum", "zero-sum", "pairwise", "cape-helper", "cape-published", "local"]
)
def test_from_epsilon_to_noise_and_back(name: str) -> None:
    there = account(Scheme(name), sites=5, coalition=Coalition(1), epsilon=0.7, **SETTING)
    noise = there.noise.get("tau", there.noise.get("sigma_g"))
    back = account(Scheme(name), sites=5, coalition=Coalition(1), tau=noise, **SETTING)
    assert back.epsilon == pytest.approx(0.7, rel=1e-6)
    assert back.noise == pytest.approx(there.noise)


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("local", {"sensitivity": 0.0}, "sensitivity"),
        ("local", {"tau": 0.0}, "noise"),
        ("local", {"epsilon": 1.0}, "epsilon"),
        ("local", {"tau": None}, "epsilon"),
        ("local", {"delta": 1.0}, "delta"),
        ("non-private", {}, "non-private"),
    ],
)
def test_account_bad_parameter_is_refused(name: str, change: dict[str, Any], named: str) -> None:
    given = {"sites": 3, "coalition": Coalition(0), "tau": 1.0, **SETTING, **change}
    with pytest.raises(BadParameter, match=named):
        account(Scheme(name), **given)
