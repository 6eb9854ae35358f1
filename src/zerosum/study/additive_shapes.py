"""Shape functions, predictions and explanations from the result of an additive model: free post-processing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from zerosum import algorithms
from zerosum.algorithms.additive.program import AdditiveModelProgram
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.report.record import Result


@dataclass(eq=False)
class AdditiveShapes:
    """A released additive model.

    Parameters
    ----------
    program : AdditiveModelProgram
        Public parameters of the study.
    result : Result
        Its result.
    """

    program: AdditiveModelProgram
    result: Result

    @classmethod
    def of(cls, result: Result) -> AdditiveShapes:
        """The model of a result.

        Raises
        ------
        BadParameter
            If the result is of another algorithm.
        """
        if result.plan.algorithm != AdditiveModelProgram.name:
            raise BadParameter(
                f"shape functions need a result of {AdditiveModelProgram.name!r}, got one of {result.plan.algorithm!r}"
            )
        question = result.plan.question
        program = algorithms.build(AdditiveModelProgram.name, {**question.parameters, "columns": question.columns})
        assert isinstance(program, AdditiveModelProgram)  # noqa: S101  # by the name above
        return cls(program, result)

    @property
    def constant(self) -> float:
        """The constant: log odds, or the unit of the response."""
        return float(self.result.estimate["constant"][0])

    @property
    def _ends(self) -> list[int]:
        """The first cell of each term among all, and the end."""
        return [0, *np.cumsum(self.result.estimate["term_cells"].value).astype(int).tolist()]

    def shape(self, term: str) -> Quantity:
        """The function of a term: the effect of each cell, with mean 0 over the units.

        Parameters
        ----------
        term : str
            A column, or a pair as "a x b".
        """
        if term not in self.program.term_names:
            raise BadParameter(f"there is no term {term!r}: the terms are {', '.join(self.program.term_names)}")
        at = self.program.term_names.index(term)
        low, high = self._ends[at : at + 2]
        found = self.result.estimate["effects"]
        labels = tuple(label.removeprefix(f"{term} = ") for label in found.axes[0].labels[low:high])
        return Quantity(found.value[low:high], "coefficient", (Axis(term, labels),))

    def cells(self, rows: Floats) -> NDArray[np.intp]:
        """The cell of each row in every term, counted from the first cell of all; shape (rows, terms).

        Parameters
        ----------
        rows : array of shape (rows, columns without the response)
            Numbers and codes of levels, NaN where a value is missing.
        """
        return self.program.cells_of(self.result.estimate, rows)

    def contributions(self, rows: Floats) -> Floats:
        """The effect of every term in each row, shape (rows, terms); with the constant they add up to the predictor.

        Parameters
        ----------
        rows : array of shape (rows, columns without the response)
            As for `cells`.
        """
        return np.asarray(self.result.estimate["effects"].value[self.cells(rows)])

    def predictor(self, rows: Floats) -> Floats:
        """Log odds of the second class, or the expected response within its public range; shape (rows,).

        Parameters
        ----------
        rows : array of shape (rows, columns without the response)
            As for `cells`.
        """
        return self.program.predictor(self.result.estimate, rows)

    def probability(self, rows: Floats) -> Floats:
        """Probability of the second class, shape (rows,).

        Parameters
        ----------
        rows : array of shape (rows, columns without the response)
            As for `cells`.
        """
        return np.asarray(expit(self.predictor(rows)))

    def explain(self, rows: Floats) -> list[dict[str, Any]]:
        """For each row its terms from the largest to the smallest effect, after the constant.

        Parameters
        ----------
        rows : array of shape (rows, columns without the response)
            As for `cells`.
        """
        effects, names = self.contributions(rows), self.program.term_names
        found = []
        for own in effects:
            order = np.argsort(-np.abs(own), kind="stable")
            found.append({"constant": self.constant, **{names[at]: float(own[at]) for at in order.tolist()}})
        return found
