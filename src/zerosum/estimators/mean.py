"""The private mean over sites.

Tested in tests/estimators/test_table_estimators.py.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.base import RangedEstimator


class Mean(RangedEstimator):
    """The private mean of each column over sites. Every unit weighs one: who has several rows counts with their mean.

    Parameters
    ----------
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
        range (0 without ranges); or
        "observed": the mean is over the units that are observed in the column. By default missing values are refused.
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
    mean_ : ndarray of shape (n_features,)
        The mean of each column.
    std_error_ : ndarray of shape (n_features,)
        The standard deviation that privacy's noise gives each mean; how much people differ is no part of it.
    observed_ : ndarray of shape (n_features,)
        How many units are observed in each column, noisy; only where a rule for missing values is "observed".
    observed_std_ : ndarray of shape (n_features,)
        The standard deviation that privacy's noise gives each of these counts, where they are.
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

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal([50, 120], [10, 15], size=(400, 2)) for name in ("north", "east", "south")}
    >>> mean = Mean(lower=[0, 50], upper=[100, 250], random_state=0, data="synthetic").fit(sites)
    >>> bool(np.all(np.abs(mean.mean_ - [50, 120]) < 4 * mean.std_error_ + 1)), mean.privacy_.private
    (True, False)
    """

    _algorithm: ClassVar[str] = "mean"

    def _learn(self, estimate: Estimate) -> None:
        self.mean_: Floats = np.asarray(estimate["mean"])
        self.std_error_: Floats = np.asarray(estimate["noise_std"])
        if "observed" in estimate:
            self.observed_: Floats = np.asarray(estimate["observed"])
            self.observed_std_: Floats = np.asarray(estimate["observed"].std)
