"""Joint diagonalisation: the rotation that makes several symmetric matrices as diagonal as one rotation can.

Tested in tests/algorithms/test_spectral.py.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms.spectral import Looks, refined
from zerosum.arrays import Floats
from zerosum.kernel import coordinates

_REPEATS, _REPEATED_SWEEPS = 20, 40  # replays behind a stability, which need not end as close
_NESTED = 5  # replays that are played again, so often each


def joint_rotation(matrices: Floats, sweeps: int = 200) -> Floats:
    """The orthogonal Q (R x R) for which all Q' K Q are nearly diagonal, by Jacobi's rotations of pairs, of all at a
    time that have nothing in common.

    Cardoso and Souloumiac's angle for a pair minimises the sum of the squares of what is off the diagonal.

    >>> rng = np.random.default_rng(0)
    >>> Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    >>> K = np.stack([Q @ np.diag(rng.normal(size=4)) @ Q.T for _ in range(3)])
    >>> found = joint_rotation(K)
    >>> sorted(np.abs(found.T @ Q).max(axis=0).round(6).tolist())
    [1.0, 1.0, 1.0, 1.0]
    """
    K = np.array(matrices, dtype=np.float64)
    R = K.shape[1]
    Q = np.eye(R)
    for _ in range(sweeps):
        largest = 0.0
        for p, q in _disjoint(R):
            apart, across = K[:, p, p] - K[:, q, q], 2 * K[:, p, q]
            straight, bent = np.sum(apart**2 - across**2, axis=0), 2 * np.sum(apart * across, axis=0)
            angle = 0.5 * np.arctan2(bent, straight + np.hypot(straight, bent))
            largest = max(largest, float(np.max(np.abs(angle))))
            c, s = np.cos(angle), np.sin(angle)
            for turned in (K, K.transpose(0, 2, 1), Q):
                left, right = turned[..., p], turned[..., q]
                turned[..., p], turned[..., q] = c * left + s * right, c * right - s * left
        if largest < 1e-8:
            break
    return Q


@lru_cache(maxsize=8)
def _disjoint(order: int) -> tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]:
    """All pairs, in rounds in which everyone has at most one: the first stays, the others move round a table.

    >>> [list(zip(p.tolist(), q.tolist())) for p, q in _disjoint(3)]
    [[(1, 2)], [(0, 2)], [(0, 1)]]
    """
    even, found = order + order % 2, []
    for turn in range(even - 1):
        seats = np.concatenate([[0], 1 + (np.arange(even - 1) - turn) % (even - 1)])
        pairs = np.sort(np.stack([seats[: even // 2], seats[: even // 2 - 1 : -1]]), axis=0)
        found.append(pairs[:, pairs[1] < order])
    return tuple((pair[0], pair[1]) for pair in found if pair.size)


def separated(moments: Floats, noise: float, sweeps: int = 200) -> tuple[Floats, Floats, Floats]:
    """From noisy second moments by band: white coordinates, what undoes them, and the rotation (one source a row)."""
    white, back = refined(np.sum(moments, axis=0), noise * math.sqrt(len(moments)))
    return white, back, joint_rotation(white.T @ moments @ white, sweeps).T


def replayed(
    moments: Floats, noise: float, looks: Looks, rotation: Floats, back: Floats, columns: Floats, seed: int = 0
) -> Floats:
    """The expected correlation of each source's map with what it would be without noise, by playing noise again.

    `columns` (columns x directions) are all directions of the look, the wanted ones first. In a replay the wanted
    ones are mixed with the others as in one of the `looks`, and the others have the spectrum of one of the sources.
    What a replay of the bands alone says of itself is too much or too little by about as much as a replay of a
    replay is beside it (the bootstrap's correction of a bias), so all are less or more by that factor.
    """
    rng, R = np.random.default_rng(seed), len(rotation)
    if len(columns) == R:
        columns = np.concatenate([columns, -columns]) / math.sqrt(2)  # so that no map has a mean
    mixing = back @ rotation.T
    found, _ = _played(moments, noise, looks, mixing, columns, rng, _REPEATS)
    wanted = columns[:, :R] * np.mean(looks.roots, axis=0)
    first, again = _played(moments, noise, _exactly(moments, noise), mixing, wanted, rng, _REPEATS // 2)
    second = [
        np.mean(_played(seen, noise, _exactly(seen, noise), mixed, wanted, rng, _NESTED)[0])
        for seen, mixed in again[:_NESTED]
    ]
    return np.asarray(np.clip(found * np.mean(first) / max(float(np.mean(second)), 1e-300), 0.0, 1.0))


def _played(
    moments: Floats, noise: float, looks: Looks, mixing: Floats, columns: Floats, rng: np.random.Generator, repeats: int
) -> tuple[Floats, list[tuple[Floats, Floats]]]:
    """The mean correlation of each map with those of replays, and what was seen and found in these.

    Maps are compared in columns, as `matched` compares them (with as many columns as sources, by their cosine): strong
    directions count for more there than in white coordinates, and all maps have some of them. Noise makes spectra
    differ; before it is added once more, how far the bands are from one another is brought down to what noise does not
    explain.
    """
    from scipy.optimize import linear_sum_assignment  # heavy: loaded when it is used

    bands, R, _ = moments.shape
    whole = np.sum(moments, axis=0)
    alike = np.trace(moments, axis1=1, axis2=2)[:, None, None] / max(float(np.trace(whole)), noise) * whole
    by_noise = (bands - 1) * noise**2 * R * (R + 1) / 2
    explained = min(by_noise / max(float(np.sum((moments - alike) ** 2)), 1e-300), 1.0)
    clean = alike + math.sqrt(1 - explained) * (moments - alike)
    unmixing = np.linalg.inv(mixing)
    spectra = np.maximum(np.diagonal(unmixing @ clean @ unmixing.T, axis1=1, axis2=2), 0.0)
    spectra = spectra / np.maximum(np.sum(spectra, axis=0), 1e-300)
    stretch = np.sqrt(looks.values[:R] / np.maximum(np.diag(whole), noise))  # from these coordinates to directions
    clean = stretch[:, None] * clean * stretch
    maps = columns[:, :R] @ (stretch[:, None] * mixing)
    norms = np.linalg.norm(_centred(columns[:, :R] / np.sqrt(looks.inside) @ (stretch[:, None] * mixing)), axis=0)
    maps = _centred(maps) / np.maximum(norms, 1e-300)
    found, again = np.zeros((repeats, R)), []
    for i, draw in enumerate(found):
        vectors, root = looks.vectors[i % len(looks.vectors)], looks.roots[i % len(looks.roots)]
        own, others = vectors[:R], vectors[R:]
        other = spectra[:, rng.integers(R, size=len(others))] * looks.values[R:]
        seen = (own.T @ clean @ own + others.T @ (other[:, :, None] * others)) / (root[:, None] * root)
        total = float(np.trace(np.sum(seen, axis=0)))
        if total > 0:  # people are as loud in all coordinates
            seen *= max(float(np.trace(whole)), 0.0) / total
        seen += np.stack([coordinates.unpack(noise * rng.normal(size=R * (R + 1) // 2), R) for _ in seen])
        _white, undone, turned = separated(seen, noise, _REPEATED_SWEEPS)
        mixed = undone @ turned.T
        apart = _centred(columns @ (vectors @ (root[:, None] * mixed)))
        correlation = np.abs(maps.T @ apart) / np.maximum(np.linalg.norm(apart, axis=0), 1e-300)
        draw[:] = correlation[np.arange(R), linear_sum_assignment(-correlation)[1]]
        again.append((seen, mixed))
    return np.asarray(np.mean(found, axis=0)), again


def _exactly(moments: Floats, noise: float) -> Looks:
    return Looks.exact(np.maximum(np.diag(np.sum(moments, axis=0)), noise))


def _centred(maps: Floats) -> Floats:
    return np.asarray(maps - np.mean(maps, axis=0))
