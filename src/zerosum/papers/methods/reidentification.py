"""Privacy attacks on data sent by sites: linkage, membership inference, reconstruction.

**Public or synthetic data only**, as in all of `zerosum.papers`.

The attacker is the server with one colluding site. In Data Collaboration the colluder reveals the anchors. The server
then has inputs and outputs of every site's map and fits the map by least squares, so the map is not secret. Data
published under noise of a known distribution are attacked with that distribution. The attacker has own records from the
same population, and compares with what they would have given.

* `linked`: share of published rows whose nearest candidate, mapped alike, is the correct one. Chance is one over the
  number of candidates.
* `membership_auc`: probability that a member has a higher likelihood ratio of the published data than a non-member.
  Chance is one half.
* `update_scores`: the same for models. The server has every client's weights before and after its training, and trains
  shadow clients from the same weights on its own records. The score is how much more confident the client's model is
  about a record than the shadow models (Carlini et al. 2022, with non-member models only), over all rounds.
* `gradient_scores`: the same for training through a private sum, where only noisy totals of gradients are visible. The
  score is the component of the excess of the total along the record's own gradient, over all rounds.
* `left_over`: share of the variance of records that remains after the best linear prediction from the published data,
  which the attacker learns on own records. 1 is the result of predicting the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import logsumexp

from zerosum.arrays import Floats
from zerosum.papers.methods.collaboration import Reduction
from zerosum.papers.methods.records import Records
from zerosum.statistics import perceptron
from zerosum.statistics.perceptron import Labels, Singles, Weights

# Rows per block of distance matrices; limits memory.
_BLOCK = 500
_LEAST_NOISE = 1e-3  # smallest noise, for records of norm 1 and more; avoids division by zero


def fitted_map(anchors: Floats, mapped: Floats) -> Reduction:
    """Affine map of a site, from anchors that a colluder reveals and the mapped anchors."""
    # An affine map is determined by as many anchors in general position as it has columns and one more; the paper's
    # 1000 anchors of 784 pixels are enough.
    design = np.column_stack([anchors, np.ones(len(anchors))])
    coefficients: Floats = np.asarray(np.linalg.lstsq(design, mapped, rcond=None)[0], dtype=np.float64)
    components, constant = coefficients[:-1], coefficients[-1]
    # The constant of the map is -center times components; any center with that product gives the same map.
    center: Floats = np.asarray(-constant @ np.linalg.pinv(components), dtype=np.float64)
    return Reduction(center, components)


def linked(published: Floats, candidates: Floats) -> float:
    """Share of published rows whose nearest candidate is their own; both in the same order and space."""
    hits = 0
    for first in range(0, len(published), _BLOCK):
        part = published[first : first + _BLOCK]
        nearest = np.argmin(_distances(part, candidates), axis=1)
        hits += int(np.sum(nearest == np.arange(first, first + len(part))))
    return hits / len(published)


def membership_auc(published: Floats, members: Floats, others: Floats, noise: float, reference: Floats) -> float:
    """Probability that a member makes the published rows more likely than a non-member; ties count half.

    The likelihood ratio of "one of these rows is x plus noise" is the mean over rows p of N(p; x)/f(p). The density f
    of a row of the population is estimated from the attacker's own `reference` records with noise: half of it a kernel
    density, half of it the normal distribution of their mean and covariance, which covers sparse regions.
    """
    noise = max(noise, _LEAST_NOISE)
    # Normal densities without their constant, which is the same in every term of the ratio.
    scale = 2 * noise**2
    near = _blockwise(published, lambda rows: logsumexp(-_distances(rows, reference) / scale, axis=1))
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(reference, rowvar=False)))
    # Published rows are records plus independent noise: their covariances add up, in the axes of the records.
    spread = np.sqrt(np.maximum(values, 0) + noise**2)
    apart = (published - reference.mean(axis=0)) @ vectors / spread
    wide = -0.5 * np.sum(apart**2, axis=1) - np.sum(np.log(spread / noise))
    # Half and half, up to the factor 1/2 that all rows share. A kernel density alone is near 0 far from every reference
    # record, and the ratio there would be decided by one outlier.
    usual = np.logaddexp(near - math.log(len(reference)), wide)
    scores = [
        _blockwise(each, lambda rows: logsumexp(-_distances(rows, published) / scale - usual[None, :], axis=1))
        for each in (members, others)
    ]
    return pairs_won(scores[0], scores[1])


def _blockwise(rows: Floats, of: Callable[[Floats], Floats]) -> Floats:
    """Apply a function to blocks of rows and concatenate."""
    return np.concatenate([of(rows[at : at + _BLOCK]) for at in range(0, len(rows), _BLOCK)])


def update_scores(
    rounds: Sequence[tuple[Weights, Weights]],
    own: Records,
    candidates: Records,
    *,
    size: int,
    epochs: int,
    seed: int,
    shadows: int = 4,
) -> Floats:
    """Confidence that a client trained on each candidate.

    Parameters
    ----------
    rounds : sequence of (before, after)
        Weights sent to the client and returned by it.
    own : Records
        The attacker's records.
    candidates : Records
        Records to score.
    size, epochs : int
        Records and epochs of a shadow client's training.
    seed : int
        Seed of the shadow training.
    shadows : int
        Shadow clients per round.
    """
    rng = np.random.default_rng(seed)
    scores = np.zeros(len(candidates.y))
    for before, after in rounds:
        # Shadows start from the weights that the server sent, so that they differ from the client's model by its
        # records only.
        gradients = []
        for shadow in range(shadows):
            chosen = rng.permutation(len(own.y))[:size]
            trained = perceptron.train(own.x[chosen], own.y[chosen], epochs=epochs, seed=seed + shadow, weights=before)
            gradients.append(margins(perceptron.logits(trained, candidates.x), candidates.y))
        # One spread for all candidates: with a few shadows that of a single record is too uncertain (Carlini et al.
        # 2022 do the same where shadow models are few).
        spread = np.sqrt(np.mean(np.var(gradients, axis=0, ddof=1))) + _LEAST_NOISE
        scores += (margins(perceptron.logits(after, candidates.x), candidates.y) - np.mean(gradients, axis=0)) / spread
    return scores


def gradient_scores(
    totals: Sequence[Floats], residuals: Sequence[Floats], features: Floats, own: Sequence[Floats], records: int
) -> Floats:
    """Component of the excess of each round's noisy total, over `records` times the mean of the attacker's `own`
    gradients, along each candidate's gradient (outer product of its features and its residual)."""
    scores = np.zeros(len(features))
    for total, residual, mean in zip(totals, residuals, own, strict=True):
        # <total - expected, x r'> = x'(total - expected) r, without the outer product of each candidate.
        scores += np.sum((features @ (total - records * mean)) * residual, axis=1)
    return scores


def margins(logits: Singles | Floats, labels: Labels) -> Floats:
    """Log odds of the true class against all others."""
    logits = np.asarray(logits, dtype=np.float64)
    true = np.arange(logits.shape[1])[None, :] == labels[:, None]
    return np.asarray(logits[true] - logsumexp(np.where(true, -np.inf, logits), axis=1))


def pairs_won(members: Floats, others: Floats) -> float:
    """Probability that a member has the higher score of a pair; ties count half (area under the ROC curve).

    >>> pairs_won(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    above = members[:, None] > others[None, :]
    return float(np.mean(above + 0.5 * (members[:, None] == others[None, :])))


def left_over(published: Floats, originals: Floats, simulated: Floats, reference: Floats) -> float:
    """Share of the originals' variance that a linear prediction leaves. It is learned on `reference` records of the
    attacker and `simulated`, their published form."""
    design = np.column_stack([simulated, np.ones(len(simulated))])
    guess = np.linalg.lstsq(design, reference, rcond=None)[0]
    rest = np.column_stack([published, np.ones(len(published))]) @ guess
    # Can exceed 1: a prediction learned on other records may be worse than the mean of these.
    return float(np.sum((rest - originals) ** 2) / np.sum((originals - originals.mean(axis=0)) ** 2))


def _distances(rows: Floats, others: Floats) -> Floats:
    """Squared distances, shape (n_rows, n_others), up to rounding."""
    # |a - b|^2 = |a|^2 + |b|^2 - 2 a'b: one matrix product instead of all differences in memory.
    squares = np.sum(rows**2, axis=1)[:, None] + np.sum(others**2, axis=1)[None, :]
    return np.asarray(squares - 2 * rows @ others.T)
