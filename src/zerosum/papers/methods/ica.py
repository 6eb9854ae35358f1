"""Temporal ICA as published, for comparison: capeDJICA (Imtiaz et al. 2019) and DP-djICA (Imtiaz et al. 2016).

**Public or synthetic data only.** These are plain NumPy functions: the noise comes from a seeded generator, and no
ledger is charged. A site is an array (N_s, R) with one time point per row, all its people in sequence. The reduction to
R columns is in `zerosum.papers.methods.reduction`, the costs are in `zerosum.papers.methods.ica_costs`.

Symbols of the papers: W unmixing matrix (R x R), b bias, z = W x + b, y = 1 - 2 g(z) = -tanh(z/2) with the sigmoid g, G
and h the gradients of the infomax objective log abs(det W) + mean of sum log g'(z):

    G = mean over time points of (I + y z') W        h = mean of y         W <- W + rho G,  b <- b + rho h

Each time point is clipped at B_G = 30 in Frobenius norm (h at B_h = sqrt(B_G)). (I + y z') is the relative gradient at
(W, b). The update of b leaves out its part in b. This changes the path but not the limit, where h = 0.

Choices where the papers are incomplete:
- "Check upper bound and perform learning rate adjustment": the rule is not given. When an entry of W exceeds
  `Settings.upper_bound`, the run starts again from W = I with half the step. Annealing at changes of direction, as in
  infomax programs, is optional (`Settings.anneal`); under noise it soon stops the progress.
- DP-djICA prints G without dividing by the number of time points, and I where N I belongs. At its step this diverges in
  the first round. The mean is taken, as in capeDJICA.
- DP-djICA calls the reduced data whitened, but neither paper's reduction whitens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter
from zerosum.kernel import amounts

Reals = NDArray[np.floating[Any]]
OnRound = Callable[[int, Floats], None]

CLIP = 30.0  # B_G, clip of the gradient of a time point
ROUND_DELTA = 1e-2  # delta of one round (capeDJICA, section V); the total has another delta
_BLOCK = 4096  # time points per block, so that a block fits in the cache


@dataclass(frozen=True)
class Settings:
    """Settings of a run; the defaults are those of the papers."""

    rounds: int = 1000
    step: float | None = None  # None: 0.015/log R
    tolerance: float = 1e-6  # stop when the squared spectral norm of a change of W is below
    upper_bound: float = 1e8
    anneal: float = 1.0  # factor of the step when two consecutive changes differ by more than 60 degrees

    clip: float = CLIP  # clip of a time point's G in Frobenius norm; of its h, the square root
    delta: float = ROUND_DELTA  # delta of one round

    def first_step(self, R: int) -> float:
        """Initial step for R components."""
        return 0.015 / math.log(R) if self.step is None else self.step


# The papers' settings.
PAPERS = Settings()


@dataclass(frozen=True)
class Unmixed:
    """Result of a run. `rounds` is the number of rounds to account for."""

    W: Floats
    b: Floats
    rounds: int


def _quiet(rounds: int, W: Floats) -> None:
    """Observer without effect."""
    return None


# ---- gradients ------------------------------------------------------------------------------------------------------


def gradient(rows: Reals, W: Floats, b: Floats, clip: float = math.inf) -> Floats:
    """[G h], shape (R, R + 1): mean over time points of their clipped gradients.

    No R x R matrix per time point is needed: norm((I + y z') W)^2 = norm(W)^2 + 2 y'Qz + norm(y)^2 z'Qz with Q = W W'.

    Parameters
    ----------
    rows : array of shape (n, R)
        Time points.
    W, b : arrays of shape (R, R) and (R,)
        Unmixing matrix and bias.
    clip : float
        B_G; infinite for no clipping.
    """
    R, kind = len(W), rows.dtype
    W_, b_, Q, own = W.astype(kind), b.astype(kind), (W @ W.T).astype(kind), float(np.sum(W * W))
    bias_clip = math.sqrt(clip)
    outer, kept, h = np.zeros((R, R)), 0.0, np.zeros(R)
    for start in range(0, len(rows), _BLOCK):
        z = rows[start : start + _BLOCK] @ W_.T + b_
        y = np.tanh(z * kind.type(-0.5))
        if math.isinf(clip):
            kept += len(z)
            h += y.sum(axis=0)
        else:
            Qz, size = z @ Q, np.einsum("ni,ni->n", y, y)
            squared = own + 2 * np.einsum("ni,ni->n", y, Qz) + size * np.einsum("ni,ni->n", z, Qz)
            factor = clip / np.maximum(clip, np.sqrt(np.maximum(squared, 0)))
            kept += float(factor.sum())
            h += y.T @ (bias_clip / np.maximum(bias_clip, np.sqrt(size)))
            y *= factor[:, None].astype(kind)
        outer += y.T @ z
    return np.column_stack([kept * W + outer @ W, h]) / len(rows)


# ---- messages: (S, R, R + 1) and a noise scale (R + 1,) to (S, R, R + 1) --------------------------------------------


def cape_messages(messages: Floats, tau: Floats, rng: np.random.Generator) -> Floats:
    """Messages of all sites under CAPE (capeDJICA, Algorithm 2): cancelling noise, and own noise of variance
    tau^2/S."""
    draws = tau * rng.standard_normal(messages.shape)
    own = tau / math.sqrt(len(messages)) * rng.standard_normal(messages.shape)
    return np.asarray(messages + (draws - draws.mean(axis=0)) + own)


def conv_messages(messages: Floats, tau: Floats, rng: np.random.Generator) -> Floats:
    """Messages of all sites with independent noise."""
    return np.asarray(messages + tau * rng.standard_normal(messages.shape))


def published_tau(epsilon: float, people: int, delta: float = ROUND_DELTA, clip: float = CLIP) -> tuple[float, float]:
    """tau_G and tau_h of one round (capeDJICA, equation 3): sensitivities 2 B/people, of a site or of all sites pooled.

    The sensitivity is that of a person. All its time points may change, each is clipped, and the mean is over people
    times time points.

    >>> [round(tau, 5) for tau in published_tau(1.0, 256)]
    [0.72832, 0.13297]
    """
    amounts.check_epsilon(epsilon)
    amounts.check_delta(delta)
    if people < 1:
        raise BadParameter(f"a method needs at least one person, got {people}")
    factor = 2 * math.sqrt(2 * math.log(1.25 / delta)) / (epsilon * people)
    return factor * clip, factor * math.sqrt(clip)


# ---- the iteration --------------------------------------------------------------------------------------------------


def infomax(R: int, ascent: Callable[[Floats, Floats], Floats], settings: Settings, on_round: OnRound) -> Unmixed:
    """Gradient ascent from W = I and b = 0. `ascent(W, b)` gives [G h]."""
    W, b, step = np.eye(R), np.zeros(R), settings.first_step(R)
    before: Floats | None = None
    for done in range(1, settings.rounds + 1):
        change = step * ascent(W, b)
        # The restart rule for divergence; see the module docstring.
        if not np.all(np.isfinite(change)) or np.max(np.abs(W + change[:, :R])) > settings.upper_bound:
            W, b, step, before = np.eye(R), np.zeros(R), step / 2, None
            on_round(done, W)
            continue
        W, b = W + change[:, :R], b + change[:, R]
        on_round(done, W)
        if float(np.linalg.norm(change[:, :R], 2)) ** 2 < settings.tolerance:
            return Unmixed(W, b, done)
        if before is not None and _apart(before, change) > math.pi / 3:
            step *= settings.anneal
        before = change
    return Unmixed(W, b, settings.rounds)


def _apart(first: Floats, second: Floats) -> float:
    """Angle between two changes, in radians."""
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return math.acos(max(-1.0, min(1.0, float(np.sum(first * second)) / norms))) if norms > 0 else 0.0


class Method(Protocol):
    """Signature of the entries of `METHODS`: `people` at each site, `epsilon` of one round at `settings.delta`."""

    def __call__(
        self,
        sites: Sequence[Reals],
        people: int,
        epsilon: float,
        rng: np.random.Generator,
        settings: Settings = PAPERS,
        on_round: OnRound = _quiet,
    ) -> Unmixed: ...


def djica(
    sites: Sequence[Reals],
    people: int = 0,
    epsilon: float = math.inf,
    rng: np.random.Generator | None = None,
    settings: Settings = PAPERS,
    on_round: OnRound = _quiet,
) -> Unmixed:
    """Decentralised joint ICA without noise, equal to infomax on all rows together."""
    R = _columns(sites)
    counts = np.array([len(rows) for rows in sites], dtype=np.float64)

    def ascent(W: Floats, b: Floats) -> Floats:
        return np.asarray(np.average([gradient(rows, W, b, settings.clip) for rows in sites], axis=0, weights=counts))

    return infomax(R, ascent, settings, on_round)


def cape_djica(
    sites: Sequence[Reals],
    people: int,
    epsilon: float,
    rng: np.random.Generator,
    settings: Settings = PAPERS,
    on_round: OnRound = _quiet,
) -> Unmixed:
    """capeDJICA: appendix K, Algorithm 4; sites of equal size."""
    tau = _scale(_columns(sites), published_tau(epsilon, people, settings.delta, settings.clip))
    return _noisy(sites, lambda sent: cape_messages(sent, tau, rng), settings, on_round)


def conv(
    sites: Sequence[Reals],
    people: int,
    epsilon: float,
    rng: np.random.Generator,
    settings: Settings = PAPERS,
    on_round: OnRound = _quiet,
) -> Unmixed:
    """The same with noise that does not cancel: every site protects its own gradient."""
    tau = _scale(_columns(sites), published_tau(epsilon, people, settings.delta, settings.clip))
    return _noisy(sites, lambda sent: conv_messages(sent, tau, rng), settings, on_round)


def pooled_dp(
    sites: Sequence[Reals],
    people: int,
    epsilon: float,
    rng: np.random.Generator,
    settings: Settings = PAPERS,
    on_round: OnRound = _quiet,
) -> Unmixed:
    """A trusted coordinator holds all rows and adds noise once per round."""
    tau = _scale(_columns(sites), published_tau(epsilon, people * len(sites), settings.delta, settings.clip))
    return _noisy(sites, lambda sent: conv_messages(sent.mean(axis=0)[None], tau, rng), settings, on_round)


def single_site(
    sites: Sequence[Reals],
    people: int,
    epsilon: float,
    rng: np.random.Generator,
    settings: Settings = PAPERS,
    on_round: OnRound = _quiet,
) -> Unmixed:
    """The papers' local DP-ICA: the first site alone."""
    return conv(sites[:1], people, epsilon, rng, settings, on_round)


def dp_djica(
    sites: Sequence[Reals],
    people: int,
    epsilon: float,
    rng: np.random.Generator,
    settings: Settings = PAPERS,
    on_round: OnRound = _quiet,
    ambient: int | None = None,
) -> Unmixed:
    """DP-djICA, Algorithm 3: Laplace noise norm(W)_1/epsilon on every entry of z in every round.

    **Not private as a whole**: see `zerosum.papers.methods.reduction.NOT_PRIVATE`. The iteration alone protects a time
    point, not a person, and only for rows of norm at most 1/(2 sqrt(D)), with D columns before reduction (`ambient`;
    default R). The rows are divided by the largest norm of all sites, which is not private; W unmixes the divided rows.
    There is no delta and no clip.
    """
    R = _columns(sites)
    bound = 1 / (2 * math.sqrt(R if ambient is None else ambient))
    largest = max(float(np.sqrt(np.max(np.einsum("ni,ni->n", rows, rows)))) for rows in sites)
    if not largest > 0:
        raise BadData("all rows are zero")
    total = sum(len(rows) for rows in sites)
    amounts.check_epsilon(epsilon)

    def ascent(W: Floats, b: Floats) -> Floats:
        spread = float(np.linalg.norm(W, 1)) / epsilon
        outer, h = np.zeros((R, R)), np.zeros(R)
        for rows in sites:
            for start in range(0, len(rows), _BLOCK):
                z = rows[start : start + _BLOCK] @ (bound / largest * W.T) + b
                z += rng.laplace(0.0, spread, z.shape)
                y = -np.tanh(z / 2)
                outer += y.T @ z
                h += y.sum(axis=0)
        return np.column_stack([W + outer @ W / total, h / total])

    return infomax(R, ascent, settings, on_round)


# All methods, by their names in tables.
METHODS: dict[str, Method] = {
    "non-private": djica,
    "cape-djica": cape_djica,
    "conv": conv,
    "pooled": pooled_dp,
    "single-site": single_site,
    "dp-djica": dp_djica,
}


def _noisy(
    sites: Sequence[Reals], perturb: Callable[[Floats], Floats], settings: Settings, on_round: OnRound
) -> Unmixed:
    """Infomax with noisy messages. `perturb` maps the gradients of all sites (S, R, R + 1) to the messages."""

    def ascent(W: Floats, b: Floats) -> Floats:
        return np.asarray(perturb(np.array([gradient(rows, W, b, settings.clip) for rows in sites])).mean(axis=0))

    return infomax(_columns(sites), ascent, settings, on_round)


def _scale(R: int, tau: tuple[float, float]) -> Floats:
    """Noise of each column of [G h], shape (R + 1,)."""
    return np.array([*[tau[0]] * R, tau[1]])


def _columns(sites: Sequence[Reals]) -> int:
    """Number of columns. Raises `BadData` for empty or inconsistent sites."""
    if not sites or any(rows.ndim != 2 or len(rows) == 0 for rows in sites):
        raise BadData("every site must have rows, one time point each")
    columns = {rows.shape[1] for rows in sites}
    if len(columns) > 1 or max(columns) < 2:
        raise BadData(f"all sites must have the same columns, at least two, got {sorted(columns)}")
    return int(columns.pop())
