"""Zerosum: one joint result from institutions that may not share records, under exactly accounted privacy."""

from typing import Any

from zerosum.algorithms import Covariance, CustomStatistic, Histogram, KMeans, Mean
from zerosum.errors import ZerosumError
from zerosum.kernel.schemes import Combine, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.units import Units
from zerosum.report.record import PrivacyReport, Result
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.statistics.user import statistic
from zerosum.study import Study, run

__all__ = [
    "ICA",
    "PCA",
    "Adjacency",
    "Combine",
    "Covariance",
    "CustomStatistic",
    "Histogram",
    "KMeans",
    "Mean",
    "Policy",
    "PrivacyReport",
    "Result",
    "Scheme",
    "Site",
    "Study",
    "Units",
    "ZerosumError",
    "run",
    "statistic",
]


def __getattr__(name: str) -> Any:
    """Estimators are loaded when they are asked for: scikit-learn takes its time."""
    if name in ("ICA", "PCA"):
        from zerosum import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'zerosum' has no attribute {name!r}")
