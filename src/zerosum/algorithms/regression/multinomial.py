"""Multinomial logistic regression over sites: Newton rounds of all classes together.

Model
-----
With features u (width D) in a frame (`base`) and coefficients W (K - 1, D), class 0 being the reference,

    log P(class k)/P(class 0) = u.W_k,  k = 1..K - 1.

A round releases at the current W, in one vector (`MultinomialStep`, sensitivity 2 sqrt(2) whatever K is), the gradient
g ((K - 1) D) and the negative Hessian H of the log-likelihood. Releases are merged by `shrinkage.average`, and the next
W is the posterior mean under a normal prior around 0 (`shrinkage.shrunk_posterior`), as for two classes (`glm`). A long
row has less weight in g and in H alike.

The first round is at W = 0, where all classes have probability 1/K. There is no other start: the quadratic that starts
a model of two classes has a second release of a higher sensitivity.

Releases: column moments (optional), Newton rounds. Posterior, scores and intervals are free post-processing.

Reference: A. Agresti, Categorical Data Analysis, chapter 8 (baseline-category logits).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.program import Program, PublicFacts
from zerosum.algorithms.regression.base import Frame, counted_units
from zerosum.algorithms.regression.glm import NewtonRegression, Scale
from zerosum.algorithms.regression.inference import GradientRelease, Posterior, table
from zerosum.algorithms.regression.shrinkage import average, moved, shrunk_posterior
from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.significance import joint_wald
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.multinomial import MultinomialStep
from zerosum.statistics.regression import Family


class MultinomialRegressionProgram(NewtonRegression):
    """Multinomial logistic regression of three classes or more.

    Results: `coefficients` for each class but the reference, the intercept last in each ("class: column"), with the
    errors, intervals and tests of `Regression`; `score_coefficients` (K - 1, p) and `score_intercept` (K - 1,), from a
    narrower prior, for predictions.
    """

    name: ClassVar[str] = "multinomial-regression"
    family: ClassVar[Family] = "logistic"
    classes: tuple[str | float | bool, ...] = Field(min_length=3, max_length=1000)
    """The public classes, the reference first; with `[design]` the levels of the response."""

    @model_validator(mode="after")
    def _classes_fit(self) -> Self:
        """Refuse what this model does not have, and a range of the response that is not that of the codes."""
        if len(set(map(str, self.classes))) < len(self.classes):
            raise ValueError("classes must differ, also as text")
        if self.offset is not None:
            raise ValueError("a multinomial regression has no offset")
        if self.evaluate_share:
            raise ValueError("a multinomial regression has no evaluation: evaluate_share and hold_out must be 0")
        if self.lower is not None and self.upper is not None:
            ends, last = (float(self.lower[-1]), float(self.upper[-1])), len(self.classes) - 1
            if ends != (0.0, float(last)):
                raise ValueError(f"the response is a code from 0 to {last}, got the range {ends[0]:g} to {ends[1]:g}")
        if self.order > (most := TUNING.class_coefficients_most):
            raise ValueError(
                f"classes times columns give {self.order} coefficients, and at most {most} are fitted: take fewer "
                "columns, or the feature-classifier"
            )
        return self

    @property
    def order(self) -> int:
        """Number of coefficients of all classes, the intercepts included."""
        return (len(self.classes) - 1) * (self.features + int(self.intercept))

    @property
    def _plan(self) -> str:
        """The rounds in words."""
        return f"{self._turns} Newton rounds for {len(self.classes)} classes"

    def _coefficient_noise(self, facts: PublicFacts, width: int, room: float) -> float:
        """As for two classes, with the sensitivity 2 sqrt(2) and the typical Hessian p (1 - p) of K equal classes."""
        share = 1 / len(self.classes)
        typical = TUNING.hessian_typical * share * (1 - share) / 0.25
        return 2 * math.sqrt(2 * room * width) * self._unit_noise(facts) / typical

    def _step(self, frame: Frame, at: Floats, adjacency: Adjacency, scale: Scale) -> Any:
        bounds = self._bounds(frame, adjacency)
        return MultinomialStep(**bounds, classes=len(self.classes), coefficients=at.reshape(-1, frame.width))

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The column moments (optional) and the Newton rounds."""
        frame = self._frame(*self._rooms)
        statistic = self._step(frame, np.zeros(self.order), adjacency, Scale(0.5, 0.5))
        return (*self._bought(adjacency), *[PrivateSum(statistic, share) for share in self._shares()])

    def program(self, adjacency: Adjacency) -> Program:
        """The optional column moments, then Newton rounds from W = 0."""
        frame = yield from self._measure(adjacency, *self._rooms)
        at, units, others = np.zeros(self.order), 1.0, len(self.classes) - 1
        points: list[GradientRelease] = []
        prior = np.ones(self.order)
        bend = TUNING.remainder * frame.clip / math.sqrt(frame.width)
        for share in self._shares():
            statistic = self._step(frame, at, adjacency, Scale(0.5, 0.5))
            release = yield PrivateSum(statistic, share)
            units = counted_units(release)
            gradient, hessian = statistic.split(release.value)
            points.append(
                GradientRelease(
                    at,
                    gradient / units,
                    hessian / units,
                    statistic.clip * release.noise_std / units,
                    statistic.hessian_scale * release.noise_std / units,
                )
            )
            # As for two classes: the posterior mean of all points so far is the next point of expansion.
            point = average(points, bend)
            prior = self._priors(frame, point)
            at = shrunk_posterior(point, prior / TUNING.step_prior).mean
        mean = shrunk_posterior(point, prior).mean
        near = moved(point, mean, bend)
        # The sampling variance of the mean gradient is H/n. Rows of less weight make the estimate differ from that of
        # all rows in full by part of it.
        loss = self._loss(frame) / units
        pooled = shrunk_posterior(near, prior, loss, cautious=True)
        population = shrunk_posterior(near, prior, 1 / units, cautious=True)
        # A narrower prior of the slopes makes the scores less variable; that of the intercepts stays.
        slopes = np.append(np.full(self.features, TUNING.score_prior), np.ones(frame.width - self.features))
        scores = shrunk_posterior(point, prior / np.tile(slopes, others)).mean
        return self._coefficients(frame, mean, pooled, population, prior) | self._scores(frame, scores)

    def _priors(self, frame: Frame, point: GradientRelease) -> Floats:
        """Prior standard deviations of all coefficients, class by class as in `_prior`, shape (order,).

        Parameters
        ----------
        frame : Frame
            How features enter.
        point : GradientRelease
            The merged releases; the block of a class in its Hessian has the weights p_k (1 - p_k).
        """
        D = frame.width
        blocks = [point.hessian[at : at + D, at : at + D] for at in range(0, self.order, D)]
        return np.concatenate([self._prior(frame, block, point.hessian_noise) for block in blocks])

    def _coefficients(
        self, frame: Frame, mean: Floats, pooled: Posterior, population: Posterior, prior: Floats
    ) -> dict[str, Quantity]:
        """Coefficients of all classes with errors, intervals and tests, in the units of the data.

        Parameters
        ----------
        frame : Frame
            How features entered.
        mean : array of shape (order,)
            Coefficients in the frame.
        pooled, population : Posterior
            Without and with sampling error; only the covariances are used.
        prior : array of shape (order,)
            Prior standard deviations in the frame.
        """
        # A model without an intercept has a last row of zeros, which is left out.
        rows = slice(None) if self.intercept else slice(0, -1)
        own = self._in_data_units(frame)[0][rows]
        matrix = np.kron(np.eye(len(self.classes) - 1), own)  # one block for each class
        found = matrix @ mean
        known = np.sqrt((matrix**2) @ prior**2)
        covariances = {
            kind: matrix @ each.covariance @ matrix.T for kind, each in (("pooled", pooled), ("population", population))
        }
        results = table(found, covariances["pooled"], covariances["population"], known)
        terms = [*self.columns[: self.features], *(["intercept"] if self.intercept else [])]
        names = tuple(f"{each}: {term}" for each in self.classes[1:] for term in terms)
        slopes = np.array([not name.endswith(": intercept") for name in names])
        axis, ends = Axis("coefficient", names), Axis("end", ("lower", "upper"))
        estimate = {name: Quantity(each, "diagnostic", (axis, ends)[: each.ndim]) for name, each in results.items()}
        if slopes.any():
            chosen = covariances["population"][np.ix_(slopes, slopes)]
            statistic, _, p = joint_wald(found[slopes], chosen)
            estimate["wald_statistic"] = Quantity(np.array([statistic]), "diagnostic")
            estimate["wald_p_value"] = Quantity(np.array([p]), "diagnostic")
        covariances["identified"] = TUNING.identified_ratio**2 * (matrix * prior**2) @ matrix.T
        if len(names) <= TUNING.covariances_most:
            estimate |= {
                f"{kind}_covariance": Quantity(each, "diagnostic", (axis, axis)) for kind, each in covariances.items()
            }
        return {"coefficients": Quantity(found, "coefficient", (axis,), results["pooled_std"]), **estimate}

    def _scores(self, frame: Frame, scores: Floats) -> dict[str, Quantity]:
        """The coefficients `scores` (order,) in the units of the data, for predictions."""
        others = tuple(str(each) for each in self.classes[1:])
        whole = scores.reshape(-1, frame.width) @ self._in_data_units(frame)[0].T
        by_class = Axis("class", others)
        features = Axis("coefficient", self.columns[: self.features])
        return {
            "score_coefficients": Quantity(whole[:, :-1], "coefficient", (by_class, features)),
            "score_intercept": Quantity(whole[:, -1], "coefficient", (by_class,)),
        }
