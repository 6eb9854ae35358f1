"""Studies in scikit-learn's manner: `__init__` stores, `fit` takes the sites, what was learned ends in `_`.

**Fitting again is spending again.** Every `fit` is a study of its own, with fresh noise and a fresh entry in every
site's ledger; so is every fit that a grid search or a cross-validation makes. What is private is what `fit` learns.
What `transform` returns is as private as the rows it is given: scores stay with their site, and a model trained on
them outside Zerosum is not protected.
"""

from zerosum.estimators.classifier import FeatureClassifier
from zerosum.estimators.collaboration import DataCollaboration
from zerosum.estimators.covariance import Covariance
from zerosum.estimators.describe import Describe, Quantiles
from zerosum.estimators.functional import PolynomialLoss
from zerosum.estimators.glm import LogisticRegression, PoissonRegression
from zerosum.estimators.histogram import Histogram
from zerosum.estimators.ica import ICA
from zerosum.estimators.kmeans import KMeans
from zerosum.estimators.mean import Mean
from zerosum.estimators.mixture import GaussianMixture
from zerosum.estimators.network import NeuralClassifier
from zerosum.estimators.pca import PCA
from zerosum.estimators.regression import LinearRegression
from zerosum.estimators.scaler import StandardScaler
from zerosum.estimators.survival import SurvivalCurve
from zerosum.estimators.topics import TopicModel

__all__ = [
    "ICA",
    "PCA",
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
    "PolynomialLoss",
    "Quantiles",
    "StandardScaler",
    "SurvivalCurve",
    "TopicModel",
]
