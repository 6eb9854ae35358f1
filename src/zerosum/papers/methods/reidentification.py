"""Attacks on published records: whose is this one, and what did it look like?

**Public or synthetic data only**, as in all of `zerosum.papers`.

The attacker is the server with one colluding site. In Data Collaboration the colluder tells the anchors, so that the
server has inputs and outputs of every site's map and fits the map by least squares: nothing is left of its being
secret. What is published under noise of a known law is attacked with that law.

* `linked`: how often the record that lies nearest to what was published, of all candidates mapped alike, is the right
  one. Chance is one over the candidates.
* `told_apart`: how often a record that was in the data looks more like it than one that was not. Chance is one half.
* `left_over`: of the variance of records, the share that is left when each is guessed by the best linear guess from
  what was published, which the attacker learns on records of its own. 1 is what guessing the mean gives.

Tested in tests/papers/methods/test_reidentification.py.
"""

from __future__ import annotations

import numpy as np

from zerosum.arrays import Floats
from zerosum.papers.methods.collaboration import Reduction

_BLOCK = 500


def fitted_map(anchors: Floats, mapped: Floats) -> Reduction:
    """A site's affine map, from anchors that a colluder tells and what the site made of them."""
    design = np.column_stack([anchors, np.ones(len(anchors))])
    found: Floats = np.asarray(np.linalg.lstsq(design, mapped, rcond=None)[0], dtype=np.float64)
    components, constant = found[:-1], found[-1]
    center: Floats = np.asarray(-constant @ np.linalg.pinv(components), dtype=np.float64)
    return Reduction(center, components)


def linked(published: Floats, candidates: Floats) -> float:
    """The share of published rows whose nearest candidate is their own; both in the same order and space."""
    hits = 0
    for first in range(0, len(published), _BLOCK):
        part = published[first : first + _BLOCK]
        nearest = np.argmin(_distances(part, candidates), axis=1)
        hits += int(np.sum(nearest == np.arange(first, first + len(part))))
    return hits / len(published)


def told_apart(published: Floats, members: Floats, others: Floats) -> float:
    """How often a member is nearer to its nearest published row than one of the others is; ties count half."""
    near = [np.min(_distances(each, published), axis=1) for each in (members, others)]
    return pairs_won(-near[0], -near[1])


def pairs_won(members: Floats, others: Floats) -> float:
    """How often a member has the higher score of a pair; ties count half.

    >>> pairs_won(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    above = members[:, None] > others[None, :]
    return float(np.mean(above + 0.5 * (members[:, None] == others[None, :])))


def left_over(published: Floats, originals: Floats, simulated: Floats, reference: Floats) -> float:
    """The share of the originals' variance that a linear guess leaves. It is learned on `reference` records of the
    attacker's own and `simulated`, what would have been published of them."""
    design = np.column_stack([simulated, np.ones(len(simulated))])
    guess = np.linalg.lstsq(design, reference, rcond=None)[0]
    found = np.column_stack([published, np.ones(len(published))]) @ guess
    return float(np.sum((found - originals) ** 2) / np.sum((originals - originals.mean(axis=0)) ** 2))


def _distances(rows: Floats, others: Floats) -> Floats:
    """Squared distances, up to rounding."""
    squares = np.sum(rows**2, axis=1)[:, None] + np.sum(others**2, axis=1)[None, :]
    return np.asarray(squares - 2 * rows @ others.T)
