"""What public people say about a study before it runs: directions, their differences from the templates, and a clip.

With public people i = 1, ..., n and E_i their differences from the templates by dual regression (R x V, zero in the
templates' span; `zerosum.statistics.dual_regression`):

    Q (V x K)     orthonormal, orthogonal to the templates, in falling order of the people's mean second moment
    G (R x K)     mean over i of E_i Q, and v (R x K) its variance over people
    w (R x d)     v^(-1/4) over a constant, so that the mean of norm(w (E_i Q - G))^2 is 1. These weights minimise the
                  noise: the noise of entry j over w_j, squared and summed, against the mean square of the norm
    c_d, k_d      median of norm(w (E_i Q - G)) over the first d directions, and the mean factor by which a clip at c_d
                  shrinks people

These are public facts about public people. No data of the study enter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from zerosum.algorithms.guided_ica.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.statistics.dual_regression import RIDGE
from zerosum.statistics.scatter import PerRecording, per_recording_rows


@dataclass(frozen=True, eq=False)
class PublicPeople:
    """Facts about public people.

    Parameters
    ----------
    basis : array of shape (V, K)
        Q.
    difference, spread : array of shape (R, K)
        G and v.
    sizes : array of shape (candidates, 3)
        d, c_d and k_d of each candidate.
    people : int
        n.
    """

    basis: Floats
    difference: Floats
    spread: Floats
    sizes: Floats
    people: int

    @classmethod
    def of(cls, units: Units, templates: Floats, per_recording: PerRecording = "standardise") -> PublicPeople:
        """Facts about public people, each with the recordings of one unit.

        Parameters
        ----------
        units : Units
            The public people. They must not be people of the study.
        templates : array of shape (R, V)
            The public maps.
        per_recording : {"none", "center", "standardise"}
            As in the study.
        """

        from scipy.linalg import solve  # slow import, so it is left until it is needed

        M = np.asarray(templates, dtype=np.float64)
        if units.columns != M.shape[1]:
            raise BadData(f"public people have {units.columns} columns, the templates {M.shape[1]}")
        if len(units) < 4:
            raise BadData(f"public people must be at least 4, for a mean and a spread; there are {len(units)}")
        basis = _directions(units, M, per_recording)
        P = np.linalg.pinv(M)
        every = []
        for rows in _prepared(units, per_recording):
            courses = rows @ P
            own = courses.T @ courses
            own += np.eye(len(own)) * (np.trace(own) * RIDGE / len(own) or 1.0)
            every.append(solve(own, courses.T @ (rows @ basis), assume_a="pos"))
        E = np.array(every)
        mean, spread = E.mean(axis=0), np.maximum(E.var(axis=0, ddof=1), 1e-12)
        table = []
        for d in candidates(basis.shape[1]):
            norms = np.linalg.norm((E - mean)[:, :, :d] * weights_of(spread[:, :d]), axis=(1, 2))
            clip = float(np.median(norms))
            table.append((float(d), clip, float(np.minimum(1.0, clip / norms).mean())))
        return cls(basis, mean, spread, np.array(table), len(E))

    def parameters(self) -> dict[str, Floats | int]:
        """The parameters of `GuidedICAProgram` that these facts set."""
        return {
            "basis": self.basis,
            "public_difference": self.difference,
            "public_spread": self.spread,
            "public_sizes": self.sizes,
            "public_count": self.people,
        }


def candidates(most: int) -> list[int]:
    """Numbers of directions to choose from, at most `most`, which is one of them."""
    return [*(d for d in TUNING.candidates if d < most), most]


def weights_of(spread: Floats) -> Floats:
    """w of the module docstring for the variances of some directions, shape (R, d)."""
    w = spread**-0.25
    return np.asarray(w / np.sqrt(np.sum(w**2 * spread)))


def complement(templates: Floats, basis: Floats) -> Floats:
    """Orthonormal columns that span the part of a basis outside the templates' span, in the order of the basis.

    Parameters
    ----------
    templates : array of shape (R, V)
    basis : array of shape (V, K)
        Columns in the span of the templates and of earlier columns, up to 1e-8 of their norm, are dropped.
    """
    inside = np.linalg.qr(templates.T)[0]
    kept: list[Floats] = []
    for column in (basis / np.maximum(np.linalg.norm(basis, axis=0), 1e-300)).T:
        rest = column
        for _ in range(2):  # once more against rounding: twice is enough (Kahan)
            rest = rest - inside @ (inside.T @ rest)
            if kept:
                earlier = np.stack(kept, axis=1)
                rest = rest - earlier @ (earlier.T @ rest)
        if (norm := float(np.linalg.norm(rest))) > 1e-8:
            kept.append(rest / norm)
    return np.stack(kept, axis=1) if kept else np.zeros((templates.shape[1], 0))


def _prepared(units: Units, per_recording: PerRecording) -> Iterator[Floats]:
    """The rows of each person, prepared as in the study."""
    for recordings in units.recordings():
        own = [per_recording_rows(np.asarray(rows, dtype=np.float64), per_recording, np) for rows, _clock in recordings]
        yield np.concatenate(own)


def _directions(units: Units, templates: Floats, per_recording: PerRecording) -> Floats:
    """The public directions: the leading ones of the people's mean second moment outside the templates' span."""
    V, R = templates.shape[1], len(templates)
    most = min(V - R, TUNING.most_directions)
    if most < 1:
        raise BadData(f"{R} templates of {V} columns leave no direction in which maps could differ")
    inside = np.linalg.qr(templates.T)[0]
    square = TUNING.square_columns >= V
    # One pass of random projections finds the leading directions without a square matrix (Halko, Martinsson and Tropp,
    # SIAM Review 53, 2011); a public seed.
    start = np.eye(V) if square else np.random.default_rng(0).normal(size=(V, 2 * most))
    total = np.zeros((V, start.shape[1]))
    for rows in _prepared(units, per_recording):
        outside = rows - (rows @ inside) @ inside.T
        # Each person has the same weight, as in a release.
        total += outside.T @ (outside @ start) / max(float(np.sum(outside**2)), 1e-300)
    if square:
        vectors = np.linalg.eigh((total + total.T) / 2)[1][:, ::-1]
    else:
        vectors = np.linalg.svd(total, full_matrices=False)[0]
    return complement(templates, vectors[:, : min(most + R, vectors.shape[1])])[:, :most]
