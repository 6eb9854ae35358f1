"""The adversary that tests play: it knows what a coalition knows, sees what it sees, and does its best.

It is told nothing about the scheme. From half of the draws it learns how its view varies, takes the linear
discriminant, which is optimal for Gaussian views, and measures on the other half how well that separates two worlds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Z = 5.0  # half-width of the intervals in standard errors: a false alarm once in 1.7 million checks


def measured_mu(view: Floats, shift: Floats) -> tuple[float, float]:
    """The mu an attacker reaches, and its standard error.

    `view` (d, draws) holds independent copies of everything it sees when nothing changes; `shift` (d,) is how the
    neighbour moves it.
    """
    half = view.shape[1] // 2
    learn, test = view[:, :half], view[:, half:]
    direction = np.linalg.lstsq(np.atleast_2d(np.cov(learn)), shift, rcond=1e-13)[0]
    score = direction @ test
    mu = abs(float(direction @ shift)) / float(np.std(score))
    return mu, mu / math.sqrt(2 * test.shape[1])


def assert_not_exceeded(claimed: float, view: Floats, shift: Floats) -> float:
    """Fail if the attacker does better than the claim allows."""
    mu, error = measured_mu(view, shift)
    assert mu - Z * error <= claimed, f"an attacker reaches mu = {mu:.4f}, claimed was {claimed:.4f}"
    return mu


def assert_reached(claimed: float, view: Floats, shift: Floats) -> None:
    """Fail if the claim is not what the attacker reaches: neither too small nor pessimistic."""
    mu, error = measured_mu(view, shift)
    assert abs(mu - claimed) <= Z * error + 1e-3 * claimed, f"reached {mu:.4f}, claimed {claimed:.4f}"
