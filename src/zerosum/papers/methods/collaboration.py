"""Data Collaboration and federated learning as published (Yamashiro, Omote, Imakura and Sakurai 2024).

**Public or synthetic data only**, as in all of `zerosum.papers`: plain NumPy, noise from a seeded generator.

**Data Collaboration.** Sites share anchor data, which are random within public ranges. Each site maps its records and
the anchors by its own map, here its own PCA, and sends both. The server stacks the mapped anchors of all sites and
takes the leading left singular vectors as the common target. It fits each site's alignment to the target by least
squares, and trains one network on the aligned records. A site maps its own records in the same way for prediction.

**DC-DP** adds Gaussian noise to mapped records, by the analytic calibration for sensitivity L, the range of one column.
Its neighbours differ **in one column of one record** (one pixel). Its map is computed from the records and is
nevertheless assumed equal for both neighbours, as is the noise-free copy of the anchors that is sent with it. Noise
that protects a pixel with an epsilon of 50 protects a record that differs in more columns by much less:
`record_epsilon`. Labels are sent without noise.

**FedAvg and FL-DP** (Wei et al. 2020, "NbAFL") are the program `fl-dp` (`zerosum.papers.programs.federated`), driven
here as the papers' figures and the attacks need it: with a given noise on the weights of each client, and with a record
of what the server sees. FL-DP as published clips a client's weights to norm C and adds noise of c T (2C/m)/epsilon to
each, with c = sqrt(2 log(1.25/delta)), T exposures and m records of the smallest client. Its sensitivity 2C/m assumes
that training is a mean over records of separate results. This is not the case: one record can move the result of
training anywhere in the ball, so that 2C is proved, and the factor m is lost. `federated_epsilons` has both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.kernel.request import Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.methods.records import Records
from zerosum.papers.programs.federated import CLIP, LOCAL_EPOCHS, ROUNDS, FLDPProgram
from zerosum.statistics import perceptron
from zerosum.statistics.local_training import LocalTraining
from zerosum.statistics.perceptron import Weights

EPSILON, DELTA = 50.0, 0.01  # values of the paper
# Number of anchor records.
ANCHORS = 1000
# Classes of the paper's data.
CLASSES = 10
# A clip that is never reached.
_UNCLIPPED = 1e9


@dataclass(frozen=True, eq=False)
class Reduction:
    """Affine map of a site: subtract the centre, then project on components, shape (columns, width)."""

    center: Floats
    components: Floats

    @staticmethod
    def of(x: Floats, width: int) -> Reduction:
        """PCA of the site's records, with at most len(x) - 1 components."""
        center = x.mean(axis=0)
        # Right singular vectors of centred rows are the principal directions; no D x D matrix is formed, which for
        # images is larger than the rows of a site.
        directions = np.linalg.svd(x - center, full_matrices=False)[2]
        # Centred rows have rank at most n - 1: a further direction is rounding error and would map the anchors to
        # noise.
        return Reduction(center, directions[: min(width, len(x) - 1)].T)

    def __call__(self, x: Floats) -> Floats:
        """Mapped records, shape (n, width)."""
        return np.asarray((x - self.center) @ self.components)


@dataclass(frozen=True, eq=False)
class Collaboration:
    """Data that sites sent and the server computed: all that a coalition of server and a site can use."""

    anchors: Floats
    maps: tuple[Reduction, ...]  # each known to its site only
    mapped_anchors: tuple[Floats, ...]
    published: tuple[Floats, ...]  # mapped records with noise
    alignments: tuple[Floats, ...]
    noise: float
    scale: float

    def aligned(self, site: int, mapped: Floats) -> Floats:
        """Mapped records of a site in the common space, the input of the network."""
        return np.asarray(mapped @ self.alignments[site] / self.scale)

    def returned(self, site: int, x: Floats) -> Floats:
        """A site's own records in the common space, without noise, for prediction."""
        return self.aligned(site, self.maps[site](x))


def collaborate(sites: Sequence[Records], width: int, seed: int, noise: float = 0.0) -> Collaboration:
    """Data Collaboration without the network. `noise` is the standard deviation of the noise on every mapped number."""
    rng = np.random.default_rng(seed)
    # Uniform in the unit cube, the public range of the columns: anchors that share no information with records.
    anchors = rng.random((ANCHORS, sites[0].x.shape[1]))
    maps = tuple(Reduction.of(site.x, width) for site in sites)
    mapped = tuple(each(anchors) for each in maps)
    # The common target (DC-DP, section II-A: g_i(mapped anchors of i) = g_j(mapped anchors of j)): the subspace of the
    # anchors that all maps preserve best in the least-squares sense.
    target = np.linalg.svd(np.hstack(mapped), full_matrices=False)[0][:, :width]
    alignments = tuple(np.linalg.lstsq(each, target, rcond=None)[0] for each in mapped)
    clean = [each(site.x) for each, site in zip(maps, sites, strict=True)]
    published = tuple(each + noise * rng.standard_normal(each.shape) for each in clean)
    # One scale for all sites and columns. It brings the inputs of the network to unit size, for which its first weights
    # and its step were chosen; a scale for each column would undo the noise's equal size.
    spread = np.std(np.vstack([rows @ turn for rows, turn in zip(published, alignments, strict=True)]))
    return Collaboration(anchors, maps, mapped, published, alignments, noise, float(spread))


def collaboration_accuracy(
    sites: Sequence[Records], test: Records, width: int, seed: int, noise: float = 0.0, epochs: int = 12
) -> float:
    """Accuracy of one network on the aligned records of all sites. Test records are mapped by the first site."""
    joint = collaborate(sites, width, seed, noise)
    rows = np.vstack([joint.aligned(at, each) for at, each in enumerate(joint.published)])
    # Labels enter as they are: DC-DP adds noise to mapped records only.
    weights = perceptron.train(rows, Records.joined(sites).y, epochs=epochs, seed=seed)
    return perceptron.accuracy(weights, joint.returned(0, test.x), test.y)


def published_noise(epsilon: float = EPSILON, delta: float = DELTA, reach: float = 1.0) -> float:
    """Noise of DC-DP for columns of range `reach`: the analytic Gaussian mechanism for one column."""
    # Equation (1) of DC-DP, solved for the noise: sensitivity over noise is the mu at which the Gaussian mechanism is
    # exactly (epsilon, delta)-private (Balle and Wang 2018).
    return reach / accountant.mu_for(epsilon, delta)


def record_epsilon(distance: float, epsilon: float = EPSILON, delta: float = DELTA) -> float:
    """Exact epsilon of the published noise, at the same delta, for records at this distance in norm.

    >>> round(record_epsilon(1.0)), round(record_epsilon(28.0)) > 20_000
    (50, True)
    """
    # Mapped records move by at most the distance of the records, since a projection on orthonormal directions is a
    # contraction; the map itself is taken as fixed, as in the paper.
    return accountant.epsilon(distance / published_noise(epsilon, delta), delta)


# ---- federated learning ----------------------------------------------------------------------------------------------


def federated(
    sites: Sequence[Records],
    seed: int,
    *,
    rounds: int = ROUNDS,
    epochs: int = LOCAL_EPOCHS,
    noise: float = 0.0,
    clip: float | None = None,
    transcript: list[list[tuple[Weights, Weights]]] | None = None,
) -> Weights:
    """FedAvg; with a clip and noise on every client's weights, FL-DP, which starts from uniform weights.

    Parameters
    ----------
    sites : sequence of Records
        The clients.
    seed : int
        Seed of weights, batches and noise.
    rounds, epochs : int
        Rounds, and local epochs per round.
    noise : float
        Standard deviation of the noise on each weight.
    clip : float, optional
        Largest norm of all weights together.
    transcript : list, optional
        Receives what the server sees: for every round and client the weights sent and the weights returned.
    """
    rng, sizes = np.random.default_rng(seed), [len(site.y) for site in sites]
    inputs = sites[0].x.shape[1]
    algorithm = FLDPProgram(
        columns=(*(f"x{at}" for at in range(inputs)), "class"),
        lower=0.0,
        upper=1.0,
        classes=tuple(range(CLASSES)),
        largest_site=max(sizes),
        rounds=rounds,
        epochs=epochs,
        clip=_UNCLIPPED if clip is None else clip,
        initial="normal" if clip is None else "uniform",
        start=seed,
    )
    data = [Units(np.column_stack([site.x, site.y])) for site in sites]
    # Weights of FedAvg (McMahan et al. 2017, Algorithm 1) up to a factor that `Release.units` divides out again.
    shares = np.array(sizes) / max(sizes)

    def answer(request: Request) -> Release:
        statistic = cast(LocalTraining, request.statistic)
        # A client sends its weights as they are; the statistic weights them by the size of the site.
        sent = np.stack([statistic.total(own) / share for own, share in zip(data, shares, strict=True)])
        sent += noise * rng.standard_normal(sent.shape)
        if transcript is not None:
            returned = [perceptron.of_flat(own, inputs, CLASSES) for own in sent]
            transcript.append([(statistic.tensors, own) for own in returned])
        # Noise of the weighted sum: independent noise of each client, times its weight.
        std = noise * float(np.linalg.norm(shares))
        return Release(shares @ sent, std, sum(sizes), tuple(f"site {s + 1}" for s in range(len(sites))))

    weights = drive(algorithm.program(Adjacency.REPLACE_ONE), answer)[0]
    return perceptron.of_flat(np.asarray(weights["weights"]), inputs, CLASSES)


def federated_noise(
    epsilon: float, delta: float, records: int, rounds: int = ROUNDS, clip: float = CLIP, *, exact: bool = False
) -> float:
    """Noise of FL-DP on every weight of a client: as published, or (`exact`) so that all rounds together cost a record
    epsilon. In the proof a record may move a client's weights by 2C in each round."""
    if records < 1 or rounds < 1:
        raise BadParameter("federated learning needs a record and a round")
    if exact:
        # mu of J Gaussian releases of sensitivity 2C is 2C sqrt(J)/noise; no composition bound is needed.
        return 2 * clip * math.sqrt(rounds) / accountant.mu_for(epsilon, delta)
    # As published: the classical formula for the Gaussian mechanism, with linear composition over the rounds.
    return math.sqrt(2 * math.log(1.25 / delta)) * rounds * (2 * clip / records) / epsilon


def federated_epsilons(epsilon: float, delta: float, records: int, rounds: int = ROUNDS) -> tuple[float, float]:
    """Exact epsilon of FL-DP as published over all rounds at delta: if its sensitivity 2C/m held, and as proved (2C),
    which is the same for a record and for a whole client.

    >>> [round(each) for each in federated_epsilons(50.0, 0.01, 100)]
    [24, 130627]
    """
    noise = federated_noise(epsilon, delta, records, rounds)
    mu = 2 * CLIP * math.sqrt(rounds) / noise
    return accountant.epsilon(mu / records, delta), accountant.epsilon(mu, delta)
