"""Coordinator programs: generators that yield requests. One module per family."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from zerosum.algorithms.additive.program import AdditiveModelProgram
from zerosum.algorithms.collaboration import DataCollaborationProgram
from zerosum.algorithms.connectivity.program import ConnectivityProgram
from zerosum.algorithms.correlation import CorrelationProgram
from zerosum.algorithms.covariance import CovarianceProgram
from zerosum.algorithms.cox.program import CoxRegressionProgram
from zerosum.algorithms.custom import CustomProgram
from zerosum.algorithms.describe import DescribeProgram
from zerosum.algorithms.guided_ica.program import GuidedICAProgram
from zerosum.algorithms.histogram import HistogramProgram
from zerosum.algorithms.hypothesis_test import HypothesisTestProgram
from zerosum.algorithms.ica.program import ICAProgram
from zerosum.algorithms.kmeans import KMeansProgram
from zerosum.algorithms.mean import MeanProgram
from zerosum.algorithms.mixture.program import MixtureProgram
from zerosum.algorithms.pca.program import PCAProgram
from zerosum.algorithms.program import Algorithm, Estimate, Program
from zerosum.algorithms.quantiles import QuantilesProgram
from zerosum.algorithms.regression.functional import PolynomialLossProgram
from zerosum.algorithms.regression.glm import LogisticRegressionProgram, PoissonRegressionProgram
from zerosum.algorithms.regression.linear import LinearRegressionProgram
from zerosum.algorithms.regression.multinomial import MultinomialRegressionProgram
from zerosum.algorithms.survival import SurvivalProgram
from zerosum.algorithms.synthetic.program import SyntheticDataProgram
from zerosum.algorithms.topics.program import TopicsProgram
from zerosum.algorithms.training.classifier import FeatureClassifierProgram
from zerosum.algorithms.training.network import NeuralClassifierProgram
from zerosum.errors import BadParameter

ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind
    for kind in (
        *(
            MeanProgram,
            HistogramProgram,
            CovarianceProgram,
            CorrelationProgram,
            KMeansProgram,
            MixtureProgram,
            TopicsProgram,
            PCAProgram,
            ICAProgram,
            CustomProgram,
        ),
        *(LinearRegressionProgram, LogisticRegressionProgram, PoissonRegressionProgram, PolynomialLossProgram),
        *(MultinomialRegressionProgram, CoxRegressionProgram),
        *(FeatureClassifierProgram, NeuralClassifierProgram, DataCollaborationProgram),
        *(DescribeProgram, QuantilesProgram, SurvivalProgram, HypothesisTestProgram),
        *(SyntheticDataProgram, AdditiveModelProgram),
        *(GuidedICAProgram, ConnectivityProgram),
    )
}


ENTRY_POINTS = "zerosum.algorithms"

RENAMED = {"components": "n_components", "clusters": "n_clusters", "within": "per_recording", "passes": "n_passes"}
RENAMED_VALUES = {"paid": "dp", "nothing": "none"}  # parameters and their values, as they were called in 0.1
_FOUND = "centre and clip are found on the way since 0.2 (centering = 'auto')"
#: What is gone, by algorithm: parameters, or their values.
GONE: dict[str, dict[str, str]] = {
    "pca": dict.fromkeys(("mean_share", "clip_share", "clip_quantile", "clip_range"), _FOUND)
    | dict.fromkeys(("centering = 'dp'", "centering = 'paid'", "matrix_clip = 'dp'", "matrix_clip = 'paid'"), _FOUND)
}


def build(name: str, parameters: Mapping[str, Any]) -> Algorithm:
    """An algorithm with its public parameters, validated.

    Parameters
    ----------
    name : str
        The name of the algorithm.
    parameters : mapping
        As in a study file or a plan. Names and values of 0.1 are refused with the present ones.

    Raises
    ------
    BadParameter
        For an unknown algorithm or parameter, or a value that does not fit.
    """
    kind = find(name)
    for old, value in parameters.items():
        # Before the constructor, whose message for an unknown field would not give the present name.
        for gone in (old, f"{old} = {value!r}"):
            if gone in GONE.get(name, {}):
                raise BadParameter(f"algorithm {name!r}: {gone} is gone, {GONE[name][gone]}")
        new = RENAMED.get(old, old)
        if new != old and new in kind.model_fields:
            raise BadParameter(f"algorithm {name!r}: {old!r} is called {new!r} since 0.2")
        if isinstance(value, str) and value in RENAMED_VALUES and old in kind.model_fields:
            raise BadParameter(f"algorithm {name!r}: {old} = {value!r} is called {RENAMED_VALUES[value]!r} since 0.2")
    return kind(**parameters)


def fields(name: str) -> frozenset[str]:
    """The names of an algorithm's parameters.

    Parameters
    ----------
    name : str
        The name of the algorithm.
    """
    return frozenset(find(name).model_fields)


def find(name: str) -> type[Algorithm]:
    """The algorithm of that name: one of `ALGORITHMS`, or one that an installed package offers.

    A package offers algorithms by entry points of the group `zerosum.algorithms`; this distribution does so with the
    published methods of `zerosum.papers`. A name in `ALGORITHMS` cannot be replaced in this way.

    Raises
    ------
    BadParameter
        For an unknown name, or an entry point that is no algorithm of its name.

    Parameters
    ----------
    name : str
        As in the plan, which comes from the coordinator.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    offered = entry_points(group=ENTRY_POINTS)
    for point in offered.select(name=name):
        kind = point.load()
        if not (isinstance(kind, type) and issubclass(kind, Algorithm) and kind.name == name):
            raise BadParameter(f"the entry point {name!r} is not an algorithm of that name")
        return kind
    raise BadParameter(f"unknown algorithm {name!r}; there are {', '.join([*ALGORITHMS, *sorted(offered.names)])}")


__all__ = [
    "ALGORITHMS",
    "AdditiveModelProgram",
    "Algorithm",
    "ConnectivityProgram",
    "CorrelationProgram",
    "CovarianceProgram",
    "CoxRegressionProgram",
    "CustomProgram",
    "DataCollaborationProgram",
    "DescribeProgram",
    "Estimate",
    "FeatureClassifierProgram",
    "GuidedICAProgram",
    "HistogramProgram",
    "HypothesisTestProgram",
    "ICAProgram",
    "KMeansProgram",
    "LinearRegressionProgram",
    "LogisticRegressionProgram",
    "MeanProgram",
    "MixtureProgram",
    "MultinomialRegressionProgram",
    "NeuralClassifierProgram",
    "PCAProgram",
    "PoissonRegressionProgram",
    "PolynomialLossProgram",
    "Program",
    "QuantilesProgram",
    "SurvivalProgram",
    "SyntheticDataProgram",
    "TopicsProgram",
    "build",
    "fields",
    "find",
]
