"""Private mixtures of normal components over sites.

Tested in tests/estimators/test_mixture_estimator.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.estimators.base import DataMark, RangedEstimator, Tables
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class GaussianMixture(RangedEstimator):
    """A private mixture of spherical normal components over sites: moments for a start, then a few rounds of EM.

    Parameters
    ----------
    n_components : int, default=1
        How many components to look for.
    variance : float, optional
        The components' common variance, where it is public; in the units that `scaling` leaves. By default variances
        come from releases that are paid for already.
    scaling : "none" or "ranges", default="none"
        Whether columns are divided by half their public range first. Components are spherical in what comes out.
    start : "auto", "tensor" or "cells", default="auto"
        What EM starts from: the third moment in white coordinates, or many public cells. The former where there are at
        least as many columns as components.
    rounds : int, default=3
        Rounds of EM before the last one.
    epsilon : float, default=1.0
        With `delta`, what the whole fit may cost any one unit.
    delta : float, default=1e-5
        See `epsilon`.
    lower, upper : float or array of shape (n_features,), optional
        Public ranges of the columns. One number stands for every column.
    clip : float, optional
        With ranges, a bound on the rows' norm once mapped to [-1, 1]; without, on the norm of the rows as they are.
        Ranges or a clip must be given, since data must not set their own bounds. Only a seeded run may do without:
        it takes the largest row norm, and says so in `notes_`.
    missing : float, str or dict, optional
        What is done where a value is missing (NaN), for all columns or by the name of each: a number to take instead,
        or "own-rows", the mean of what is observed of the same unit's rows, and where nothing is, the middle of the
        range (0 without ranges). By default missing values are refused.
    scheme : str or Scheme, default="secure-sum"
        How sites' noise combines.
    colluders : int, optional
        Sites that may collude with the coordinator, by default a third less one, at least one.
    dropouts : int, default=0
        Sites that may be lost on the way.
    unit : "person" or "record", optional
        What is protected: whoever owns the rows of a unit, or a single row. It must be said where sites are plain
        tables, whose rows could be either; `Units` that say whose each row is hold persons. A seeded run protects
        nobody, and takes plain rows for records.
    policies : dict of str to Policy, optional
        Sites' own policies by name, used as they are. A site without one gets the default, with its name as the
        population: its spends are kept in the user's state folder.
    random_state : int, optional
        None draws noise from the operating system: the private way. A number makes a **reproduction run, which protects
        nobody**: whoever knows it can take the noise away. It is refused unless `data` says that they are nobody's, or
        sites' own policies do.
    data : {"private", "public", "synthetic"}, default="private"
        Whose the data are. Public and synthetic data are nobody's: sites without a policy of their own then take part
        in any study, and their ledgers are thrown away after the run.
    budget : Budget, optional
        A `zerosum.Budget` that several fits share, which refuses what goes beyond it.

    Attributes
    ----------
    means_ : ndarray of shape (n_components, n_features)
        The components' means.
    means_std_ : ndarray of shape (n_components, n_features)
        The standard deviation that privacy's noise gives them, before what noise explains is taken back.
    weights_ : ndarray of shape (n_components,)
        Their shares.
    covariances_ : ndarray of shape (n_components,)
        Their variances, in the units that `scaling` leaves; as scikit-learn has them for spherical components.
    scale_ : ndarray of shape (n_features,)
        What columns are divided by: half their public range, or one.
    separations_ : ndarray of shape (n_components,)
        From each mean to the nearest other one, in standard deviations of the data.
    carried_ : ndarray of bool, shape (n_components,)
        Whether the budget carries a component: it stands above the noise, and apart from the others.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the columns, where the first site's table has names.
    privacy_ : PrivacyReport
        Whom the fit protects, against whom, and how well.
    result_ : Result
        The study's whole record.
    notes_ : tuple of str
        What else a reader has to know about the run.

    Notes
    -----
    Fitting again is spending again: each `fit` is a study of its own, with fresh noise, charged to every site's ledger.

    A component that is not carried says so in `notes_` too: ask for fewer, or spend more.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> sites = [np.vstack([rng.normal(middle, 0.3, size=(300, 2)) for middle in (-2, 2)]) for _ in range(3)]
    >>> found = GaussianMixture(n_components=2, lower=-4, upper=4, random_state=0, data="synthetic").fit(sites)
    >>> np.sort(found.means_[:, 0]).round().tolist(), found.predict_proba([[2, 2]]).max().round(3).tolist()
    ([-2.0, 2.0], 1.0)
    """

    _algorithm: ClassVar[str] = "mixture"

    def __init__(
        self,
        n_components: int = 1,
        *,
        variance: float | None = None,
        scaling: Literal["none", "ranges"] = "none",
        start: Literal["auto", "tensor", "cells"] = "auto",
        rounds: int = 3,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        clip: float | None = None,
        missing: Missing = None,
        scheme: str | Scheme = DEFAULT_SCHEME,
        colluders: int | None = None,
        dropouts: int = 0,
        unit: Unit | None = None,
        policies: Mapping[str, Policy] | None = None,
        random_state: int | None = None,
        data: DataMark = "private",
        budget: Budget | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            lower=lower,
            upper=upper,
            clip=clip,
            missing=missing,
            scheme=scheme,
            colluders=colluders,
            dropouts=dropouts,
            unit=unit,
            policies=policies,
            random_state=random_state,
            data=data,
            budget=budget,
        )
        self.n_components = n_components
        self.variance = variance
        self.scaling = scaling
        self.start = start
        self.rounds = rounds

    def predict_proba(self, X: ArrayLike) -> Floats:
        """How likely each component is to have made each row.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site. Nothing about what comes out is private: it is for whoever holds the rows.

        Returns
        -------
        ndarray of shape (rows, n_components)
            Probabilities, which add up to one for each row.
        """
        joint = self._joint(X)
        return np.asarray(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """The likeliest component of each row.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site.

        Returns
        -------
        ndarray of shape (rows,)
            Positions in `means_`.
        """
        return np.asarray(np.argmax(self._joint(X), axis=1))

    def score_samples(self, X: ArrayLike) -> Floats:
        """The logarithm of the density at each row, in the units of the data.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site.

        Returns
        -------
        ndarray of shape (rows,)
            Log-likelihoods.
        """
        return np.asarray(logsumexp(self._joint(X), axis=1))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """The mean of `score_samples`. On private rows it is not protected and must not leave the site.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site.
        y : None
            Ignored.

        Returns
        -------
        float
            The mean log-likelihood of a row.
        """
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, *, seed: int | None = None) -> tuple[Floats, NDArray[np.intp]]:
        """Made-up rows from the fitted mixture. They cost nothing: they are made of what was released.

        Parameters
        ----------
        n_samples : int, default=1
            How many rows.
        seed : int, optional
            For the same rows again.

        Returns
        -------
        tuple of ndarray of shape (n_samples, n_features) and ndarray of shape (n_samples,)
            Rows, and the component that made each.
        """
        check_is_fitted(self, "result_")
        if n_samples < 1:
            raise BadParameter(f"n_samples must be at least 1, got {n_samples}")
        rng = np.random.default_rng(seed)
        which = rng.choice(len(self.weights_), n_samples, p=self.weights_)
        drawn = rng.normal(size=(n_samples, self.n_features_in_)) * np.sqrt(self.covariances_[which])[:, None]
        return self.means_[which] + self.scale_ * drawn, np.asarray(which)

    def _joint(self, X: ArrayLike) -> Floats:
        """For each row and component the logarithm of weight times density."""
        rows, means = self._own_rows(X) / self.scale_, self.means_ / self.scale_
        squares = np.stack([np.sum((rows - mean) ** 2, axis=1) for mean in means], axis=1)
        constant = -0.5 * rows.shape[1] * np.log(2 * np.pi * self.covariances_) - np.sum(np.log(self.scale_))
        weights = np.log(np.maximum(self.weights_, 1e-300))
        return np.asarray(weights + constant - 0.5 * squares / self.covariances_)

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        names = ("n_components", "variance", "scaling", "start", "rounds")
        return super()._parameters(tables) | {name: getattr(self, name) for name in names}

    def _learn(self, estimate: Estimate) -> None:
        self.means_: Floats = np.asarray(estimate["means"])
        self.means_std_: Floats = np.asarray(estimate["means"].std)
        self.weights_: Floats = np.asarray(estimate["weights"])
        self.covariances_: Floats = np.asarray(estimate["variances"])
        self.scale_: Floats = np.asarray(estimate["scale"])
        self.separations_: Floats = np.asarray(estimate["separations"])
        self.carried_: NDArray[np.bool_] = np.asarray(estimate["carried"]) > 0
        if not np.all(self.carried_):
            lost = int(np.sum(~self.carried_))
            self._note(f"the budget does not carry {lost} of {len(self.carried_)} components; see carried_")
