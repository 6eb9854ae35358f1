"""Principal components: the releases of each path, that is the statistics that sites compute and their shares.

Every statistic is a sum over units of a matrix of norm at most 1, of one column of it, of its product with an
orthonormal basis, or a histogram of norms (`zerosum.statistics.scatter`, which has the proofs of the sensitivities).
Centre, lift, clip and basis of a release are public: they follow from earlier releases. No sensitivity depends on them.
The table of the paths is in `pca.program`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zerosum.algorithms.pca.planning import PCAPlanning
from zerosum.algorithms.pca.spectrum import first_basis
from zerosum.algorithms.pca.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.rounded_scatter import RoundedScatter
from zerosum.statistics.scatter import Scatter, ScatterColumn, ScatterNorms, ScatterProduct


class PCAReleases(PCAPlanning):
    """The requests of `PCAProgram`, in the order of its paths."""

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """Templates of the chosen path, in the order of the table of the module docstring. Centre, lift, clip and basis
        are placeholders: the sensitivity depends on none of them.
        """
        center = self._first_center
        if self._has_centring:
            norms = self._histogram_request(center)
            small = [
                each
                for number in range(self._centring_count)
                for each in (norms, self._centring_request(center, 1.0, number))
            ]
            main = (
                (self._main_request(center, 1.0, 1.0),)
                if self.chosen == "matrix"
                else tuple(
                    self._augmented_product_request(center, 1.0, self._first_basis(), s) for s in self.schedule.shares
                )
            )
            return (*small, norms, *main)
        if self.chosen == "matrix":
            damped = [self._matrix_request(center, np.zeros((len(self.columns),) * 2))] if self.passes == 2 else []
            return (self._matrix_request(center), *damped)
        return tuple(self._product_request(center, self._first_basis(), share) for share in self.schedule.shares)

    def _includes_matrix(self, number: int) -> bool:
        """Whether centring round `number` (from 0) releases the whole matrix, rather than the last column.

        With four rounds all do, since they may be added to the main release. With two only the last does, for the
        spectrum by which the clip is chosen, and only if its share exceeds `TUNING.column_share`. A column costs a site
        no matrix product. The subspace solver always takes the column.
        """
        share = self.look_share or TUNING.centring_share_least
        wanted = self._centring_count == 4 or (number == 1 and share > TUNING.column_share)
        return self.chosen == "matrix" and wanted

    @property
    def _matrix_statistic(self) -> type[Scatter]:
        """The statistic of a whole matrix."""
        return RoundedScatter if self.rounded else Scatter

    def _unit_parameters(self, center: Floats) -> dict[str, Any]:
        """Parameters of `UnitMoment`. A scale of ones is left out of the request.

        Parameters
        ----------
        center : array of shape (D,)
            In the units of the data.
        """
        scale = {"scale": self.scale} if self.scaling != "none" else {}
        unit = {"columns": len(self.columns), "center": center, "per_recording": self.per_recording}
        return unit | scale | self.filling

    def _matrix_parameters(self, center: Floats) -> dict[str, Any]:
        """Parameters of `Scatter` about a public centre."""
        return self._unit_parameters(center) | {"clip": self._public_clip, "normalise": self.normalise}

    @property
    def _histogram_parameters(self) -> dict[str, Any]:
        """Parameters of the histogram of norms."""
        return {"lowest": TUNING.histogram_span * self.reach, "highest": self.reach, "bins": TUNING.histogram_bins}

    def _histogram_request(self, center: Floats) -> PrivateSum:
        """Request of a histogram of the norms of the units' matrices about `center`."""
        statistic = ScatterNorms(**self._unit_parameters(center), **self._histogram_parameters)
        return PrivateSum(statistic, TUNING.histogram_share)

    def _centring_request(self, center: Floats, lift: float, number: int) -> PrivateSum:
        """Request of centring round `number`: augmented rows, each unit's matrix divided by its own norm.

        Parameters
        ----------
        center : array of shape (D,)
            The current centre.
        lift : float
            a, in the units of scaled rows.
        number : int
            Number of the centring round, from 0.
        """
        kind = self._matrix_statistic if self._includes_matrix(number) else ScatterColumn
        return PrivateSum(kind(**self._unit_parameters(center), lift=lift), self._centring_share)

    def _main_request(self, center: Floats, lift: float, clip: float) -> PrivateSum:
        """Request of the main release: augmented rows, each unit's matrix divided by max(clip, its norm).

        Parameters
        ----------
        center : array of shape (D,)
            The centre by the centring rounds.
        lift : float
            a.
        clip : float
            c, the norm of a unit's matrix at which it is clipped.
        """
        parameters = self._unit_parameters(center) | {"lift": lift, "clip": clip, "normalise": False}
        return PrivateSum(self._matrix_statistic(**parameters), self._main_share)

    def _augmented_product_request(self, center: Floats, lift: float, basis: Floats, share: float) -> PrivateSum:
        """Request of a round of products with augmented rows; `share` is a share of what the centring leaves.

        Parameters
        ----------
        center : array of shape (D,)
            The centre.
        lift : float
            a.
        basis : array of shape (D, width)
            Orthonormal columns.
        share : float
            Share of `_main_share`.
        """
        # The augmented basis is block-diagonal: `basis` (D x width) and a 1 for the lift, still orthonormal.
        beside = np.zeros((basis.shape[0] + 1, basis.shape[1] + 1))
        beside[:-1, :-1], beside[-1, -1] = basis, 1.0
        return PrivateSum(
            ScatterProduct(**self._unit_parameters(center), lift=lift, basis=beside), self._main_share * share
        )

    def _matrix_request(self, center: Floats, damped: Floats | None = None) -> PrivateSum:
        """Request of a whole matrix about a public centre: the only one, the first of two, or the second, which has
        its projection in `damped` (D x D).

        Parameters
        ----------
        center : array of shape (D,)
            The public centre.
        damped : array of shape (D, D), optional
            Projection of the second pass.
        """
        if self.passes == 1:
            return PrivateSum(self._matrix_statistic(**self._matrix_parameters(center)))
        share = TUNING.first_pass_share if damped is None else 1 - TUNING.first_pass_share
        return PrivateSum(Scatter(**self._matrix_parameters(center), projection=damped), share)

    def _product_request(self, center: Floats, basis: Floats, share: float) -> PrivateSum:
        """Request of a round of products about a public centre.

        Parameters
        ----------
        center : array of shape (D,)
            The public centre.
        basis : array of shape (D, width)
            Orthonormal columns.
        share : float
            Share of the whole budget.
        """
        return PrivateSum(ScatterProduct(**self._matrix_parameters(center), basis=basis), share)

    def _first_basis(self) -> Floats:
        """The public first basis, D x (K + extra)."""
        return first_basis(len(self.columns), self.n_components + self.schedule.extra, self.start)
