"""The graph of masks: every pair of sites for few sites, a sparse ring of neighbours for many.

After Bell et al. 2020: sites stand on a circle in an order drawn from all sites' fresh keys, joined to the k/2 next
ones on either side. These neighbours and the site itself hold its shares, c colluders and l lost sites among them. As
for the whole roster a threshold t must satisfy c < t <= k + 1 - l and 2t > k + 1 + c.

Honest survivors fall apart only if two gaps of k/2 places hold only colluders, at most w in each, and sites declared
lost. A coordinator that lies about losses may place those L as it likes, so either k - min(2w, C) > L, or t >= k/2 + 2
+ w: then a site at the edge of a gap has too few holders left to be opened.

c, l and w are hypergeometric, and k is the smallest for which their bounds fail with probability at most 2^-80 in the
whole study. The probability is so small because colluders may advertise last, and draw keys until the circle suits
them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from zerosum.errors import BadParameter

FAILURE = 2.0**-80
# Below it the complete graph costs little, and its thresholds hold with certainty instead of with probability 1 -
# FAILURE.
COMPLETE = 40  # largest number of sites with a complete graph


@dataclass(frozen=True)
class Shape:
    """Number of neighbours of a site, and number of shares that open one of its secrets."""

    degree: int
    threshold: int


def check(sites: int, colluders: int, dropouts: int) -> None:
    """Refuse numbers for which no threshold is safe: a coordinator that lies about losses would gain by it.

    A threshold t with 2t > S + C and t <= S - L exists only if C + 2L < S.
    """
    if min(colluders, dropouts) < 0:
        raise BadParameter(f"colluders and dropouts must not be negative, got {colluders} and {dropouts}")
    if colluders + 2 * dropouts >= sites:
        raise BadParameter(
            f"{colluders} colluders and {dropouts} dropouts are too many for a secure sum over {sites} sites: "
            "colluders + 2 dropouts must be less than the number of sites"
        )


@lru_cache(maxsize=32)
def shape(sites: int, colluders: int, dropouts: int) -> Shape:
    """The sparsest safe graph for this number of sites.

    >>> shape(5, 1, 1)
    Shape(degree=4, threshold=4)
    """
    check(sites, colluders, dropouts)
    if sites > COMPLETE:
        # Even degrees, half of the neighbours on either side.
        for degree in range(8, sites - 1, 2):
            threshold = _sparse_threshold(sites, colluders, dropouts, degree)
            if threshold is not None:
                return Shape(degree, threshold)
    # The smallest t with 2t > S + C. `check` has made sure that it is at most S - L.
    return Shape(sites - 1, (sites + colluders) // 2 + 1)


def _sparse_threshold(sites: int, colluders: int, dropouts: int, degree: int) -> int | None:
    """The threshold for a ring of this degree; None if no threshold satisfies the conditions of the module's text."""
    # c of the module's text: the colluders among the holders of one site, who can contribute to both openings of a
    # secret.
    beside = _neighbour_bound(sites, colluders, degree)
    threshold = (degree + 1 + beside) // 2 + 1
    # w of the module's text. The degree alone is enough if the losses cannot fill two gaps; else the threshold must be
    # so high that the sites at the edge of a gap cannot be opened.
    in_a_gap = _neighbour_bound(sites, colluders, degree // 2)
    if degree - min(2 * in_a_gap, colluders) <= dropouts:
        threshold = max(threshold, degree // 2 + 2 + in_a_gap)
    # l of the module's text, seen from a lost site: the opening of its key must not need its own share.
    lost = 1 + _neighbour_bound(sites, dropouts - 1, degree) if dropouts else 0  # the site itself, and other holders
    return threshold if threshold <= degree + 1 - lost else None


def _neighbour_bound(sites: int, marked: int, places: int) -> int:
    """A bound on how many of the marked sites stand on `places` places beside a site. It fails with probability at most
    a third of FAILURE over the whole circle.
    """
    from scipy.stats import hypergeom

    # Union bound over the `sites` sites. `argmax` gives the first number whose upper tail is small enough; the other
    # sites - 1 places of the circle are equally likely.
    return int(np.argmax(hypergeom.sf(np.arange(places + 1), sites - 1, marked, places) <= FAILURE / 3 / sites))


def neighbours(sites: int, degree: int, seed: bytes) -> list[list[int]]:
    """Each site's neighbours in rising order."""
    if degree >= sites - 1:
        return [[t for t in range(sites) if t != s] for s in range(sites)]
    # Sorting by pseudo-random keys gives a uniform permutation that every site calculates alike.
    keys = [hashlib.sha256(seed + s.to_bytes(4)).digest() for s in range(sites)]
    circle = sorted(range(sites), key=lambda s: keys[s])
    place = {site: p for p, site in enumerate(circle)}
    reach = range(1, degree // 2 + 1)
    return [
        sorted({circle[(place[s] + side * step) % sites] for step in reach for side in (-1, 1)}) for s in range(sites)
    ]
