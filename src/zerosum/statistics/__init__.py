"""Registry of the statistics that a site may compute. A coordinator names a statistic; it never sends code.

Built-in statistics are listed in `_BUILTIN`. A site, never a coordinator, can add others: from entry points of the
group `zerosum.statistics` in that site's environment, or by `register` in its own process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerosum.compute.statistic import BoundedStatistic
from zerosum.errors import UnknownStatistic
from zerosum.statistics.additive import ModelTables, ResponseTables, ScoreProducts
from zerosum.statistics.bands import BandScatter
from zerosum.statistics.clusters import ClusterSums
from zerosum.statistics.concordance import ScoreTable
from zerosum.statistics.connectivity import GroupedConnectivity, SiteCentredConnectivity
from zerosum.statistics.cox import CovariateMoments, ExitTable
from zerosum.statistics.cox_step import CoxStep
from zerosum.statistics.cumulants import FourthCumulants
from zerosum.statistics.dual_regression import DualRegression
from zerosum.statistics.fit import FitHistogram
from zerosum.statistics.groups import GroupedCounts, GroupedMoments, GroupedRanks
from zerosum.statistics.histogram import Histogram
from zerosum.statistics.local_training import LocalTraining
from zerosum.statistics.marginals import CentredPairs, WeightedTables
from zerosum.statistics.mixture import AugmentedScatter, MixtureSums, ThirdMoment
from zerosum.statistics.module import ModuleGradient, ModulePredictions
from zerosum.statistics.moments import SecondMoment
from zerosum.statistics.multinomial import MultinomialStep
from zerosum.statistics.network import TwoLayerGradient, TwoLayerPredictions
from zerosum.statistics.observed import ObservedSums
from zerosum.statistics.polynomial import PolynomialCoefficients
from zerosum.statistics.published import (
    DistinctPairMoment,
    DistinctSecondMoment,
    DistinctThirdMoment,
    DistinctTripleMoment,
    InfomaxGradient,
    TensorClippedGradient,
)
from zerosum.statistics.rank_moments import RankMoment
from zerosum.statistics.records import ClippedRecords, LabelledRecords
from zerosum.statistics.registry import Registry
from zerosum.statistics.regression import (
    ColumnMoments,
    CountStep,
    NewtonStep,
    ResidualGradient,
    ResidualMoment,
    ScoreMoment,
    ScoreNorms,
)
from zerosum.statistics.rounded_scatter import RoundedScatter
from zerosum.statistics.scatter import Scatter, ScatterColumn, ScatterNorms, ScatterProduct
from zerosum.statistics.softmax import FeatureMoments, SoftmaxGradient, SoftmaxPredictions
from zerosum.statistics.survival import SurvivalTable
from zerosum.statistics.topics import PairMoment, PairNorms, TopicSums, TripleMoment, WordPairs, WordPresence
from zerosum.statistics.unmixing import UnmixingScore
from zerosum.statistics.vectors import VectorSum

_BUILTIN: tuple[type[BoundedStatistic], ...] = (
    VectorSum,
    ObservedSums,
    Histogram,
    SecondMoment,
    RankMoment,
    ClusterSums,
    Scatter,
    RoundedScatter,
    ScatterProduct,
    ScatterColumn,
    ScatterNorms,
    FourthCumulants,
    UnmixingScore,
    BandScatter,
    ClippedRecords,
    LabelledRecords,
    ColumnMoments,
    ResidualGradient,
    ResidualMoment,
    ScoreNorms,
    ScoreMoment,
    NewtonStep,
    CountStep,
    MultinomialStep,
    PolynomialCoefficients,
    FitHistogram,
    TwoLayerGradient,
    TwoLayerPredictions,
    ModuleGradient,
    ModulePredictions,
    FeatureMoments,
    SoftmaxGradient,
    SoftmaxPredictions,
    AugmentedScatter,
    ThirdMoment,
    MixtureSums,
    WordPresence,
    WordPairs,
    TopicSums,
    PairNorms,
    PairMoment,
    TripleMoment,
    GroupedMoments,
    GroupedCounts,
    GroupedRanks,
    WeightedTables,
    CentredPairs,
    DualRegression,
    GroupedConnectivity,
    SiteCentredConnectivity,
    ResponseTables,
    ScoreProducts,
    ModelTables,
    SurvivalTable,
    CovariateMoments,
    ExitTable,
    CoxStep,
    ScoreTable,
    DistinctSecondMoment,
    InfomaxGradient,
    TensorClippedGradient,
    LocalTraining,
    DistinctThirdMoment,
    DistinctPairMoment,
    DistinctTripleMoment,
)
BUILTIN = frozenset(kind.name for kind in _BUILTIN)
ENTRY_POINTS = "zerosum.statistics"


def _is_statistic(loaded: object, name: str) -> bool:
    """Whether an object from an entry point is the statistic of that name."""
    return isinstance(loaded, type) and issubclass(loaded, BoundedStatistic) and loaded.name == name


_registry: Registry[type[BoundedStatistic]] = Registry(
    "statistic", ENTRY_POINTS, {kind.name: kind for kind in _BUILTIN}, _is_statistic
)


def register(kind: type[BoundedStatistic]) -> type[BoundedStatistic]:
    """Make a statistic known to this process; a name that is taken by another one is refused.

    Parameters
    ----------
    kind : type
        A subclass of `BoundedStatistic` with a class variable `name`. Its sensitivity must be proved; the registry does
        not check it.

    Returns
    -------
    type
        The same class, so that `register` may be a decorator.
    """
    return _registry.register(kind.name, kind)


def find(name: str) -> type[BoundedStatistic]:
    """The statistic of that name in this site's own registry.

    Parameters
    ----------
    name : str
        As in the plan, which comes from the coordinator.

    Raises
    ------
    BadParameter
        If the entry point of this name does not give a statistic of this name.
    UnknownStatistic
        If the site has no such statistic.
    """
    kind = _registry.find(name)
    if kind is None:
        raise UnknownStatistic(f"unknown statistic {name!r}; this site knows {', '.join(_registry)}")
    return kind


def build(name: str, params: Mapping[str, Any]) -> BoundedStatistic:
    """A statistic with its public parameters, validated.

    Parameters
    ----------
    name : str
        The name of the statistic.
    params : mapping
        Its public parameters. Invalid ones raise an error before a row is read.

    >>> from zerosum.kernel.statistic import Adjacency
    >>> build("vector_sum", {"columns": 3, "clip": 1.0}).sensitivity(Adjacency.REPLACE_ONE)
    2.0
    """
    return find(name)(**params)
