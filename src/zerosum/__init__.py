"""Zerosum: one joint result from institutions that may not share records, under exactly accounted privacy."""

from typing import TYPE_CHECKING, Any

from zerosum import algorithms
from zerosum.compute.units import Units
from zerosum.errors import ZerosumError
from zerosum.kernel.schemes import Combine, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.report.record import PrivacyReport, Result
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.statistics.module_registry import register_module
from zerosum.statistics.user import statistic
from zerosum.study import Budget, Study, run
from zerosum.version import VERSION

if TYPE_CHECKING:
    from zerosum.estimators import (
        ICA,
        PCA,
        Covariance,
        DataCollaboration,
        Describe,
        FeatureClassifier,
        GaussianMixture,
        Histogram,
        KMeans,
        LinearRegression,
        LogisticRegression,
        Mean,
        NeuralClassifier,
        PoissonRegression,
        PolynomialLoss,
        Quantiles,
        StandardScaler,
        SurvivalCurve,
        TopicModel,
    )

__all__ = [
    "ICA",
    "PCA",
    "Adjacency",
    "Budget",
    "Combine",
    "Covariance",
    "DataCollaboration",
    "Describe",
    "FeatureClassifier",
    "GaussianMixture",
    "Histogram",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "Mean",
    "NeuralClassifier",
    "PoissonRegression",
    "Policy",
    "PolynomialLoss",
    "PrivacyReport",
    "Quantiles",
    "Result",
    "Scheme",
    "Site",
    "StandardScaler",
    "Study",
    "SurvivalCurve",
    "TopicModel",
    "Units",
    "ZerosumError",
    "__version__",
    "algorithms",
    "register_module",
    "run",
    "statistic",
]

__version__ = VERSION

_ESTIMATORS = frozenset(
    {
        *("ICA", "PCA", "Covariance", "GaussianMixture", "Histogram", "KMeans", "Mean", "TopicModel"),
        *("LinearRegression", "LogisticRegression", "PoissonRegression", "PolynomialLoss"),
        *("FeatureClassifier", "NeuralClassifier", "DataCollaboration"),
        *("Describe", "Quantiles", "SurvivalCurve", "StandardScaler"),
    }
)


def __getattr__(name: str) -> Any:
    """Estimators are loaded when they are asked for: scikit-learn takes its time."""
    if name in _ESTIMATORS:
        from zerosum import estimators

        return getattr(estimators, name)
    if name in algorithms.__all__:
        raise AttributeError(f"module 'zerosum' has no attribute {name!r}: it is zerosum.algorithms.{name}")
    raise AttributeError(f"module 'zerosum' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
