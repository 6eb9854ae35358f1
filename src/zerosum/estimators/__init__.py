"""Estimators with the interface of scikit-learn: `fit` runs one study over the sites, and results end in `_`.

Each `fit` is a separate study with new noise, charged to the ledger of every site; so is every fit of a grid search or
of a cross-validation. Only the results of `fit` are protected. The results of `transform` and `predict` are as private
as the rows they are computed from: they stay at the site, and a model that is trained on them outside Zerosum is not
protected.
"""

from zerosum.estimators.additive import AdditiveModel
from zerosum.estimators.classifier import FeatureClassifier
from zerosum.estimators.collaboration import DataCollaboration
from zerosum.estimators.connectivity import Connectivity
from zerosum.estimators.correlation import Correlation
from zerosum.estimators.covariance import Covariance
from zerosum.estimators.cox import CoxRegression
from zerosum.estimators.describe import Describe, Quantiles
from zerosum.estimators.functional import PolynomialLoss
from zerosum.estimators.glm import LogisticRegression, PoissonRegression
from zerosum.estimators.guided_ica import GuidedICA
from zerosum.estimators.histogram import Histogram
from zerosum.estimators.hypothesis_test import HypothesisTest
from zerosum.estimators.ica import ICA
from zerosum.estimators.kmeans import KMeans
from zerosum.estimators.mean import Mean
from zerosum.estimators.mixture import GaussianMixture
from zerosum.estimators.multinomial import MultinomialRegression
from zerosum.estimators.network import NeuralClassifier
from zerosum.estimators.pca import PCA
from zerosum.estimators.regression import LinearRegression
from zerosum.estimators.scaler import StandardScaler
from zerosum.estimators.survival import SurvivalCurve
from zerosum.estimators.synthetic import SyntheticData
from zerosum.estimators.topics import TopicModel

__all__ = [
    "ICA",
    "PCA",
    "AdditiveModel",
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
    "PolynomialLoss",
    "Quantiles",
    "StandardScaler",
    "SurvivalCurve",
    "SyntheticData",
    "TopicModel",
]
