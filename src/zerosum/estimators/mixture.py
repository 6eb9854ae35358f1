"""Private mixtures of normal components over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.estimators.base import RangedEstimator
from zerosum.estimators.documentation import documented


@documented
@dataclass(eq=False, repr=False)
class GaussianMixture(RangedEstimator):
    """Private mixture of spherical normal components over sites: a start from moments, then a few rounds of EM.

    Parameters
    ----------
    n_components : int, default=1
        Number of components.
    variance : float, optional
        Common variance of the components, if it is public, in the units after `scaling`. By default variances are
        estimated from the other releases at no further cost.
    scaling : {"none", "ranges"}, default="none"
        Whether columns are divided by half their public range first. Components are spherical after scaling.
    start : {"auto", "tensor", "cells"}, default="auto"
        Start of EM: the third moment in whitened coordinates ("tensor"), or many public cells ("cells"). "auto" takes
        "tensor" if there are at least as many columns as components.
    rounds : int, default=3
        Number of rounds of EM before the last one.
    mean_share : float, default=0.02
        Share of the budget for the coarse mean.
    clip_share : float, default=0.02
        Share of the budget for the histogram of norms.
    moment_share : float, optional
        Share of the budget for the second moments; by default the planner's choice.
    start_share : float, optional
        Share of the budget for the start; by default the planner's choice.
    refine_share : float, optional
        Share of the budget for the rounds before the last; by default the planner's choice.
    seed : int, default=0
        Seed of the public cells and of the starts of the decomposition. It does not affect privacy.
    %(rows_and_privacy)s

    Attributes
    ----------
    means_ : ndarray of shape (n_components, n_features)
        Means of the components.
    noise_std_ : ndarray of shape (n_components, n_features)
        Standard deviation that privacy adds to each mean, before the correction for noise.
    weights_ : ndarray of shape (n_components,)
        Shares of the components.
    weights_noise_std_ : ndarray of shape (n_components,)
        Standard deviation that privacy adds to each share.
    covariances_ : ndarray of shape (n_components,)
        Variances of the components, in the units after `scaling`, as in scikit-learn for spherical components.
    scale_ : ndarray of shape (n_features,)
        Divisor of each column: half its public range, or one.
    separations_ : ndarray of shape (n_components,)
        Distance of each mean from the nearest other mean, in standard deviations of the data.
    carried_ : ndarray of bool, shape (n_components,)
        Whether the budget supports a component: it is above the noise and apart from the others.
    %(fitted)s

    %(notes)s

    If the budget does not support a component, `notes_` has a remark. Then choose fewer components or a larger
    `epsilon`.

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = [np.vstack([rng.normal(middle, 0.3, size=(300, 2)) for middle in (-2, 2)]) for _ in range(3)]
    >>> found = GaussianMixture(n_components=2, lower=-4, upper=4, random_state=0, data="synthetic").fit(sites)
    >>> np.sort(found.means_[:, 0]).round().tolist(), found.predict_proba([[2, 2]]).max().round(3).tolist()
    ([-2.0, 2.0], 1.0)
    """

    _algorithm: ClassVar[str] = "mixture"

    n_components: int = 1
    _: KW_ONLY
    variance: float | None = None
    scaling: Literal["none", "ranges"] = "none"
    start: Literal["auto", "tensor", "cells"] = "auto"
    rounds: int = 3
    mean_share: float = 0.02
    clip_share: float = 0.02
    moment_share: float | None = None
    start_share: float | None = None
    refine_share: float | None = None
    seed: int = 0

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Posterior probability of each component for each row.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows, n_components)
            Probabilities; those of a row add up to one.
        """
        joint = self._joint(X)
        # In logarithms: far from all components every density underflows to 0.
        return np.asarray(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """The most probable component of each row.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows,)
            Positions in `means_`.
        """
        return np.asarray(np.argmax(self._joint(X), axis=1))

    def score_samples(self, X: ArrayLike) -> Floats:
        """Logarithm of the density at each row, in the units of the data.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows,)
            Log-likelihoods.
        """
        return np.asarray(logsumexp(self._joint(X), axis=1))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples`. On private rows it is not protected and must not leave the site.

        Parameters
        ----------
        %(own_rows)s
        y : None
            Ignored.

        Returns
        -------
        float
            The mean log-likelihood of a row.
        """
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, *, seed: int | None = None) -> tuple[Floats, NDArray[np.intp]]:
        """Synthetic rows from the fitted mixture. They cost no budget: they depend on released numbers only.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        seed : int, optional
            Seed of the generator.

        Returns
        -------
        tuple of ndarray of shape (n_samples, n_features) and ndarray of shape (n_samples,)
            Rows, and the component of each.
        """
        check_is_fitted(self, "result_")
        if n_samples < 1:
            raise BadParameter(f"n_samples must be at least 1, got {n_samples}")
        rng = np.random.default_rng(seed)
        which = rng.choice(len(self.weights_), n_samples, p=self.weights_)
        # Components are spherical in the scaled columns, so that noise is drawn there and scaled back.
        drawn = rng.normal(size=(n_samples, self.n_features_in_)) * np.sqrt(self.covariances_[which])[:, None]
        return self.means_[which] + self.scale_ * drawn, np.asarray(which)

    def _joint(self, X: ArrayLike) -> Floats:
        """Logarithm of weight times density (rows, n_components)."""
        rows, means = self._own_rows(X) / self.scale_, self.means_ / self.scale_
        squares = np.stack([np.sum((rows - mean) ** 2, axis=1) for mean in means], axis=1)
        # The last term is the Jacobian of the scaling: densities are per unit of the data.
        constant = -0.5 * rows.shape[1] * np.log(2 * np.pi * self.covariances_) - np.sum(np.log(self.scale_))
        weights = np.log(np.maximum(self.weights_, 1e-300))
        return np.asarray(weights + constant - 0.5 * squares / self.covariances_)

    def _learn(self, estimate: Estimate) -> None:
        self.means_: Floats = np.asarray(estimate["means"])
        self.noise_std_: Floats = np.asarray(estimate["means"].std)
        self.weights_: Floats = np.asarray(estimate["weights"])
        self.weights_noise_std_: Floats = np.asarray(estimate["weights"].std)
        self.covariances_: Floats = np.asarray(estimate["variances"])
        self.scale_: Floats = np.asarray(estimate["scale"])
        self.separations_: Floats = np.asarray(estimate["separations"])
        self.carried_: NDArray[np.bool_] = np.asarray(estimate["carried"]) > 0
        if not np.all(self.carried_):
            lost = int(np.sum(~self.carried_))
            self._note(f"the budget does not support {lost} of {len(self.carried_)} components; see carried_")
