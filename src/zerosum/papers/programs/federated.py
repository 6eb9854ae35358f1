"""FedAvg and FL-DP, the baselines of the Data Collaboration paper (McMahan et al. 2017; Wei et al. 2020, "NbAFL").

Model. A network of rectified units on p features in [0, 1], with weights w (n numbers). In each round every site trains
it from the current public weights on its own records, for `epochs` passes of Adam over shuffled batches, and clips the
trained weights to norm C. One release holds the sum over sites, each weighted by its number of units n_s over the
public number M of the largest site (`LocalTraining`). The next weights are the mean:

    w <- (sum over s of (n_s/M) w_s + noise) / (sum over s of n_s/M).

The scheme decides which published method this is: `local` is FL-DP, in which every client adds its own noise;
`non-private` with a large clip is FedAvg. Under `secure-sum` only the sum is readable, and needs less noise.

Sensitivity. 2C in every round, for a record and for a whole site alike: one record can move the result of training
anywhere in the ball. NbAFL claims 2C/m for m records at the smallest client, which assumes that training is a mean of
separate results; it is not proved (docs/papers.md). So noise does not decrease with the number of records at a site,
only with the number of sites. That server adds noise of its own if there are more rounds than sqrt(clients) times the
exposures of a client; here every client is exposed in every round, so that it adds none.

Choices where the papers are incomplete: the DC-DP paper states neither rounds, local epochs nor C. The defaults are 10,
2 and 15, chosen by hand; uniform first weights of its network have norm 15.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from zerosum.algorithms.program import Program
from zerosum.algorithms.training.network import RowClassifier
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.grid import MOST_UNITS
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import perceptron
from zerosum.statistics.local_training import LocalTraining

# Rounds, local epochs and clip; see the module's docstring.
ROUNDS, LOCAL_EPOCHS, CLIP = 10, 2, 15.0


class FLDPProgram(RowClassifier):
    """Federated averaging as published, with noise (FL-DP) or without (FedAvg). `columns` are the features and, last,
    the class. `zerosum.NeuralClassifier` is the better method on the same budget.

    Results: `weights` in one flat vector, layer by layer, and `noise_std`, the noise of a weight in the last mean.
    """

    name: ClassVar[str] = "fl-dp"

    largest_site: int = Field(gt=0, le=MOST_UNITS)
    """M, the public number of units of the largest site. A site with more counts as one of M: the mean is too small."""
    hidden: tuple[int, ...] = perceptron.HIDDEN
    """Units of each hidden layer."""
    rounds: int = Field(default=ROUNDS, gt=0, le=10_000)
    """Rounds; each has an equal share of the budget."""
    epochs: int = Field(default=LOCAL_EPOCHS, gt=0, le=1000)
    """Passes of a site over its rows in each round."""
    clip: float | None = Field(default=CLIP, gt=0, le=1e9)
    """C, the largest norm of a site's trained weights."""
    step: float = Field(default=perceptron.STEP, gt=0, le=1e3)
    """Step of Adam."""
    initial: Literal["uniform", "normal"] = "uniform"
    """The public first weights: uniform in +-1/sqrt(fan-in), or normal with variance 2/fan-in (He et al. 2015)."""
    start: int = Field(default=0, ge=0, lt=2**62)
    """Public seed of the first weights and of the order of the rows."""

    def first_weights(self) -> Floats:
        """The first weights (n,), from the public seed `start`."""
        normal = self.initial == "normal"
        return perceptron.flat(
            perceptron.start(self.features, len(self.classes), self.start, self.hidden, normal=normal)
        )

    def statistic(self, weights: Floats, turn: int = 0) -> LocalTraining:
        """The statistic of a round at these weights (n,)."""
        return LocalTraining(
            columns=len(self.columns),
            lower=self.lower,
            upper=self.upper,
            classes=len(self.classes),
            # Statistics see features in [-1, 1]; the network has them in [0, 1].
            center=-np.ones(self.features),
            scale=np.full(self.features, 2.0),
            hidden=self.hidden,
            weights=weights,
            clip=CLIP if self.clip is None else self.clip,
            epochs=self.epochs,
            step=self.step,
            # Batches of another order in every round.
            seed=self.start + turn,
            largest_site=self.largest_site,
            **self.filling,
        )

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One sum for each round; refuses add-remove neighbours."""
        if adjacency is not Adjacency.REPLACE_ONE:
            raise BadParameter(
                "fl-dp weights sites by their number of units, which add-remove neighbours keep secret: plan it with "
                "replace-one neighbours"
            )
        return (PrivateSum(self.statistic(self.first_weights()), 1 / self.rounds),) * self.rounds

    def program(self, adjacency: Adjacency) -> Program:
        """The rounds: local training at each site, then the weighted mean of the weights."""
        weights, noise = self.first_weights(), 0.0
        for turn in range(self.rounds):
            # Every round is planned at the first weights and asked at the current ones: the sensitivity 2C does not
            # depend on them.
            release = yield PrivateSum(self.statistic(weights, turn), 1 / self.rounds)
            sites = (release.units or 1.0) / self.largest_site
            # `units` is the public sum of n_s, so that this divides by the sum over s of n_s/M.
            weights, noise = release.value / sites, release.noise_std / sites
        return {
            "weights": Quantity(weights, "coefficient"),
            "noise_std": Quantity(np.array([noise]), "diagnostic"),
        }
