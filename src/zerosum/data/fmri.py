"""Synthetic multi-site fMRI as in the ICA papers: X = S A with time courses S and spatial maps A.

The time courses are independent, heavy-tailed GARCH(1,1) processes. The maps are smooth bumps on a square image. Mixed
data are large (1024 people with 250 volumes of 900 voxels have 1.8 GB), so only the sources are stored. The volumes of
a site are mixed on request, a few people at a time. The random numbers here are seeded data, not noise for privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from zerosum.arrays import Floats
from zerosum.errors import BadParameter

Reals = NDArray[np.floating[Any]]
Precision = type[np.float64] | type[np.float32]
Layout = Literal["even", "random", "overlapping"]

_AT_ONCE = 16  # people mixed in one block: 29 MB of volumes at the papers' sizes
_MAPS, _EFFECTS, _SOURCES, _SENSOR = range(4)  # second seed word, so that each use has independent draws


# ---- time courses ---------------------------------------------------------------------------------------------------


def garch_sources(
    people: int,
    components: int = 20,
    points: int = 250,
    *,
    rng: np.random.Generator,
    omega: float | Floats = 0.1,
    alpha: float | Floats = 0.3,
    beta: float | Floats = 0.6,
    burn_in: int = 100,
    dtype: Precision = np.float64,
) -> Reals:
    """Independent GARCH(1,1) time courses of variance 1, shape (people, points, components).

    x_t = sqrt(v_t) n_t with v_t = omega + alpha x_(t-1)^2 + beta v_(t-1) and standard normal n_t.

    Parameters
    ----------
    people, components, points : int
        Shape of the result.
    rng : Generator
        Source of the draws.
    omega, alpha, beta : float or array of shape (components,)
        Parameters of the process; omega > 0 and alpha + beta < 1.
    burn_in : int
        Steps that are discarded first.
    dtype : float64 or float32
        Precision of the result.

    >>> garch_sources(3, 2, 50, rng=np.random.default_rng(0)).shape
    (3, 50, 2)
    """
    if min(people, components, points) < 1 or burn_in < 0:
        raise BadParameter(
            "people, components and points must be at least 1 and burn_in at least 0, got "
            f"{people}, {components}, {points} and {burn_in}"
        )
    w, a, b = (np.broadcast_to(np.asarray(value, dtype=np.float64), components) for value in (omega, alpha, beta))
    if np.any(w <= 0) or np.any(a < 0) or np.any(b < 0) or np.any(a + b >= 1):
        raise BadParameter(
            "a GARCH source needs omega > 0, alpha and beta not negative and alpha + beta < 1, got "
            f"{omega}, {alpha} and {beta}"
        )
    level = w / (1 - a - b)  # stationary variance, divided out at the end
    sources = np.empty((people, points, components), dtype=dtype)
    # Starts at the stationary variance, so that the burn-in has to remove the dependence on the first value only.
    variance = np.broadcast_to(level, (people, components)).copy()
    value = np.sqrt(variance) * rng.standard_normal((people, components))
    for t in range(-burn_in, points):
        variance = w + a * value**2 + b * variance
        value = np.sqrt(variance) * rng.standard_normal((people, components))
        if t >= 0:
            sources[:, t] = value / np.sqrt(level)
    return sources


def garch_kurtosis(alpha: float, beta: float) -> float:
    """Kurtosis E x^4 / (E x^2)^2 of a GARCH(1,1) process; infinite if the fourth moment does not exist.

    At the default (0.3, 0.6) it is 57. The eighth moment is infinite there, so that sample kurtoses are usually much
    smaller.

    >>> round(garch_kurtosis(0.3, 0.6), 6), round(garch_kurtosis(0.1, 0.8), 4)
    (57.0, 3.3529)
    """
    # Bollerslev (1986): the fourth moment exists if 3 alpha^2 + 2 alpha beta + beta^2 < 1.
    left = 1 - beta**2 - 2 * alpha * beta - 3 * alpha**2
    return math.inf if left <= 0 else 3 * (1 + alpha + beta) * (1 - alpha - beta) / left


# ---- maps -----------------------------------------------------------------------------------------------------------


def smooth_maps(
    components: int = 20, side: int = 30, *, layout: Layout = "even", rng: np.random.Generator | None = None
) -> Floats:
    """Smooth spatial maps on a square image, shape (components, side * side).

    Layout "even" places equal bumps on a grid, well apart. "random" draws places and widths. "overlapping" places them
    in clusters, every third one with a negative lobe.

    >>> smooth_maps(20, 30).shape
    (20, 900)
    """
    if components < 1 or side < 2:
        raise BadParameter(f"maps need a component and an image of 2 x 2, got {components} and {side}")
    if layout == "even":
        return _grid_of_bumps(components, side)
    if layout not in ("random", "overlapping"):
        raise BadParameter(f"unknown layout {layout!r}; there are even, random, overlapping")
    if rng is None:
        raise BadParameter(f"the layout {layout!r} is drawn: give a generator")
    if layout == "random":
        places = rng.uniform(0.1 * side, 0.9 * side, (components, 2))
        widths = rng.uniform(0.05 * side, 0.12 * side, components)
        return np.array([_bump(place, width, side) for place, width in zip(places, widths, strict=True)])
    return _clusters(components, side, rng)


def _bump(place: Floats, width: float, side: int) -> Floats:
    """Gaussian bump at `place` (pixels) with standard deviation `width` (pixels), flattened."""
    across = np.arange(side) + 0.5
    rows = np.exp(-0.5 * ((across - place[0]) / width) ** 2)
    columns = np.exp(-0.5 * ((across - place[1]) / width) ** 2)
    return np.outer(rows, columns).ravel()


def _grid_of_bumps(components: int, side: int) -> Floats:
    """Equal bumps on a regular grid."""
    down = max(1, round(math.sqrt(components)))
    along = math.ceil(components / down)
    width = 0.25 * side / max(down, along)
    places = [((i + 0.5) * side / down, (j + 0.5) * side / along) for i in range(down) for j in range(along)]
    return np.array([_bump(np.array(place), width, side) for place in places[:components]])


def _clusters(components: int, side: int, rng: np.random.Generator) -> Floats:
    """Overlapping bumps in clusters of four. Widths, shifts and the lobe's factor of 0.7 were chosen by hand."""
    centres = _grid_places(max(1, math.ceil(components / 4)), side)
    maps = []
    for k in range(components):
        place = centres[k % len(centres)] + rng.uniform(-0.08, 0.08, 2) * side
        bump = _bump(place, rng.uniform(0.07, 0.12) * side, side)
        if k % 3 == 2:
            away = rng.uniform(0, 2 * math.pi)
            lobe = place + 0.25 * side * np.array([math.cos(away), math.sin(away)])
            bump = bump - 0.7 * _bump(lobe, rng.uniform(0.07, 0.12) * side, side)
        maps.append(bump)
    return np.array(maps)


def _grid_places(count: int, side: int) -> Floats:
    """Places on a regular grid, in pixels, at least `count` of them."""
    down = max(1, round(math.sqrt(count)))
    along = math.ceil(count / down)
    return np.array([((i + 0.5) * side / down, (j + 0.5) * side / along) for i in range(down) for j in range(along)])


# ---- multi-site study -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Brains:
    """Sources and maps of a synthetic study. Volumes are computed on request.

    Attributes
    ----------
    maps : array of shape (R, D)
        The maps that all sites share.
    site_maps : tuple of arrays of shape (R, D)
        The maps that each site mixes with; equal to `maps` without site effects.
    sources : tuple of arrays of shape (people, T, R)
        Time courses by site.
    noise : float
        Standard deviation of the sensor noise of one voxel.
    seed : int
        Seed of the sensor noise.
    """

    maps: Floats
    site_maps: tuple[Floats, ...] = field(repr=False)
    sources: tuple[Reals, ...] = field(repr=False)
    noise: float
    seed: int

    @property
    def sites(self) -> int:
        """Number of sites."""
        return len(self.sources)

    @property
    def people(self) -> tuple[int, ...]:
        """Number of people at each site."""
        return tuple(len(found) for found in self.sources)

    def observed(self, site: int, people: slice = slice(None), dtype: Precision = np.float64) -> Reals:
        """Volumes of some people of a site, shape (people, T, D). They do not depend on how people are divided into
        slices."""
        chosen = range(*people.indices(len(self.sources[site])))
        mixed: Reals = self.sources[site][people].astype(dtype, copy=False) @ self.site_maps[site].astype(dtype)
        if self.noise > 0:
            for volumes, person in zip(mixed, chosen, strict=True):
                # One generator per person, so that the noise does not depend on the slice.
                rng = np.random.default_rng([self.seed, _SENSOR, site, person])
                volumes += dtype(self.noise) * rng.standard_normal(volumes.shape, dtype=dtype)
        return mixed

    def blocks(self, site: int, dtype: Precision = np.float64) -> Iterator[Reals]:
        """All volumes of a site in blocks of shape (people * T, D)."""
        for start in range(0, len(self.sources[site]), _AT_ONCE):
            yield self.observed(site, slice(start, start + _AT_ONCE), dtype).reshape(-1, self.maps.shape[1])

    def second_moment(self, site: int) -> Floats:
        """Mean of x x' over the volumes of a site, shape (D, D)."""
        # Without noise A'(S'S/n)A needs no volumes, which is much faster.
        if self.noise == 0:
            flat = self.sources[site].reshape(-1, len(self.maps))
            return np.asarray(self.site_maps[site].T @ (flat.T @ flat / len(flat)) @ self.site_maps[site])
        total = np.sum([rows.T @ rows for rows in self.blocks(site)], axis=0)
        return np.asarray(total / (len(self.sources[site]) * self.sources[site].shape[1]))

    def largest_norm(self) -> float:
        """Largest norm of all volumes at all sites. The papers divide by it. It depends on the data, so this step is
        not private."""
        return max(float(np.max(np.linalg.norm(rows, axis=1))) for s in range(self.sites) for rows in self.blocks(s))

    def projected(self, site: int, basis: Floats) -> Floats:
        """Volumes of a site times a (D, K) matrix, shape (people * T, K), without storing the volumes."""
        if self.noise == 0:
            return np.asarray(self.sources[site].reshape(-1, len(self.maps)) @ (self.site_maps[site] @ basis))
        return np.concatenate([rows @ basis for rows in self.blocks(site)])


def make_fmri(
    people: int | Sequence[int] = 1024,
    sites: int = 4,
    components: int = 20,
    *,
    points: int = 250,
    side: int = 30,
    layout: Layout = "even",
    site_effects: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
    alpha: float | Floats = 0.3,
    beta: float | Floats = 0.6,
) -> Brains:
    """Generate a synthetic multi-site study.

    Parameters
    ----------
    people : int or sequence of int
        Number in all, divided as equally as possible over `sites`, or the number at each site.
    sites, components : int
        Number of sites and of components.
    points : int
        Volumes per person.
    side : int
        Pixels along one side of the image.
    layout : str
        Layout of the maps; see `smooth_maps`.
    site_effects : float
        Difference between sites: standard deviation of the log gain of a map, and norm of a smooth change of the map
        relative to the map.
    noise : float
        Sensor noise of a voxel, relative to the root mean square of the signal over all voxels.
    seed : int
        The same seed gives the same study.
    alpha, beta : float or array
        Parameters of the time courses; see `garch_sources`.

    Examples
    --------
    >>> study = make_fmri(10, sites=3, components=4, points=20, side=8, seed=1)
    >>> study.people, study.maps.shape, study.observed(0).shape
    ((4, 3, 3), (4, 64), (4, 20, 64))
    """
    sizes = [people // sites + (s < people % sites) for s in range(sites)] if isinstance(people, int) else list(people)
    if min(sizes, default=0) < 1:
        raise BadParameter(f"every site must have a person, got sizes {sizes}")
    if site_effects < 0 or noise < 0:
        raise BadParameter(f"site effects and noise must not be negative, got {site_effects:g} and {noise:g}")
    maps = smooth_maps(components, side, layout=layout, rng=np.random.default_rng([seed, _MAPS]))
    sources = tuple(
        garch_sources(size, components, points, rng=np.random.default_rng([seed, _SOURCES, s]), alpha=alpha, beta=beta)
        for s, size in enumerate(sizes)
    )
    own = tuple(
        _altered(maps, side, site_effects, np.random.default_rng([seed, _EFFECTS, s])) for s in range(len(sizes))
    )
    return Brains(maps, own, sources, noise * math.sqrt(float(np.mean(np.sum(maps**2, axis=0)))), seed)


def _altered(maps: Floats, side: int, strength: float, rng: np.random.Generator) -> Floats:
    """The maps of one site: gains and smooth changes of size `strength`."""
    if strength == 0:
        return maps
    # Log-normal gains stay positive, so that no map changes its sign.
    gains = np.exp(strength * rng.standard_normal(len(maps)))
    fields = rng.standard_normal((len(maps), side, side))
    smooth = gaussian_filter(fields, sigma=(0, side / 10, side / 10)).reshape(maps.shape)
    # The change has `strength` times the norm of the map.
    smooth *= strength * np.linalg.norm(maps, axis=1, keepdims=True) / np.linalg.norm(smooth, axis=1, keepdims=True)
    return np.asarray(gains[:, None] * (maps + smooth))
