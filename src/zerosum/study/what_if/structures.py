"""Made-up people for questions about structure: independent components over time, topics of documents, classes.

What hangs on people whom no public range describes is made up in the plainest way that has the structure, from public
facts alone: how many people, columns, components, words and classes there are, and how long recordings and documents.

Tested in tests/study/test_what_if_structures.py.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from zerosum.algorithms import ICA, DataCollaboration, FeatureClassifier, NeuralClassifier, Topics
from zerosum.arrays import Floats
from zerosum.data.fmri import garch_sources
from zerosum.kernel.units import Runs, Units
from zerosum.study.what_if.guesses import Guesses
from zerosum.study.what_if.people import World, no_columns

ROWS = 100  # of a recording, where nothing is said
_SENSOR = 0.25  # the energy of noise that no component explains, over that of all components
_SECONDS = 2.0  # between volumes, where files would say
_SLOWEST, _FASTEST = 0.9, -0.3  # the correlation of a time course with itself one row later, by component
_LENGTH = 50  # words of a document, where the study does not say
_SPARSE = 0.3  # of the Dirichlet law of topics
_APART = 4.0  # standard deviations between neighbouring classes
_HELD_OUT = 2000  # made-up people who judge a classifier
_WIDEST = 0.25  # of half a range, the standard deviation within a class
_REACH = 2.0  # standard deviations beyond a class's centre that its range should hold
_WAVES = 24  # smooth patterns that made-up images consist of

Classifier = FeatureClassifier | DataCollaboration | NeuralClassifier


class Recordings(World):
    """Time courses that are independent, mixed by maps of equal strength in directions chosen at random, which all
    people share, and white noise; the same maps in every sample. Courses are volatile (GARCH), or, where the study
    separates by frequency, normal and forget at different rates."""

    hears = frozenset({"rows"})

    def __init__(self, algorithm: ICA, guesses: Guesses) -> None:
        no_columns(guesses, "recordings are made up by their components")
        self.count, self.length = algorithm.n_components, guesses.rows or ROWS
        rng = np.random.default_rng(0)
        within = np.linalg.qr(rng.normal(size=(algorithm.width, self.count)))[0]
        maps = within if algorithm.basis is None else np.linalg.qr(algorithm.basis)[0] @ within
        self.maps: Floats = np.ascontiguousarray(maps.T)
        self.truth = self.maps
        self.noise = math.sqrt(_SENSOR * self.count / len(algorithm.columns))
        self.by_frequency = algorithm.chosen == "second-order"
        high = algorithm.band[1] if algorithm.band is not None else 0.5 / (algorithm.seconds or _SECONDS)
        self.seconds = algorithm.seconds or min(_SECONDS, 0.5 / high)
        self.band = algorithm.band if self.by_frequency else None
        courses = "normal, and forget at different rates" if self.by_frequency else "volatile (GARCH)"
        self.says = (
            f"recordings of {self.length} rows of {self.count} components of equal strength in directions chosen at "
            f"random, whose time courses are {courses}; one part of noise to {1 / _SENSOR:g} of components"
        )

    @property
    def numbers_each(self) -> int:
        return self.length * int(self.maps.shape[1])

    def people(self, count: int, rng: np.random.Generator) -> Units:
        sources = self._courses(count, rng) if self.by_frequency else self._volatile(count, rng)
        rows = sources.reshape(-1, self.count) @ self.maps
        rows += self.noise * rng.standard_normal(rows.shape)
        begins = np.arange(count + 1, dtype=np.int64) * self.length
        return Units(rows, begins, Runs(begins, np.full(count, self.seconds)))

    def _volatile(self, count: int, rng: np.random.Generator) -> Floats:
        return np.asarray(garch_sources(count, self.count, self.length, rng=rng), dtype=np.float64)

    def _courses(self, count: int, rng: np.random.Generator) -> Floats:
        """Autoregressive ones by their spectra, cut to the band."""
        frequency = np.fft.rfftfreq(self.length, self.seconds)
        kept = np.linspace(_FASTEST, _SLOWEST, self.count)
        turn = np.exp(-2j * math.pi * frequency * self.seconds)[:, None]
        power = 1 / np.abs(1 - kept * turn) ** 2
        if self.band is not None:
            power *= ((frequency >= self.band[0]) & (frequency <= self.band[1]))[:, None]
        power[0] = 0.0
        shape = (count, *power.shape)
        waves = np.sqrt(power) * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
        found = np.fft.irfft(waves, self.length, axis=1)
        expected = math.sqrt(2) * np.sqrt(2 * np.sum(power, axis=0)) / self.length
        return np.asarray(found / np.where(expected > 0, expected, 1.0))


class Documents(World):
    """Documents of one topic each, all topics alike, whose words a Dirichlet law gave; where words are many, those that
    rank lower are rarer in all topics."""

    def __init__(self, algorithm: Topics, guesses: Guesses) -> None:
        no_columns(guesses, "documents are made up by their topics")
        words, count = len(algorithm.columns), algorithm.n_components
        self.length = max(round(algorithm.length or _LENGTH), 1)
        topics = np.random.default_rng(0).dirichlet(np.full(words, _SPARSE), count)
        many = algorithm.chosen == "pairs"
        if many:
            topics = topics / np.arange(1.0, words + 1)
            topics /= np.sum(topics, axis=1, keepdims=True)
        self.truth = topics
        of = "; words that rank lower are rarer" if many else ""
        self.says = (
            f"documents of {self.length} words, one a person, each of one of {count} topics that a Dirichlet law "
            f"({_SPARSE:g}) drew{of}"
        )

    @property
    def numbers_each(self) -> int:
        return self.length

    def people(self, count: int, rng: np.random.Generator) -> Units:
        assert self.truth is not None  # noqa: S101
        topics, words = self.truth.shape
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


class Classes(World):
    """Normal classes of equal size and spread, neighbours as far apart as guessed; rows of images consist of smooth
    patterns. `truth` holds people of the same kind who judge: features and, last, the class."""

    hears = frozenset({"separation"})

    def __init__(self, algorithm: Classifier, guesses: Guesses) -> None:
        no_columns(guesses, "classes are made up by how far they are apart")
        low, high, shape = _inputs(algorithm)
        self.middle, half = (low + high) / 2, (high - low) / 2
        self.classes, self.apart = len(algorithm.classes), guesses.separation or _APART
        waves = _patterns(shape) if len(shape) > 1 and math.prod(shape[-2:]) > 1 else None
        dimensions = math.prod(shape) if waves is None else waves.shape[1]
        centers = _centers(self.classes, dimensions, self.apart)
        far = np.max(np.abs(centers if waves is None else centers @ waves.T))
        width = min(_WIDEST, 1 / (float(far) + _REACH))
        self.centers = centers
        self.mixing = np.diag(half * width) if waves is None else (half * width)[:, None] * waves
        self.low, self.high = low, high
        self.truth = np.asarray(self.people(_HELD_OUT, np.random.default_rng([18, 4])).rows)
        of = "" if waves is None else f" in images of {waves.shape[1]} smooth patterns"
        self.says = (
            f"{self.classes} normal classes of equal size{of}, neighbours {self.apart:g} standard deviations apart; "
            f"{_HELD_OUT} others of the same kind judge"
        )

    @property
    def numbers_each(self) -> int:
        return len(self.middle) + 1

    def people(self, count: int, rng: np.random.Generator) -> Units:
        which = rng.integers(self.classes, size=count)
        inner = self.centers[which] + rng.standard_normal((count, self.centers.shape[1]))
        rows = np.clip(self.middle + inner @ self.mixing.T, self.low, self.high)
        return Units(np.column_stack([rows, which.astype(np.float64)]))


def _inputs(algorithm: Classifier) -> tuple[Floats, Floats, tuple[int, ...]]:
    """The public range of every input, and the shape of one row's inputs."""
    if isinstance(algorithm, NeuralClassifier):
        assert algorithm.lower is not None and algorithm.upper is not None  # noqa: S101, PT018
        return algorithm.lower[:-1], algorithm.upper[:-1], algorithm.shape or (algorithm.features,)
    features: Any = algorithm.feature_map
    count = features.inputs
    if hasattr(features, "lower"):
        return features.lower, features.upper, (count,)
    shape = features.shape if hasattr(features, "shape") else (features.height, features.width)
    return np.full(count, features.lowest), np.full(count, features.highest), tuple(shape)


def _centers(classes: int, dimensions: int, apart: float) -> Floats:
    """Centres about 0, far from each other, the nearest two so far apart."""
    candidates = np.random.default_rng(0).uniform(-1, 1, (max(200, 50 * classes), dimensions))
    candidates /= np.maximum(np.linalg.norm(candidates, axis=1, keepdims=True), 1.0)
    chosen = [candidates[int(np.argmax(np.sum(candidates**2, axis=1)))]]
    distance = np.full(len(candidates), np.inf)
    while len(chosen) < classes:
        distance = np.minimum(distance, np.sum((candidates - chosen[-1]) ** 2, axis=1))
        chosen.append(candidates[int(np.argmax(distance))])
    centers = np.array(chosen) - np.mean(chosen, axis=0)
    nearest = min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(centers, 2))
    return np.asarray(centers * apart / nearest)


def _patterns(shape: tuple[int, ...]) -> Floats:
    """Products of low cosines along the last two axes, the same for all channels: inputs x patterns, so that pixels of
    their sum with standard normal weights have variance 1 on average."""
    *channels, height, width = shape
    most = min(_WAVES, height * width - 1)
    turns = itertools.product(range(min(height, 8)), range(min(width, 8)))
    pairs = sorted(turns, key=lambda at: (at[0] ** 2 + at[1] ** 2, at))
    down, along = (np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width
    waves = [np.outer(np.cos(math.pi * i * down), np.cos(math.pi * j * along)).ravel() for i, j in pairs[1 : most + 1]]
    found = np.array(waves) / np.linalg.norm(waves, axis=1, keepdims=True)
    each = found.T * math.sqrt(height * width / len(found))
    return np.tile(each, (math.prod(channels), 1))
