"""Attacks on what leaves a site: whose record is this, was this one there, and what did it look like?

**Public or synthetic data only**, as in all of `zerosum.papers`.

The attacker is the server with one colluding site. In Data Collaboration the colluder tells the anchors, so that the
server has inputs and outputs of every site's map and fits the map by least squares: nothing is left of its being
secret. What is published under noise of a known law is attacked with that law. It has records of its own, from the same
population, and compares with what they would have given.

* `linked`: how often the record that lies nearest to what was published, of all candidates mapped alike, is the right
  one. Chance is one over the candidates.
* `told_apart`: how often a record that was in the data looks more like it than one that was not: by the likelihood
  ratio of what was published. Chance is one half.
* `update_scores`: the same for models that travel. The server has every client's weights before and after its training,
  and trains shadow clients from the same weights on its own records: how much surer is the client's model of a record
  than theirs are (Carlini et al. 2022, with models of outsiders only), over all rounds.
* `gradient_scores`: the same for training through a private sum, whose noisy totals of gradients are all there is to
  see: how far what is more in them than expected points along the record's own gradient, over all rounds.
* `left_over`: of the variance of records, the share that is left when each is guessed by the best linear guess from
  what was published, which the attacker learns on records of its own. 1 is what guessing the mean gives.

Tested in tests/papers/methods/test_reidentification.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import logsumexp

from zerosum.arrays import Floats
from zerosum.papers.methods import perceptron
from zerosum.papers.methods.collaboration import Records, Reduction
from zerosum.papers.methods.perceptron import Labels, Singles, Weights

_BLOCK = 500
_SMALL = 1e-3  # beside records of norm 1 and more


def fitted_map(anchors: Floats, mapped: Floats) -> Reduction:
    """A site's affine map, from anchors that a colluder tells and what the site made of them."""
    design = np.column_stack([anchors, np.ones(len(anchors))])
    found: Floats = np.asarray(np.linalg.lstsq(design, mapped, rcond=None)[0], dtype=np.float64)
    components, constant = found[:-1], found[-1]
    center: Floats = np.asarray(-constant @ np.linalg.pinv(components), dtype=np.float64)
    return Reduction(center, components)


def linked(published: Floats, candidates: Floats) -> float:
    """The share of published rows whose nearest candidate is their own; both in the same order and space."""
    hits = 0
    for first in range(0, len(published), _BLOCK):
        part = published[first : first + _BLOCK]
        nearest = np.argmin(_distances(part, candidates), axis=1)
        hits += int(np.sum(nearest == np.arange(first, first + len(part))))
    return hits / len(published)


def told_apart(published: Floats, members: Floats, others: Floats, noise: float, reference: Floats) -> float:
    """How often a member makes the published rows likelier than one of the others does; ties count half.

    The likelihood ratio of "one of these rows is x under noise" is the mean over rows p of N(p; x)/f(p). The density f
    of anybody's row is taken from the attacker's own `reference` records under noise: half of it one by one, half of it
    the normal law of their mean and covariance, which reaches where they are few.
    """
    noise = max(noise, _SMALL)
    scale = 2 * noise**2
    near = _blockwise(published, lambda rows: logsumexp(-_distances(rows, reference) / scale, axis=1))
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(reference, rowvar=False)))
    spread = np.sqrt(np.maximum(values, 0) + noise**2)
    apart = (published - reference.mean(axis=0)) @ vectors / spread
    wide = -0.5 * np.sum(apart**2, axis=1) - np.sum(np.log(spread / noise))
    usual = np.logaddexp(near - math.log(len(reference)), wide)
    scores = [
        _blockwise(each, lambda rows: logsumexp(-_distances(rows, published) / scale - usual[None, :], axis=1))
        for each in (members, others)
    ]
    return pairs_won(scores[0], scores[1])


def _blockwise(rows: Floats, of: Callable[[Floats], Floats]) -> Floats:
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
    """How surely a client that was sent the first weights of every round and answered with the second trained on each
    candidate. Shadow clients train on `size` of the attacker's own records, for as many epochs."""
    rng = np.random.default_rng(seed)
    found = np.zeros(len(candidates.y))
    for before, after in rounds:
        seen = []
        for shadow in range(shadows):
            chosen = rng.permutation(len(own.y))[:size]
            trained = perceptron.train(own.x[chosen], own.y[chosen], epochs=epochs, seed=seed + shadow, weights=before)
            seen.append(margins(perceptron.logits(trained, candidates.x), candidates.y))
        spread = np.sqrt(np.mean(np.var(seen, axis=0, ddof=1))) + _SMALL
        found += (margins(perceptron.logits(after, candidates.x), candidates.y) - np.mean(seen, axis=0)) / spread
    return found


def gradient_scores(
    totals: Sequence[Floats], residuals: Sequence[Floats], features: Floats, own: Sequence[Floats], records: int
) -> Floats:
    """How far each candidate's gradient, the product of its features and of its residual in a round, points along what
    a round's noisy total has more than `records` times the mean of the attacker's `own` gradients."""
    found = np.zeros(len(features))
    for total, residual, mean in zip(totals, residuals, own, strict=True):
        found += np.sum((features @ (total - records * mean)) * residual, axis=1)
    return found


def margins(logits: Singles | Floats, labels: Labels) -> Floats:
    """How much likelier than all others together the true class is, on a logarithmic scale."""
    logits = np.asarray(logits, dtype=np.float64)
    true = np.arange(logits.shape[1])[None, :] == labels[:, None]
    return np.asarray(logits[true] - logsumexp(np.where(true, -np.inf, logits), axis=1))


def pairs_won(members: Floats, others: Floats) -> float:
    """How often a member has the higher score of a pair; ties count half.

    >>> pairs_won(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    above = members[:, None] > others[None, :]
    return float(np.mean(above + 0.5 * (members[:, None] == others[None, :])))


def left_over(published: Floats, originals: Floats, simulated: Floats, reference: Floats) -> float:
    """The share of the originals' variance that a linear guess leaves. It is learned on `reference` records of the
    attacker's own and `simulated`, what would have been published of them."""
    design = np.column_stack([simulated, np.ones(len(simulated))])
    guess = np.linalg.lstsq(design, reference, rcond=None)[0]
    found = np.column_stack([published, np.ones(len(published))]) @ guess
    return float(np.sum((found - originals) ** 2) / np.sum((originals - originals.mean(axis=0)) ** 2))


def _distances(rows: Floats, others: Floats) -> Floats:
    """Squared distances, up to rounding."""
    squares = np.sum(rows**2, axis=1)[:, None] + np.sum(others**2, axis=1)[None, :]
    return np.asarray(squares - 2 * rows @ others.T)
