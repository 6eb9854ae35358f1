"""Synthetic populations for a study's question, from public assumptions.

Each draw is a new sample of the same population.

The constants below were chosen by hand; no benchmark recorded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from zerosum.algorithms import (
    Algorithm,
    CovarianceProgram,
    CustomProgram,
    DataCollaborationProgram,
    FeatureClassifierProgram,
    HistogramProgram,
    ICAProgram,
    KMeansProgram,
    LogisticRegressionProgram,
    MixtureProgram,
    MultinomialRegressionProgram,
    NeuralClassifierProgram,
    PCAProgram,
    PoissonRegressionProgram,
    SurvivalProgram,
    SyntheticDataProgram,
    TopicsProgram,
)
from zerosum.algorithms.groups import GroupedAlgorithm
from zerosum.algorithms.program import RangedAlgorithm
from zerosum.algorithms.regression.base import Regression
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.data.design import Design
from zerosum.errors import BadParameter
from zerosum.forecast.assumptions import Assumptions, ColumnShape, Spectrum
from zerosum.forecast.empirical_population import EmpiricalPopulation, Population, expand_design, refuse_columns
from zerosum.forecast.structured_populations import ROWS, Classes, Classifier, Documents, Recordings, farthest_points

_CENTRE_SHARE = 0.6  # share of the ranges that contains the cluster centres
_MAX_SPREAD = 0.12  # largest standard deviation of a cluster, in half ranges
_RANGE_STDS = 4.0  # standard deviations of a column in half its range
_COLUMNS = 5000  # largest number of synthetic columns
# Defaults of the guesses `r_squared`, `separation` and `spectrum`.
_R_SQUARED, _SEPARATION, _SPECTRUM = 0.3, 6.0, "power:1"
_CORRELATION = 0.3  # of neighbouring columns of synthetic data, if nothing is guessed; chosen by hand
# Share of yes in a column of yes and no, by the usual shape of columns.
_YES_SHARES = {"centered": 0.3, "tailed": 0.05}
_EVENT_FREE_SHARE = 0.3  # share without event at the last edge, if nothing is guessed about times


def population_of(algorithm: Algorithm, assumptions: Assumptions, design: Design | None = None) -> Population | None:
    """Population for an algorithm, or None if its accuracy does not depend on the data.

    Raises
    ------
    BadParameter
        For guesses that the algorithm does not use, and for too many columns.
    """
    # A public file has its own distribution, so no other guess applies.
    if assumptions.like is not None and not isinstance(algorithm, CustomProgram):
        assumptions.check_used((), "people are drawn from a public file")
        if isinstance(algorithm, ICAProgram) and assumptions.like.offsets is None:
            raise BadParameter("components over time need people with many rows, and every row of the file is a person")
        return EmpiricalPopulation(assumptions.like, design, hold_out=isinstance(algorithm, Classifier))
    population = _synthetic_population(algorithm, assumptions, design)
    if population is None and (assumptions.like is not None or assumptions.columns):
        raise BadParameter(f"a forecast of the algorithm {algorithm.name!r} needs no synthetic data: leave guesses out")
    assumptions.check_used(
        () if population is None else population.used_assumptions, f"the algorithm is {algorithm.name!r}"
    )
    return population


def _synthetic_population(algorithm: Algorithm, assumptions: Assumptions, design: Design | None) -> Population | None:
    """Synthetic population for an algorithm, or None."""
    columns = len(algorithm.columns)
    if columns > _COLUMNS and not isinstance(algorithm, TopicsProgram):
        raise BadParameter(
            f"a forecast makes up {_COLUMNS} columns at most, and the study has {columns}: take regions of an atlas "
            "instead of voxels, or fewer columns, and see what changes as these grow"
        )
    # From the special case to the general one: a regression is a ranged algorithm, too.
    match algorithm:
        case Regression():
            return RegressionPopulation(algorithm, assumptions, design)
        case MixtureProgram() | KMeansProgram():
            return ClustersPopulation(algorithm, assumptions)
        case PCAProgram():
            return SpectrumPopulation(algorithm, assumptions)
        case ICAProgram():
            return Recordings(algorithm, assumptions)
        case TopicsProgram():
            return Documents(algorithm, assumptions)
        case FeatureClassifierProgram() | DataCollaborationProgram() | NeuralClassifierProgram():
            return Classes(algorithm, assumptions)
        case SurvivalProgram():
            return SurvivalPopulation(algorithm, assumptions)
        case GroupedAlgorithm() | HistogramProgram() | RangedAlgorithm() | SyntheticDataProgram():
            return ColumnsPopulation(algorithm, assumptions)
    return None


class ColumnsPopulation(Population):
    """Columns with the guessed distributions and correlations, joined by a normal copula.

    Neighbouring columns have normal scores of correlation r, columns that are k apart of r^k: the scores are a
    stationary first-order autoregression over the columns.
    """

    def __init__(self, algorithm: Algorithm, assumptions: Assumptions) -> None:
        self.assumptions, self.columns = assumptions, algorithm.columns
        self.levels = {name: len(known) for name, known in algorithm.categories.items()}
        self.ranges = ranges_of(algorithm)
        self.ordinary = 1.0  # If only norms are bounded, a typical row has half the largest norm.
        if isinstance(algorithm, RangedAlgorithm):
            self.ordinary = algorithm.radius / (2 * math.sqrt(len(algorithm.columns)))
        self.whole = (*assumptions.whole, *getattr(algorithm, "whole", ()))
        assumptions.check(self.columns)
        check_whole(assumptions, self.ranges)
        used = {"usual", "whole"} if self.ranges or self.levels else set()
        # Means, counts and quantiles of a column do not depend on the others.
        joint = len(self.columns) > 1 and isinstance(algorithm, CovarianceProgram | SyntheticDataProgram)
        if isinstance(algorithm, SyntheticDataProgram) and assumptions.correlation is None:
            # Independent columns need no table of two: its model is their histograms.
            assumptions = self.assumptions = replace(assumptions, correlation=_CORRELATION)
        self.used_assumptions = frozenset(used | ({"correlation"} if joint else set()))
        self.description = describe_columns(assumptions, self.columns)

    @property
    def numbers_each(self) -> int:
        """Number of columns."""
        return len(self.columns)

    def people(self, count: int, rng: np.random.Generator) -> Units:
        """One row per unit."""
        scores = correlated_scores(count, len(self.columns), self.assumptions.correlation or 0.0, rng)
        return Units(np.column_stack([self._column(name, scores[:, at]) for at, name in enumerate(self.columns)]))

    def _column(self, name: str, scores: Floats) -> Floats:
        """Values of one column for normal scores, both of shape (count,)."""
        shape = self.assumptions.shape(name)
        if name in self.levels:
            return shape.levels_at(ndtr(scores), self.levels[name])
        if name in self.ranges:
            numbers = shape.numbers_at(ndtr(scores), *self.ranges[name])
            return np.rint(numbers) if name in self.whole else numbers
        if name not in self.assumptions.columns:
            return self.ordinary * scores
        if shape.kind in ("uniform", "centered", "tailed"):
            raise BadParameter(f"column {name!r} has no range in which it could be {shape.kind}")
        return shape.numbers_at(ndtr(scores), -math.inf, math.inf)


def correlated_scores(count: int, columns: int, correlation: float, rng: np.random.Generator) -> Floats:
    """Normal scores (count, columns) in which columns k apart have the correlation `correlation`^k."""
    scores = rng.normal(size=(count, columns))
    # An autoregression with innovations of this size has variance 1 in every column.
    fresh = math.sqrt(1 - correlation**2)
    for at in range(1, columns if correlation > 0 else 0):
        scores[:, at] = correlation * scores[:, at - 1] + fresh * scores[:, at]
    return scores


def check_whole(assumptions: Assumptions, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raise `BadParameter` for columns guessed to be whole numbers that have no range with two of them."""
    for name in assumptions.whole:
        low, high = ranges.get(name, (0.0, 0.0))
        if math.floor(high) - math.ceil(low) < 1:
            raise BadParameter(f"column {name!r} has no range with two whole numbers, and cannot be guessed as whole")


def describe_columns(assumptions: Assumptions, columns: tuple[str, ...]) -> str:
    """Sentence about the guesses for columns."""
    usual = (assumptions.usual or ColumnShape()).kind
    word = {"centered": "normal about the middle of", "tailed": "skewed towards the lower end of"}.get(
        usual, "uniform over"
    )
    parts = [f"{name} {assumptions.columns[name].to_option()}" for name in columns if name in assumptions.columns]
    if len(parts) < len(columns):
        parts.append(f"the others {word} their ranges" if parts else f"every column {word} its range")
    if assumptions.whole:
        parts.append(f"{', '.join(assumptions.whole)} in whole numbers")
    if assumptions.correlation is not None:
        parts.append(
            f"neighbouring columns with correlation {assumptions.correlation:g}"
            if assumptions.correlation
            else "columns independent of each other"
        )
    return ", ".join(parts) or "no assumption about columns"


def ranges_of(algorithm: Algorithm) -> dict[str, tuple[float, float]]:
    """Public range (low, high) of each numeric column."""
    if isinstance(algorithm, GroupedAlgorithm | SyntheticDataProgram):
        return dict(algorithm.ranges)
    if isinstance(algorithm, HistogramProgram):
        edges = algorithm.edges
        return {} if edges is None else {algorithm.columns[0]: (float(edges[0]), float(edges[-1]))}
    if isinstance(algorithm, RangedAlgorithm) and algorithm.lower is not None and algorithm.upper is not None:
        return dict(
            zip(algorithm.columns, zip(algorithm.lower.tolist(), algorithm.upper.tolist(), strict=True), strict=True)
        )
    return {}


class ClustersPopulation(Population):
    """Spherical Gaussian clusters of equal weight. Their centres are far apart within the ranges and equal in every
    sample."""

    used_assumptions = frozenset({"separation"})

    def __init__(self, algorithm: MixtureProgram | KMeansProgram, assumptions: Assumptions) -> None:
        refuse_columns(assumptions, "clusters are made up by how far they are apart")
        count = algorithm.n_components if isinstance(algorithm, MixtureProgram) else algorithm.n_clusters
        ones = np.ones(len(algorithm.columns))
        self.scale = algorithm.scale if isinstance(algorithm, MixtureProgram) else algorithm.half
        # Half ranges of the columns; with a bound on norms only, a cube inside the ball.
        reach = algorithm.half if algorithm.lower is not None else ones * algorithm.radius / math.sqrt(len(ones))
        rng = np.random.default_rng(0)
        candidates = rng.uniform(-1, 1, (200 * count, len(ones))) * _CENTRE_SHARE * reach / self.scale
        centers = farthest_points(candidates, count)
        apart = [float(np.linalg.norm(a - b)) for i, a in enumerate(centers) for b in centers[:i]]
        widest = _MAX_SPREAD * float(np.min(reach / self.scale))  # so that few rows are clipped
        # As separated as guessed, but not so wide that the clusters leave their ranges.
        self.spread = min(min(apart, default=math.inf) / (assumptions.separation or _SEPARATION), widest)
        self.truth = algorithm.middle + self.scale * centers
        self.low, self.high = algorithm.lower, algorithm.upper
        self.description = f"{count} clusters of equal size, neighbours {self.separation:.3g} standard deviations apart"

    @property
    def separation(self) -> float:
        """Distance of the nearest clusters in standard deviations: as guessed, or larger if a range is too narrow for
        that."""
        assert self.truth is not None  # noqa: S101
        at = self.truth / self.scale
        apart = [float(np.linalg.norm(a - b)) for i, a in enumerate(at) for b in at[:i]]
        return min(apart, default=math.inf) / self.spread

    @property
    def numbers_each(self) -> int:
        """Number of columns."""
        return len(self.scale)

    def people(self, count: int, rng: np.random.Generator) -> Units:
        """One row per unit, clipped to the ranges."""
        assert self.truth is not None  # noqa: S101
        which = rng.integers(len(self.truth), size=count)
        rows = self.truth[which] + self.scale * self.spread * rng.normal(size=(count, self.truth.shape[1]))
        return Units(rows if self.low is None else np.clip(rows, self.low, self.high))


class SpectrumPopulation(Population):
    """Gaussian rows whose covariance, in scaled columns, has the guessed spectrum along random directions.

    The directions are equal in every sample. The size is chosen so that four standard deviations of a column fill half
    its range, in the root mean square over columns. If the study centres rows within recordings, each unit has `length`
    rows.
    """

    def __init__(self, algorithm: PCAProgram, assumptions: Assumptions) -> None:
        refuse_columns(assumptions, "rows for principal components are made up by their spectrum")
        if algorithm.per_recording == "standardise":
            raise BadParameter(
                "no spectrum describes columns that every recording standardises by itself: forecast it with "
                "per_recording = 'center', which the result will be near"
            )
        recorded = algorithm.per_recording != "none"
        self.used_assumptions = frozenset({"spectrum", "rows"} if recorded else {"spectrum"})
        self.length = (assumptions.rows or ROWS) if recorded else 1
        columns = len(algorithm.columns)
        spectrum = assumptions.spectrum or Spectrum.parse(_SPECTRUM)
        values = spectrum.values(columns)
        rng = np.random.default_rng(0)
        # QR of a Gaussian matrix gives random orthonormal directions.
        directions = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
        # root root' is the covariance up to a factor: eigenvectors times roots of eigenvalues.
        root = directions * np.sqrt(values / values[0])
        unit = algorithm.scale
        if algorithm.lower is None:
            # The expected squared norm of a row is the squared Frobenius norm of `root`. A typical row has half the
            # largest norm.
            size = algorithm.radius / 2 / math.sqrt(float(np.sum(root**2)))
        else:
            unit = algorithm.half if spectrum.relative else algorithm.scale
            deviations = np.sqrt(np.sum(root**2, axis=1)) * unit / algorithm.half
            size = 1 / (_RANGE_STDS * float(np.sqrt(np.mean(deviations**2))))
        self.root, self.center = size * root * unit[:, None], algorithm.middle
        of = f", {self.length} of them a person" if recorded else ""
        relative = " of columns over their ranges" if spectrum.relative and algorithm.lower is not None else ""
        self.description = f"normal rows with a spectrum {spectrum.text}{relative}{of}"

    @property
    def numbers_each(self) -> int:
        """Rows times columns."""
        return self.length * len(self.root)

    def people(self, count: int, rng: np.random.Generator) -> Units:
        """`length` rows per unit."""
        rows = self.center + rng.normal(size=(count * self.length, self.root.shape[1])) @ self.root.T
        return Units(rows, None if self.length == 1 else np.arange(count + 1, dtype=np.int64) * self.length)


class RegressionPopulation(Population):
    """Regression data: all features have equal standardised effects and together explain the share `r_squared`."""

    used_assumptions = frozenset({"r_squared", "correlation", "usual", "whole"})

    def __init__(self, algorithm: Regression, assumptions: Assumptions, design: Design | None) -> None:
        self.algorithm, self.assumptions, self.design = algorithm, assumptions, design
        names = algorithm.columns if design is None else design.read
        assumptions.check(names)
        check_whole(assumptions, ranges_of(algorithm) if design is None else design.ranges)
        self.response = names[-1]
        self.share = _R_SQUARED if assumptions.r_squared is None else assumptions.r_squared
        self.description = (
            f"{describe_columns(assumptions, names[:-1])}; features explain {100 * self.share:g} % of the response"
        )
        if self.response in assumptions.columns:
            self.description += f", which is {self._describe_response(assumptions.columns[self.response])}"

    def _describe_response(self, shape: ColumnShape) -> str:
        """Describe a guess about the response. Raises `BadParameter` if it does not fit the kind of regression."""
        if isinstance(self.algorithm, LogisticRegressionProgram):
            if shape.kind not in ("uniform", "shares") or len(shape.numbers) not in (0, 2):
                raise BadParameter(
                    f"the response {self.response!r} is guessed by two shares, of no and of yes: shares:9:1"
                )
        elif isinstance(self.algorithm, MultinomialRegressionProgram):
            raise BadParameter(f"the response {self.response!r} has several classes, about which no guess is stated")
        elif isinstance(self.algorithm, PoissonRegressionProgram):
            if shape.kind != "normal" or not shape.numbers[0] > 0:
                raise BadParameter(
                    f"the response {self.response!r} counts, and is guessed by a positive mean: normal:MEAN:SD"
                )
            return f"{shape.numbers[0]:g} on average, and spread as counts are"
        return shape.to_option()

    @property
    def numbers_each(self) -> int:
        """Number of columns."""
        return len(self.algorithm.columns)

    def people(self, count: int, rng: np.random.Generator) -> Units:
        """Features as guessed, and a response drawn from the model."""
        rows = self._features(count, rng)
        features = rows[:, : self.algorithm.features]
        spread = np.std(features, axis=0)
        # Constant features have no effect. The relative limit of 1e-12 is above rounding error.
        use = spread > 1e-12 * np.maximum(np.max(np.abs(features), axis=0, initial=0.0), 1e-300)
        scores = np.sum((features[:, use] - np.mean(features[:, use], axis=0)) / spread[use], axis=1)
        # The scores are a sum of standardised features with equal weights; divided by their own standard deviation.
        size = float(np.std(scores))
        rows[:, -1] = self._draw_response(scores / size if size > 0 else scores, rng)
        return Units(rows)

    def _features(self, count: int, rng: np.random.Generator) -> Floats:
        """Feature columns, with a placeholder for the response in the last column."""
        names = self.algorithm.columns if self.design is None else self.design.read
        ranges = ranges_of(self.algorithm) if self.design is None else self.design.ranges
        scores = correlated_scores(count, len(names) - 1, self.assumptions.correlation or 0.0, rng)
        drawn = [self._column(name, scores[:, at], ranges) for at, name in enumerate(names[:-1])]
        rows = np.column_stack([*drawn, np.zeros(count)])
        return rows if self.design is None else expand_design(rows, self.design)

    def _column(self, name: str, scores: Floats, ranges: Mapping[str, tuple[float, float]]) -> Floats:
        """Values of one column, as the study reads it, for normal scores, both of shape (count,)."""
        shape, share = self.assumptions.shape(name), ndtr(scores)
        if self.design is None and name == self.algorithm.draw:
            return np.asarray(share)
        if self.design is not None and name in self.design.levels:
            return shape.levels_at(share, len(self.design.levels[name]))
        if name not in self.assumptions.columns and self._is_indicator(name, ranges):
            return (share > 1 - _YES_SHARES[shape.kind]).astype(np.float64)
        numbers = shape.numbers_at(share, *ranges[name])
        return np.rint(numbers) if name in self.assumptions.whole else numbers

    def _is_indicator(self, name: str, ranges: Mapping[str, tuple[float, float]]) -> bool:
        """Whether a column is taken for one of yes and no: its range is 0 to 1 and that of others is not, and its
        usual shape is assumed and not uniform.
        """
        features = [ranges[each] for each in ranges if each != self.response]
        usual = self.assumptions.usual
        return (
            usual is not None
            and usual.kind in _YES_SHARES
            and tuple(ranges[name]) == (0.0, 1.0)
            and any(tuple(each) != (0.0, 1.0) for each in features)
        )

    def _draw_response(self, scores: Floats, rng: np.random.Generator) -> Floats:
        """Draw the response for linear scores of mean 0 and variance 1, shape (count,)."""
        share, name, algorithm = self.share, self.response, self.algorithm
        low, high = ranges_of(algorithm)[algorithm.columns[-1]]
        if isinstance(algorithm, LogisticRegressionProgram):
            shape = self.assumptions.shape(name)
            # Share of people with the event.
            some = shape.numbers[1] / sum(shape.numbers) if shape.kind == "shares" and len(shape.numbers) == 2 else 0.5
            # A latent logistic error has variance pi^2 / 3, so the scores explain `share` of the latent variance.
            slope = math.sqrt(share / (1 - share) * math.pi**2 / 3)
            chance = 1 / (1 + np.exp(-(_logistic_intercept(scores * slope, some) + slope * scores)))
            return np.where(rng.random(len(scores)) < chance, high, low)
        if isinstance(algorithm, MultinomialRegressionProgram):
            # Utilities with independent Gumbel errors give a multinomial model (McFadden 1974). Those of the classes
            # rise evenly with the score, and the last one as the class of a model of two classes.
            slope = math.sqrt(share / (1 - share) * math.pi**2 / 3)
            rising = np.linspace(0.0, slope, len(algorithm.classes))
            utilities = scores[:, None] * rising + rng.gumbel(size=(len(scores), len(rising)))
            return np.asarray(np.argmax(utilities, axis=1), dtype=np.float64)
        mean, spread = self.assumptions.response(name, low, high)
        if isinstance(algorithm, PoissonRegressionProgram):
            # exp(slope z) has the squared coefficient of variation exp(slope^2) - 1 = share. Dividing by exp(slope^2 /
            # 2) keeps the mean.
            slope = math.sqrt(math.log1p(share))
            mean = self.assumptions.columns[name].numbers[0] if name in self.assumptions.columns else high / 6
            return np.clip(rng.poisson(mean * np.exp(slope * scores - slope**2 / 2)), low, high).astype(np.float64)
        # Variance share of the scores: sqrt(share)^2 = share, and 1 - share for the error.
        rest = rng.normal(size=len(scores))
        return np.clip(mean + spread * (math.sqrt(share) * scores + math.sqrt(1 - share) * rest), low, high)


def _logistic_intercept(scores: Floats, share: float) -> float:
    """Intercept for which logistic scores give this share of events, by bisection."""
    low, high = -40.0, 40.0
    # The share of events increases with the intercept. 60 halvings of [-40, 40] reach the resolution of a double.
    for _ in range(60):
        middle = (low + high) / 2
        if float(np.mean(1 / (1 + np.exp(-(middle + scores))))) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class SurvivalPopulation(Population):
    """Exponential event times, with 30 % without event at the last edge, and uniform censoring."""

    def __init__(self, algorithm: SurvivalProgram, assumptions: Assumptions) -> None:
        assumptions.check(algorithm.columns)
        time, event, *group = algorithm.columns
        if event in assumptions.columns:
            raise BadParameter(
                f"when events happen is guessed about {time!r}, and a guess about {event!r} would have no effect"
            )
        self.algorithm, self.assumptions = algorithm, assumptions
        when = "a constant rate of events, after which 3 of 10 are there at the last edge"
        if time in assumptions.columns:
            when = f"{time} until the event {assumptions.columns[time].to_option()}"
        of = "".join(
            f", {name} {assumptions.columns[name].to_option()}" for name in group if name in assumptions.columns
        )
        self.description = f"{when}; half of all people followed to the last edge, the others lost evenly before{of}"

    @property
    def numbers_each(self) -> int:
        """Number of columns."""
        return len(self.algorithm.columns)

    def people(self, count: int, rng: np.random.Generator) -> Units:
        """Rows of time, event indicator and group."""
        edges = self.algorithm.edges
        first, last = float(edges[0]), float(edges[-1])
        name = self.algorithm.columns[0]
        if name in self.assumptions.columns:
            event = self.assumptions.shape(name).numbers_in(first, last, count, rng)
        else:
            # Rate for which exp(-rate * length) = _EVENT_FREE_SHARE at the last edge.
            event = first + rng.exponential((last - first) / -math.log(_EVENT_FREE_SHARE), count)
        # Uniform censoring over twice the follow-up time: half of the units are followed to the last edge.
        gone = first + rng.uniform(0, 2 * (last - first), count)
        # The observed time is the first of event, loss and end of the follow-up; the indicator is 1 for an event.
        rows = [np.minimum(np.minimum(event, gone), last), (event <= np.minimum(gone, last)).astype(np.float64)]
        if len(self.algorithm.columns) == 3:
            shape = self.assumptions.shape(self.algorithm.columns[2])
            rows.append(shape.levels_of(len(self.algorithm.groups), count, rng))
        return Units(np.column_stack(rows))
