"""Coordinator programs: generators that yield requests. One module per family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerosum.algorithms.collaboration import DataCollaboration
from zerosum.algorithms.covariance import Covariance
from zerosum.algorithms.custom import CustomStatistic
from zerosum.algorithms.describe import Describe
from zerosum.algorithms.histogram import Histogram
from zerosum.algorithms.ica.program import ICA
from zerosum.algorithms.kmeans import KMeans
from zerosum.algorithms.mean import Mean
from zerosum.algorithms.mixture import Mixture
from zerosum.algorithms.pca.program import PCA
from zerosum.algorithms.program import Algorithm, Estimate, Program
from zerosum.algorithms.quantiles import Quantiles
from zerosum.algorithms.regression.functional import PolynomialLoss
from zerosum.algorithms.regression.glm import LogisticRegression, PoissonRegression
from zerosum.algorithms.regression.linear import LinearRegression
from zerosum.algorithms.survival import Survival
from zerosum.algorithms.topics import Topics
from zerosum.algorithms.training.classifier import FeatureClassifier
from zerosum.algorithms.training.network import NeuralClassifier
from zerosum.errors import BadParameter

ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind
    for kind in (
        *(Mean, Histogram, Covariance, KMeans, Mixture, Topics, PCA, ICA, CustomStatistic),
        *(LinearRegression, LogisticRegression, PoissonRegression, PolynomialLoss),
        *(FeatureClassifier, NeuralClassifier, DataCollaboration),
        *(Describe, Quantiles, Survival),
    )
}


RENAMED = {"components": "n_components", "clusters": "n_clusters", "within": "per_recording", "passes": "n_passes"}
RENAMED_VALUES = {"paid": "dp", "nothing": "none"}  # parameters and their values, as they were called in 0.1
_FOUND = "centre and clip are found on the way since 0.2 (centering = 'auto')"
#: What is gone, by algorithm: parameters, or their values.
GONE: dict[str, dict[str, str]] = {
    "pca": dict.fromkeys(("mean_share", "clip_share", "clip_quantile", "clip_range"), _FOUND)
    | dict.fromkeys(("centering = 'dp'", "centering = 'paid'", "matrix_clip = 'dp'", "matrix_clip = 'paid'"), _FOUND)
}


def build(name: str, parameters: Mapping[str, Any]) -> Algorithm:
    """An algorithm with its public parameters, validated."""
    kind = _known(name)
    for old, value in parameters.items():
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
    """The names of an algorithm's parameters."""
    return frozenset(_known(name).model_fields)


def _known(name: str) -> type[Algorithm]:
    if name not in ALGORITHMS:
        raise BadParameter(f"unknown algorithm {name!r}; there are {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


__all__ = [
    "ALGORITHMS",
    "ICA",
    "PCA",
    "Algorithm",
    "Covariance",
    "CustomStatistic",
    "DataCollaboration",
    "Describe",
    "Estimate",
    "FeatureClassifier",
    "Histogram",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "Mean",
    "Mixture",
    "NeuralClassifier",
    "PoissonRegression",
    "PolynomialLoss",
    "Program",
    "Quantiles",
    "Survival",
    "Topics",
    "build",
    "fields",
]
