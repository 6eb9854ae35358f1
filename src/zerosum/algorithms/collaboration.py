"""Data Collaboration under differential privacy: each unit's reduced record is published once with its own noise, and
one model is trained on the published records.

Difference from the paper (Yamashiro et al. 2024; `zerosum.papers.methods.collaboration`). There each site reduces its
records by its own secret map, the server aligns the maps by anchor data that all sites share, and noise protects one
pixel. Here the noise protects whole units. The reduction is public or released by a private sum, so that all sites have
the same map: no alignment and no anchors are needed, and no guarantee depends on a secret map.

Model
-----
A row has public features f (`features`) and a class with one-hot vector e. With center m and projection W the reduced
record is z = W'(f - m) scaled to norm 1, and the published vector is (z, label_weight e) plus normal noise. The label
is part of the published vector, not randomised by a second mechanism: its error is then normal, of known size and
independent of that of z, and `corrected_least_squares` corrects for it.

Releases: for `reduction = "dp"` the mean and second moments of the features (`FeatureMoments`, share
`reduction_share`); the records (`LabelledRecords`, the rest). The training is free post-processing.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.groups import shown
from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Program, PublicFacts
from zerosum.algorithms.training.classifier import FeatureAlgorithm, whitener
from zerosum.algorithms.training.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivatePublication, PrivateSum, Request
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.records import LabelledRecords
from zerosum.statistics.softmax import FeatureMoments

# Weight of the one-hot class beside a record of norm 1: the best of 0.5, 1 and 1.5 from epsilon 4 to 50. The comparison
# is not recorded.
_LABEL_WEIGHT = 1.5
# Published numbers per record, over units^(1/4)/(noise of a record). Chosen by hand; no benchmark recorded.
_WIDTH = 1.5
# Noise of a publication of sensitivity 1 that templates of requests assume before there is a plan. Chosen by hand.
_GUESSED_NOISE = 0.5
# Fewest and most published numbers per record. Chosen by hand; no benchmark recorded.
_WIDTHS = 5, 200
# Ridge of the model, over the norm of the noise of the records' second moment. Chosen by hand; no benchmark recorded.
_RIDGE = 8.0


class DataCollaborationProgram(FeatureAlgorithm):
    """A classifier trained on noisy records that every site publishes. The columns are the inputs of the features and,
    last, the class.

    **Training through the private sum (`feature-classifier`) is far more accurate under the same guarantee**: its noise
    is that of one sum, and here every record has noise of that size. Use this algorithm only where records are needed.

    The public features of a row are reduced to `n_components` numbers and scaled to norm 1. `reduction = "dp"` releases
    their mean and second moments for `reduction_share` through a private sum, and whitens. `"random"` is a random
    projection from the public `seed` about the public `center`, without a release. A unit's record and the one-hot
    vector of its class times `label_weight` are published together; `zerosum.statistics.records.LabelledRecords` has
    the proof. The planner chooses `n_components` and `label_weight` from the public noise, unless they are given.

    One linear model is trained on the published records, corrected for their noise (`corrected_least_squares`). For
    predictions a site reduces its own records without noise, which costs nothing.

    Results: `center`, `projection` and `weights` (the constant last), which classify features; `noise` (the standard
    deviation of every published number); with `keep_records`, `records`: all published vectors.
    """

    name: ClassVar[str] = "data-collaboration"

    reduction: Literal["dp", "random"] = "dp"
    reduction_share: float = Field(default=0.15, gt=0, lt=1)
    n_components: int | None = Field(default=None, ge=1)
    label_weight: float | None = Field(default=None, ge=1e-3, le=1e3)
    center: FloatArray | None = None
    """With `reduction = "random"`, the public vector that is subtracted from the features."""
    seed: int = Field(default=0, ge=0)
    """Seed of the public random projection only."""
    keep_records: bool = False

    @model_validator(mode="after")
    def _reduction_fits(self) -> Self:
        """Refuse a public center beside a released one, and more components than features."""
        size = self.feature_map.size
        if self.center is not None and self.reduction == "dp":
            raise ValueError("center is for reduction = 'random' only: with reduction = 'dp' leave it out")
        if self.center is not None and self.center.shape != (size,):
            raise ValueError(f"center must have shape ({size},), one number per feature, got {self.center.shape}")
        if self.n_components is not None and self.n_components > size:
            raise ValueError(f"n_components must be at most the {size} features, got {self.n_components}")
        return self

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the label weight and the number of components.

        The covariance of records and classes has noise of order noise^2/sqrt(units) per entry, from products of both
        noises. The number of components is inversely proportional to the root of this noise, within 5 to 200.
        """
        weight = self.label_weight or _LABEL_WEIGHT
        alone = facts.noise if facts.published is None else facts.published
        # A record (z, weight e) is at most sqrt(4 + 2 weight^2) from another (`LabelledRecords`); with a share f of the
        # budget its noise is 1/sqrt(f) times that of the whole budget.
        noise = max(alone * math.sqrt((4 + 2 * weight**2) / self._publication_share), 1e-3)
        fitting = round(_WIDTH * (facts.units or GUESSED_UNITS) ** 0.25 / noise)
        fewest, most = _WIDTHS
        width = self.n_components or int(np.clip(fitting, fewest, min(self.feature_map.size, most)))
        return self.model_copy(update={"label_weight": weight, "n_components": min(width, self.feature_map.size)})

    @property
    def describe(self) -> str:
        """Width of the records for the plan, with a reference to the better algorithm."""
        width = f"{self.n_components} numbers" if self.n_components else "a few numbers"
        return (
            f"publishes a noisy record of every unit, {width} and its class at weight {self._weight:g}; better under "
            "the same guarantee: algorithm = 'feature-classifier', which trains through the private sum"
        )

    @property
    def _publication_share(self) -> float:
        """Share of the budget for the publication."""
        return 1 - self.reduction_share if self.reduction == "dp" else 1.0

    @property
    def _weight(self) -> float:
        """Weight of the one-hot class in a record."""
        return self.label_weight or _LABEL_WEIGHT

    @property
    def _width(self) -> int:
        """Number of published numbers z per record."""
        if self.n_components is not None:
            return self.n_components
        return self.resolve(PublicFacts(_GUESSED_NOISE, None)).n_components or 1

    # ---- requests --------------------------------------------------------------------------------------------------

    def _moments(self) -> FeatureMoments:
        """The statistic of the first release, for `reduction = "dp"`."""
        return FeatureMoments(columns=len(self.columns), features=self.features)

    def _records(self, center: Floats, projection: Floats) -> LabelledRecords:
        """The statistic of the publication.

        Parameters
        ----------
        center : array of shape (F,)
            m, public or released.
        projection : array of shape (F, k)
            W, public or released.
        """
        return LabelledRecords(
            columns=len(self.columns),
            features=self.features,
            classes=len(self.classes),
            center=center,
            projection=projection,
            label_weight=self._weight,
        )

    def _public(self) -> tuple[Floats, Floats]:
        """Center and random projection from public values alone."""
        size = self.feature_map.size
        center = np.zeros(size) if self.center is None else self.center
        # a uniformly distributed subspace: orthonormal columns of a normal matrix
        drawn = np.random.default_rng(self.seed).normal(size=(size, self._width))
        return center, np.linalg.qr(drawn)[0]

    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        """The moments (for "dp"), then the publication. The template has the public random projection: its sensitivity
        is that of any projection.
        """
        bought = (PrivateSum(self._moments(), self.reduction_share),) if self.reduction == "dp" else ()
        return (*bought, PrivatePublication(self._records(*self._public()), self._publication_share))

    def program(self, adjacency: Adjacency) -> Program:
        """The moments (for "dp"), the publication, and the model."""
        center, projection = self._public()
        if self.reduction == "dp":
            statistic = self._moments()
            release = yield PrivateSum(statistic, self.reduction_share)
            second, first, _counted = statistic.split(release.value)
            units = release.units or 1.0
            # `FeatureMoments` releases half of x x', so that an entry of the second moment has twice the noise.
            center, noise = first / units, 2 * release.noise_std / units
            covariance = second / units - np.outer(center, center)
            projection = whitener(covariance, self._width, TUNING.whitener_ridge * noise)
        release = yield PrivatePublication(self._records(center, projection), self._publication_share)
        weights = corrected_least_squares(release.value, self._width, release.noise_std, self._weight)
        return self._named(center, projection, weights, release.value, release.noise_std)

    def _named(
        self, center: Floats, projection: Floats, weights: Floats, records: Floats, noise: float
    ) -> dict[str, Quantity]:
        """Results with the names of their axes.

        Parameters
        ----------
        center, projection
            As for `_records`.
        weights : array of shape (k + 1, classes)
            The model.
        records : array of shape (units, k + classes)
            All published vectors.
        noise : float
            Standard deviation of each published number.
        """
        features = Axis.numbered("feature", self.feature_map.size)
        directions = tuple(str(at + 1) for at in range(self._width))
        classes = tuple(map(shown, self.classes))
        along = Axis("direction", (*directions, "constant")), Axis("class", classes)
        quantities = {
            "center": Quantity(center, "number", (features,)),
            "projection": Quantity(projection, "filter", (features, Axis("direction", directions))),
            "weights": Quantity(weights, "coefficient", along),
            "noise": Quantity(np.array([noise]), "diagnostic"),
        }
        if self.keep_records:
            numbers = Axis("number", (*directions, *(f"class {each}" for each in classes)))
            axes = Axis.numbered("record", len(records)), numbers
            quantities["records"] = Quantity(records, "number", axes, np.full(records.shape, noise))
        return quantities


def corrected_least_squares(records: Floats, width: int, noise: float, weight: float) -> Floats:
    """Least squares of e on z from published (z, weight e), corrected for the noise of the records.

    Noise adds noise^2 to the variance of every number and nothing to the covariance of z and e. So noise^2 is
    subtracted from the second moment of z. The remaining random error of that matrix is covered by a ridge of its norm,
    so that no direction is divided by noise.

    Parameters
    ----------
    records : array (n, width + classes)
        Published records.
    width : int
        Numbers of z.
    noise : float
        Standard deviation of the noise of each number.
    weight : float
        Weight of the one-hot class in a record.

    Returns
    -------
    weights : array (width + 1, classes)
        Coefficients of z and, last, the constant; they give the probabilities of the classes.

    >>> rng = np.random.default_rng(0)
    >>> truth = np.where(rng.random(20000) < 0.5, 1.0, -1.0)
    >>> table = np.column_stack([truth, truth > 0, truth < 0]) + 0.3 * rng.normal(size=(20000, 3))
    >>> corrected_least_squares(table, 1, 0.3, 1.0).round(1).tolist()
    [[0.5, -0.5], [0.5, 0.5]]
    """
    z, e = records[:, :width], records[:, width:] / weight
    center, shares = np.mean(z, axis=0), np.mean(e, axis=0)
    z = z - center
    # Errors in variables: the noise of z adds noise^2 to its variances, which biases least squares towards 0.
    moment = z.T @ z / len(z) - noise**2 * np.eye(width)
    values, vectors = np.linalg.eigh(moment)
    # Random error of `moment`: an entry has variance about (2 spread noise^2 + noise^4)/n, and a symmetric matrix of
    # such entries has norm sqrt(width) times the root. 1e-9 keeps the division finite without noise.
    spread = max(float(np.trace(moment)) / width, 0.0)
    ridge = _RIDGE * noise * math.sqrt((2 * spread + noise**2) * width / len(z)) + 1e-9
    turned = vectors.T @ (z.T @ (e - shares) / len(z)) / (np.maximum(values, 0) + ridge)[:, None]
    slopes = vectors @ turned
    # The shares of the classes are noisy too: they are shrunk towards equal shares (James and Stein), and by the same
    # factor as the slopes.
    # `kept` is the positive part of 1 - (noise variance)/(squared distance).
    even = np.full(len(shares), 1 / len(shares))
    apart = float(np.sum((shares - even) ** 2)) + 1e-300
    fraction = max(0.0, 1 - (len(shares) - 1) * (noise / weight) ** 2 / (len(z) * apart))
    fraction *= spread / (spread + ridge)
    return np.vstack([slopes, even + fraction * (shares - even) - center @ slopes])
