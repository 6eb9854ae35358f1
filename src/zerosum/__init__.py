"""Zerosum: one joint result from institutions that may not share records, under exactly accounted privacy.

`import zerosum` loads no numerical library. A public name is loaded from its module on first use (PEP 562) and is then
an ordinary attribute. Type checkers read the imports below `TYPE_CHECKING`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zerosum.errors import ZerosumError
from zerosum.version import VERSION

if TYPE_CHECKING:
    from zerosum import algorithms
    from zerosum.compute.units import Units
    from zerosum.estimators import (
        ICA,
        PCA,
        AdditiveModel,
        Connectivity,
        Correlation,
        Covariance,
        CoxRegression,
        DataCollaboration,
        Describe,
        FeatureClassifier,
        GaussianMixture,
        GuidedICA,
        Histogram,
        HypothesisTest,
        KMeans,
        LinearRegression,
        LogisticRegression,
        Mean,
        MultinomialRegression,
        NeuralClassifier,
        PoissonRegression,
        PolynomialLoss,
        Quantiles,
        StandardScaler,
        SurvivalCurve,
        SyntheticData,
        TopicModel,
    )
    from zerosum.kernel.schemes import Combine, Scheme
    from zerosum.kernel.statistic import Adjacency
    from zerosum.report.record import PrivacyReport, Result
    from zerosum.site.policy import Policy
    from zerosum.site.site import Site
    from zerosum.statistics.module_registry import register_module
    from zerosum.statistics.user import statistic
    from zerosum.study import Budget, Study, run
__all__ = [
    "ICA",
    "PCA",
    "AdditiveModel",
    "Adjacency",
    "Budget",
    "Combine",
    "Connectivity",
    "Correlation",
    "Covariance",
    "CoxRegression",
    "DataCollaboration",
    "Describe",
    "FeatureClassifier",
    "GaussianMixture",
    "GuidedICA",
    "Histogram",
    "HypothesisTest",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "Mean",
    "MultinomialRegression",
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
    "SyntheticData",
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

#: Module of each public name that is loaded on first use.
_MODULES = {
    **dict.fromkeys(
        (
            *("ICA", "PCA", "Covariance", "GaussianMixture", "Histogram", "KMeans", "Mean", "TopicModel"),
            *("LinearRegression", "LogisticRegression", "MultinomialRegression", "PoissonRegression", "PolynomialLoss"),
            *("FeatureClassifier", "NeuralClassifier", "DataCollaboration"),
            *(
                "Describe",
                "Quantiles",
                "SurvivalCurve",
                "SyntheticData",
                "GuidedICA",
                "Connectivity",
                "AdditiveModel",
                "CoxRegression",
                "StandardScaler",
                "HypothesisTest",
                "Correlation",
            ),
        ),
        "zerosum.estimators",
    ),
    "Adjacency": "zerosum.kernel.statistic",
    "Budget": "zerosum.study",
    "Combine": "zerosum.kernel.schemes",
    "Policy": "zerosum.site.policy",
    "PrivacyReport": "zerosum.report.record",
    "Result": "zerosum.report.record",
    "Scheme": "zerosum.kernel.schemes",
    "Site": "zerosum.site.site",
    "Study": "zerosum.study",
    "Units": "zerosum.compute.units",
    "register_module": "zerosum.statistics.module_registry",
    "run": "zerosum.study",
    "statistic": "zerosum.statistics.user",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use.

    Parameters
    ----------
    name : str
        The attribute that the module does not have yet.

    Raises
    ------
    AttributeError
        There is no such public name. For a program of `zerosum.algorithms` the message says where it is.
    """
    if name == "algorithms":
        return import_module("zerosum.algorithms")
    if name in _MODULES:
        # Stored as an ordinary attribute: Python calls `__getattr__` only for names that are missing.
        globals()[name] = getattr(import_module(_MODULES[name]), name)
        return globals()[name]
    # Programs are classes. Other names are asked for by the import system (submodules) and by inspection, which must
    # not load the programs.
    if name[:1].isupper() and name in import_module("zerosum.algorithms").__all__:
        raise AttributeError(f"module 'zerosum' has no attribute {name!r}: it is zerosum.algorithms.{name}")
    raise AttributeError(f"module 'zerosum' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Public names too that are not loaded yet, for completion in notebooks and shells."""
    return sorted({*globals(), *__all__})
