"""Synthetic populations with structure: independent components over time, topics of documents, classes.

No public range describes such structure. The simplest data with the structure are generated, from public facts only:
numbers of units, columns, components, words and classes, and the length of recordings and documents. The constants
below were chosen by hand; no benchmark recorded.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from zerosum.algorithms import (
    DataCollaborationProgram,
    FeatureClassifierProgram,
    ICAProgram,
    NeuralClassifierProgram,
    TopicsProgram,
)
from zerosum.arrays import Floats
from zerosum.compute.units import Runs, Units
from zerosum.data.fmri import garch_sources
from zerosum.forecast.assumptions import Assumptions
from zerosum.forecast.empirical_population import Population, refuse_columns

ROWS = 100  # default number of rows of a recording
_SENSOR = 0.25  # energy of the sensor noise, relative to that of all components
_SECONDS = 2.0  # s, default interval between volumes
_FIRST_LAG1, _LAST_LAG1 = 0.9, -0.3  # lag-1 autocorrelation of the first and last component
_LENGTH = 50  # default number of words of a document
_CONCENTRATION = 0.3  # concentration of the Dirichlet distribution of topics
_SEPARATION = 4.0  # default distance of neighbouring classes, in standard deviations
_HELD_OUT = 2000  # synthetic units held out for the evaluation of a classifier
_MAX_SPREAD = 0.25  # largest standard deviation within a class, in half ranges
_RANGE_STDS = 2.0  # distance between a class centre and the end of its range, in standard deviations
_WAVES = 24  # number of smooth patterns in synthetic images

Classifier = FeatureClassifierProgram | DataCollaborationProgram | NeuralClassifierProgram


class Recordings(Population):
    """Mixtures x = s A + noise of independent time courses s by maps A that all units share.

    The maps are orthonormal, in random directions, and equal in every sample. The time courses follow a GARCH process.
    If the study separates components by frequency, they are Gaussian autoregressive processes with different
    autocorrelations. The noise is white.
    """

    used_assumptions = frozenset({"rows"})

    def __init__(self, algorithm: ICAProgram, assumptions: Assumptions) -> None:
        refuse_columns(assumptions, "recordings are made up by their components")
        self.count, self.length = algorithm.n_components, assumptions.rows or ROWS
        rng = np.random.default_rng(0)
        # Orthonormal maps in random directions; within the public basis if the study has one.
        within = np.linalg.qr(rng.normal(size=(algorithm.width, self.count)))[0]
        maps = within if algorithm.basis is None else np.linalg.qr(algorithm.basis)[0] @ within
        self.maps: Floats = np.ascontiguousarray(maps.T)
        self.truth = self.maps
        # Total noise variance over all columns is _SENSOR times the number of components, each of which has variance 1.
        self.noise = math.sqrt(_SENSOR * self.count / len(algorithm.columns))
        self.by_frequency = algorithm.chosen == "second-order"
        high = algorithm.band[1] if algorithm.band is not None else 0.5 / (algorithm.seconds or _SECONDS)
        # The interval must resolve the upper end of the band (Nyquist frequency).
        self.seconds = algorithm.seconds or min(_SECONDS, 0.5 / high)
        self.band = algorithm.band if self.by_frequency else None
        courses = "normal, and forget at different rates" if self.by_frequency else "volatile (GARCH)"
        self.description = (
            f"recordings of {self.length} rows of {self.count} components of equal strength in directions chosen at "
            f"random, whose time courses are {courses}; one part of noise to {1 / _SENSOR:g} of components"
        )

    @property
    def numbers_each(self) -> int:
        """Rows times columns."""
        return self.length * int(self.maps.shape[1])

    def people(self, count: int, rng: np.random.Generator) -> Units:
        """One run per unit, all of the same length."""
        sources = self._courses(count, rng) if self.by_frequency else self._volatile(count, rng)
        rows = sources.reshape(-1, self.count) @ self.maps
        rows += self.noise * rng.standard_normal(rows.shape)
        begins = np.arange(count + 1, dtype=np.int64) * self.length
        return Units(rows, begins, Runs(begins, np.full(count, self.seconds)))

    def _volatile(self, count: int, rng: np.random.Generator) -> Floats:
        """GARCH time courses, shape (count, rows, components)."""
        return np.asarray(garch_sources(count, self.count, self.length, rng=rng), dtype=np.float64)

    def _courses(self, count: int, rng: np.random.Generator) -> Floats:
        """Gaussian AR(1) time courses with variance 1, shape (count, rows, components), limited to the band.

        Each course is drawn in the frequency domain with the AR(1) power spectrum 1 / |1 - a exp(-2 pi i f dt)|^2.
        """
        frequency = np.fft.rfftfreq(self.length, self.seconds)
        lag1 = np.linspace(_LAST_LAG1, _FIRST_LAG1, self.count)
        # exp(-2 pi i f dt), the transfer of one time step, shape (frequencies, 1).
        turn = np.exp(-2j * math.pi * frequency * self.seconds)[:, None]
        power = 1 / np.abs(1 - lag1 * turn) ** 2
        if self.band is not None:
            power *= ((frequency >= self.band[0]) & (frequency <= self.band[1]))[:, None]
        # No constant: recordings are centred.
        power[0] = 0.0
        shape = (count, *power.shape)
        waves = np.sqrt(power) * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
        courses = np.fft.irfft(waves, self.length, axis=1)
        # Standard deviation of the inverse transform: each frequency contributes 4 power / n^2 to the variance.
        expected = math.sqrt(2) * np.sqrt(2 * np.sum(power, axis=0)) / self.length
        return np.asarray(courses / np.where(expected > 0, expected, 1.0))


class Documents(Population):
    """Documents of one topic each. All topics are equally frequent, and their word probabilities come from a Dirichlet
    distribution. In large vocabularies words of higher index are rarer in all topics (Zipf)."""

    def __init__(self, algorithm: TopicsProgram, assumptions: Assumptions) -> None:
        refuse_columns(assumptions, "documents are made up by their topics")
        words, count = len(algorithm.columns), algorithm.n_components
        self.length = max(round(algorithm.length or _LENGTH), 1)
        topics = np.random.default_rng(0).dirichlet(np.full(words, _CONCENTRATION), count)
        many = algorithm.chosen == "pairs"
        if many:
            # Zipf's law: the frequency of a word is proportional to 1 / rank.
            topics = topics / np.arange(1.0, words + 1)
            topics /= np.sum(topics, axis=1, keepdims=True)
        self.truth = topics
        of = "; words that rank lower are rarer" if many else ""
        self.description = (
            f"documents of {self.length} words, one a person, each of one of {count} topics that a Dirichlet law "
            f"({_CONCENTRATION:g}) drew{of}"
        )

    @property
    def numbers_each(self) -> int:
        """Number of words of a document, an upper bound of its nonzero counts."""
        return self.length

    def people(self, count: int, rng: np.random.Generator) -> Units:
        """One document per unit, as sparse word counts of shape (count, n_words)."""
        assert self.truth is not None  # noqa: S101
        topics, words = self.truth.shape
        # Documents are sorted by topic so that words are drawn by topic in one call. The permutation below removes the
        # order.
        which = np.sort(rng.integers(topics, size=count))
        drawn = [
            rng.choice(words, size=self.length * int(np.sum(which == topic)), p=self.truth[topic])
            for topic in range(topics)
        ]
        document = np.repeat(np.arange(count), self.length)
        order = rng.permutation(count)[document]
        counts = csr_array((np.ones(len(order)), (order, np.concatenate(drawn))), shape=(count, words))
        counts.sum_duplicates()
        return Units(counts)


class Classes(Population):
    """Gaussian classes of equal size and spread. The nearest two are `separation` standard deviations apart. Images are
    sums of smooth patterns.

    `truth` holds further rows for evaluation: features, and the class in the last column.
    """

    used_assumptions = frozenset({"separation"})

    def __init__(self, algorithm: Classifier, assumptions: Assumptions) -> None:
        refuse_columns(assumptions, "classes are made up by how far they are apart")
        low, high, shape = _inputs(algorithm)
        self.middle, half = (low + high) / 2, (high - low) / 2
        self.classes, self.apart = len(algorithm.classes), assumptions.separation or _SEPARATION
        waves = _patterns(shape) if len(shape) > 1 and math.prod(shape[-2:]) > 1 else None
        dimensions = math.prod(shape) if waves is None else waves.shape[1]
        centers = _centers(self.classes, dimensions, self.apart)
        far = np.max(np.abs(centers if waves is None else centers @ waves.T))
        # Scaled so that the farthest centre plus _RANGE_STDS standard deviations stays within the range.
        width = min(_MAX_SPREAD, 1 / (float(far) + _RANGE_STDS))
        self.centers = centers
        self.mixing = np.diag(half * width) if waves is None else (half * width)[:, None] * waves
        self.low, self.high = low, high
        # Drawn once, with a seed of its own, so that all settings are judged by the same people.
        self.truth = np.asarray(self.people(_HELD_OUT, np.random.default_rng([18, 4])).rows)
        of = "" if waves is None else f" in images of {waves.shape[1]} smooth patterns"
        self.description = (
            f"{self.classes} normal classes of equal size{of}, neighbours {self.apart:g} standard deviations apart; "
            f"{_HELD_OUT} others of the same kind judge"
        )

    @property
    def numbers_each(self) -> int:
        """Features and the class."""
        return len(self.middle) + 1

    def people(self, count: int, rng: np.random.Generator) -> Units:
        """Rows of features, clipped to their ranges, and the class."""
        which = rng.integers(self.classes, size=count)
        inner = self.centers[which] + rng.standard_normal((count, self.centers.shape[1]))
        rows = np.clip(self.middle + inner @ self.mixing.T, self.low, self.high)
        return Units(np.column_stack([rows, which.astype(np.float64)]))


def _inputs(algorithm: Classifier) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Public lower and upper bounds of the inputs, shape (n_inputs,), and the shape of one row's inputs."""
    if isinstance(algorithm, NeuralClassifierProgram):
        assert algorithm.lower is not None and algorithm.upper is not None  # noqa: S101, PT018
        return algorithm.lower[:-1], algorithm.upper[:-1], algorithm.shape or (algorithm.features,)
    # Feature maps state the bounds of their inputs in one of two forms: by input, or one pair for all.
    features: Any = algorithm.feature_map
    count = features.inputs
    if hasattr(features, "lower"):
        return features.lower, features.upper, (count,)
    shape = features.shape if hasattr(features, "shape") else (features.height, features.width)
    return np.full(count, features.lowest), np.full(count, features.highest), tuple(shape)


def _centers(classes: int, dimensions: int, apart: float) -> Floats:
    """Class centres with mean 0, shape (classes, dimensions), whose smallest distance is `apart`.

    Chosen by farthest-point search among random candidates in the unit ball.
    """
    candidates = np.random.default_rng(0).uniform(-1, 1, (max(200, 50 * classes), dimensions))
    candidates /= np.maximum(np.linalg.norm(candidates, axis=1, keepdims=True), 1.0)
    chosen = farthest_points(candidates, classes)
    centers = chosen - np.mean(chosen, axis=0)
    # Scaled so that the two nearest classes have the wanted distance.
    nearest = min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(centers, 2))
    return np.asarray(centers * apart / nearest)


def farthest_points(candidates: Floats, count: int) -> Floats:
    """Points that are far apart: the longest candidate, then always the one farthest from all that were chosen.

    Parameters
    ----------
    candidates : array of shape (n, dimensions)
        Points to choose from.
    count : int
        Number of points, at most n.

    Returns
    -------
    array of shape (count, dimensions)
        The chosen points, in the order of the search.
    """
    chosen = [candidates[int(np.argmax(np.sum(candidates**2, axis=1)))]]
    # Squared distance of each candidate to the nearest chosen point.
    distance = np.full(len(candidates), np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, np.sum((candidates - chosen[-1]) ** 2, axis=1))
        chosen.append(candidates[int(np.argmax(distance))])
    return np.array(chosen)


def _patterns(shape: tuple[int, ...]) -> Floats:
    """Products of low-frequency cosines along the last two axes, equal for all channels, shape (n_inputs, n_patterns).

    Scaled so that pixels of a sum with standard normal weights have variance 1 on average.
    """
    *channels, height, width = shape
    most = min(_WAVES, height * width - 1)
    turns = itertools.product(range(min(height, 8)), range(min(width, 8)))
    # By increasing frequency; the first pair (0, 0) is constant and left out.
    pairs = sorted(turns, key=lambda at: (at[0] ** 2 + at[1] ** 2, at))
    down, along = (np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width
    waves = [np.outer(np.cos(math.pi * i * down), np.cos(math.pi * j * along)).ravel() for i, j in pairs[1 : most + 1]]
    patterns = np.array(waves) / np.linalg.norm(waves, axis=1, keepdims=True)
    each = patterns.T * math.sqrt(height * width / len(patterns))
    return np.tile(each, (math.prod(channels), 1))
