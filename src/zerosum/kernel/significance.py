"""P values of several hypotheses: adjusted for their number, or of all of them together.

Free post-processing of public results. It is here because programs of the coordinator and reports both need it.

References: Holm 1979; Benjamini and Hochberg 1995; Wald 1943.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from zerosum.arrays import Floats

Correction = Literal["none", "holm", "benjamini-hochberg"]
# Adjustments for the number of tests, as texts.
CORRECTIONS: dict[Correction, str] = {
    "holm": "Holm's method",
    "benjamini-hochberg": "the method of Benjamini and Hochberg",
}
# Test of the groups that comes with each part of a descriptive table.
GROUP_TESTS = {"means": "Welch", "quantiles": "Kruskal-Wallis", "proportions": "chi-squared"}


def adjusted(p_values: Floats, correction: Correction) -> Floats:
    """P values adjusted for the number of tests.

    Parameters
    ----------
    p_values : array of shape (n,)
        One for each test.
    correction : {"none", "holm", "benjamini-hochberg"}
        "holm" bounds the probability of any false rejection, "benjamini-hochberg" the expected share of false ones
        among all rejections.

    >>> adjusted(np.array([0.01, 0.04, 0.03]), "holm").round(3).tolist()
    [0.03, 0.06, 0.06]
    >>> adjusted(np.array([0.01, 0.04, 0.03]), "benjamini-hochberg").round(3).tolist()
    [0.03, 0.04, 0.04]
    """
    count, order = len(p_values), np.argsort(p_values, kind="stable")
    rising = p_values[order]
    if correction == "holm":
        # Holm 1979: the k-th smallest p value times the number of hypotheses not yet rejected, never falling.
        rising = np.maximum.accumulate(rising * (count - np.arange(count)))
    elif correction == "benjamini-hochberg":
        # Benjamini and Hochberg 1995: n p_(k)/k, and never above that of a larger p value.
        rising = np.minimum.accumulate((rising * count / (1 + np.arange(count)))[::-1])[::-1]
    found = np.empty(count)
    found[order] = np.minimum(rising, 1.0)
    return found


def adjusted_pairs(p_values: Floats, correction: Correction) -> Floats:
    """Adjusted p values of a symmetric matrix with one hypothesis for each pair; the diagonal is 0.

    Parameters
    ----------
    p_values : array of shape (n, n)
        Symmetric.
    correction : {"none", "holm", "benjamini-hochberg"}
        As for `adjusted`.

    >>> adjusted_pairs(np.array([[0, 0.01, 0.02], [0.01, 0, 0.5], [0.02, 0.5, 0]]), "holm").round(3).tolist()[0]
    [0.0, 0.03, 0.04]
    """
    # Every pair is one hypothesis: the matrix holds each twice.
    upper = np.triu_indices(len(p_values), 1)
    found = np.zeros(p_values.shape)
    found[upper] = adjusted(p_values[upper], correction)
    return found + found.T


def joint_wald(estimate: Floats, covariance: Floats) -> tuple[float, int, float]:
    """Test that several coefficients, or combinations of them, are all 0.

    Parameters
    ----------
    estimate : (m,), coefficients or combinations of them.
    covariance : (m, m), their population covariance.

    Returns
    -------
    statistic, degrees of freedom, p value : the rank of the covariance is the number of degrees of freedom.

    >>> joint_wald(np.array([2.0, 0.0]), np.eye(2))[:2]
    (4.0, 2)
    """
    from scipy.special import gammaincc

    values, vectors = np.linalg.eigh(covariance)
    # Directions without variance, up to rounding, are left out.
    there = values > 1e-12 * max(float(np.max(values, initial=0.0)), 0.0)
    along = vectors.T @ estimate
    statistic = float(np.sum(along[there] ** 2 / values[there]))
    free = int(np.sum(there))
    return statistic, free, float(gammaincc(free / 2, statistic / 2)) if free else 1.0
