"""Zerosum: one joint result from institutions that may not share records, under exactly accounted privacy."""

from zerosum.algorithms import Covariance, Histogram, KMeans, Mean, OwnStatistic
from zerosum.errors import ZerosumError
from zerosum.kernel.schemes import Combine, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.units import Units
from zerosum.report import PrivacyReport, Result
from zerosum.site.contribute import Site
from zerosum.site.policy import Policy
from zerosum.statistics.user import statistic
from zerosum.study import Study, run

__all__ = [
    "Adjacency",
    "Combine",
    "Covariance",
    "Histogram",
    "KMeans",
    "Mean",
    "OwnStatistic",
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
