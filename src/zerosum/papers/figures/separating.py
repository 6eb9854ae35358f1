"""One separation of synthetic brains, by Zerosum or as in capeDJICA or DP-djICA, with its privacy cost.

Zerosum pays for all steps. The papers' methods receive exactly whitened data, which is not private: on volumes divided
by their largest norm, as in the papers, their iteration makes no progress (without noise, 256 people: gain index 0.2238
at the start, 0.2233 after 1000 rounds, 0.193 on white data). With exact calibration they also receive the exact
subspace without cost. As published they find it by private PCA (`with_reduction` includes its cost for a person).

The papers use 1000 rounds with step 0.015/log R. With fewer rounds the step and the noise are changed so that the path,
the noise on it and the exact total epsilon stay the same: with 1/k of the rounds, k times the step and sqrt(k) times
the epsilon of a round. capeDJICA of 1024 people at an exact total of 276 has the Amari index 0.246 after 1000 rounds
(two seeds) and 0.248 or 0.250 after 20. Without noise the papers' tolerance ends djICA after 355 rounds at 0.264;
without tolerance it reaches 0.247, and compressed 0.248. DP-djICA, which has no such total, receives the larger step
only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from zerosum.algorithms.ica.program import ICAProgram
from zerosum.algorithms.metrics import amari_index, matched
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.data.bases import low_frequencies
from zerosum.data.fmri import Brains
from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.papers.figures.trial import run_trial
from zerosum.papers.methods import ica as published
from zerosum.papers.methods import ica_costs as costs
from zerosum.papers.methods import reduction
from zerosum.papers.methods.reduction import Scatters
from zerosum.papers.programs import CapeDJICAProgram, CapePCAProgram
from zerosum.papers.rehearsal import PublicData, published_tau
from zerosum.study import DEFAULT_SCHEME

# Colluding sites.
COLLUDERS = 1
# Names of methods.
OURS, OURS_PCA, OURS_ALONE, OURS_OPEN = "zerosum", "zerosum-pca", "zerosum-one-site", "zerosum-non-private"
OPEN, OPEN_TUNED, CAPE_TUNED, NOT_PRIVATE = "non-private", "non-private-tuned", "cape-djica-tuned", "dp-djica"
PAPERS_ROUNDS = published.PAPERS.rounds
TUNED = published.Settings(rounds=100, step=1.0)  # chosen by us for these data, where 100 rounds are enough


@dataclass(frozen=True)
class Trial:
    """A method at one budget.

    `epsilon` is the total for the exact calibration, and that of a round for the published one. `delta` is that of the
    total, `round_delta` that of the published noise.
    """

    method: str
    calibration: str = "none"
    epsilon: float = math.inf
    delta: float = 0.0
    round_delta: float = published.ROUND_DELTA


@dataclass(frozen=True)
class Separated:
    """Result in voxels, with its cost. Both epsilons are for a person."""

    unmixing: Floats  # R x D
    maps: Floats  # R x D
    rounds: int
    exact_epsilon: float  # of the iteration alone for the papers' methods; of all steps for ours
    with_reduction: float

    def amari_index(self, truth: Floats) -> float:
        """Normalised Amari index against the true maps."""
        return amari_index(self.unmixing, truth.T)

    def correlation(self, truth: Floats) -> float:
        """Mean correlation with the matched true maps."""
        return float(np.mean(matched(self.maps, truth).correlations))


def rehearsed(
    method: str, sites: Sequence[Units], epsilon: float, settings: published.Settings, rng: np.random.Generator
) -> tuple[Floats, int]:
    """The unmixing matrix of a published method on reduced data, and the number of rounds it made.

    Parameters
    ----------
    method : str
        A key of `zerosum.papers.methods.ica_costs.SCHEMES`, or "non-private" for djICA.
    sites : sequence of Units
        The people of each site, with R columns.
    epsilon : float
        Budget of one round at `settings.delta`, as published.
    settings : Settings
        Rounds, step and clip.
    rng : Generator
        Source of the noise.
    """
    R = sites[0].columns
    program = CapeDJICAProgram(
        columns=tuple(f"c{i}" for i in range(R)),
        n_components=R,
        rounds=settings.rounds,
        step=settings.step,
        clip=settings.clip,
        tolerance=settings.tolerance,
        upper_bound=settings.upper_bound,
    )
    data = PublicData(sites[:1] if method in costs.ONE_SITE_METHODS else sites)
    if method == OPEN:
        estimate = data.rehearse(program)
    else:
        estimate = data.rehearse(program, costs.SCHEMES[method], costs.round_tau(epsilon, settings.delta), rng)
    return np.asarray(estimate["unmixing"]), int(np.asarray(estimate["rounds"])[0])


class Separating:
    """A synthetic study, and all methods to separate it.

    Parameters
    ----------
    study : Brains
        The synthetic study.
    rounds : int
        Rounds of the papers' methods; fewer than 1000 are compressed.
    per_axis : int
        Cosines per axis of the public basis.
    """

    def __init__(self, study: Brains, rounds: int = PAPERS_ROUNDS, per_axis: int = 8) -> None:
        self.study = study
        self.R, self.D = study.maps.shape
        self.rounds = rounds
        self.basis = low_frequencies(math.isqrt(self.D), per_axis)
        self.points = int(study.sources[0].shape[1])

    def separate(self, trial: Trial, seed: int | None) -> Separated:
        """Run one trial. Without a seed Zerosum's noise comes from the operating system."""
        method = trial.method
        if method in (OURS, OURS_PCA, OURS_ALONE, OURS_OPEN):
            return self._ours(trial, seed)
        rng = np.random.default_rng([seed or 0, *method.encode()])
        if method in (OPEN, OPEN_TUNED):
            settings = TUNED if method == OPEN_TUNED else self._settings()
            return self._run(OPEN, self._exact_subspace, math.inf, settings, rng, math.inf, math.inf)
        if method == NOT_PRIVATE:
            return self._wishart(trial, rng)
        return self._published(trial, rng)

    # ---- Zerosum ---------------------------------------------------------------------------------------------------

    def _ours(self, trial: Trial, seed: int | None) -> Separated:
        """Run Zerosum."""
        basis = None if trial.method == OURS_PCA else self.basis
        private = trial.method != OURS_OPEN
        scheme = DEFAULT_SCHEME if private else "non-private"
        # a plan requires values, also without noise
        epsilon, delta = (trial.epsilon, trial.delta) if private else (1.0, 1e-5)
        if trial.method == OURS_ALONE:
            # The first site is its own trusted coordinator. A study needs two sites, so its people are divided in half.
            scheme, whole = "pooled", self._units(0, basis)
            half = len(whole) // 2 * self.points
            parts = {"first half": whole.rows[:half], "second half": whole.rows[half:]}
            units = {name: _people(rows, self.points) for name, rows in parts.items()}
        else:
            units = {f"site {s + 1}": self._units(s, basis) for s in range(self.study.sites)}
        columns = self.D if basis is None else basis.shape[1]
        question = ICAProgram(columns=tuple(f"v{i}" for i in range(columns)), n_components=self.R, per_recording="none")
        result = run_trial(
            question,
            units,
            epsilon=epsilon,
            delta=delta,
            scheme=scheme,
            colluders=COLLUDERS,
            seed=seed if private else None,
        )
        unmixing, maps = np.asarray(result.estimate["unmixing"]), np.asarray(result.estimate["maps"])
        if basis is not None:
            unmixing, maps = unmixing @ basis.T, maps @ basis.T
        exact = result.report.worst_epsilon if private else math.inf
        rounds = sum(line.statistic == "unmixing_score" for line in result.report.releases)
        return Separated(unmixing, maps, rounds, exact, exact)

    def _units(self, site: int, basis: Floats | None) -> Units:
        """People of a site. In the span of an orthonormal basis ICA depends on a volume only through its
        coordinates."""
        if basis is None:
            return _people(np.asarray(self.study.observed(site), dtype=np.float64).reshape(-1, self.D), self.points)
        return _people(self.study.projected(site, basis), self.points)

    # ---- published methods -----------------------------------------------------------------------------------------

    @property
    def _people(self) -> int:
        """People at each site. The papers' sites are of equal size."""
        if len(set(self.study.people)) > 1:
            raise BadParameter(f"the papers' methods need sites of equal size, got {self.study.people}")
        return self.study.people[0]

    @cached_property
    def _largest(self) -> float:
        """Largest squared norm of all volumes, which is not private."""
        if self.study.noise > 0:
            return self.study.largest_norm() ** 2
        # Without noise this span contains all volumes, and norms in it are faster to compute.
        span = np.linalg.qr(np.concatenate(self.study.site_maps).T)[0]
        rows = [self.study.projected(s, span) for s in range(self.study.sites)]
        return max(float(np.max(np.einsum("ni,ni->n", own, own))) for own in rows)

    @cached_property
    def _scatters(self) -> Scatters:
        """Sums over the volumes of each site, divided by the largest norm as in the papers."""
        volumes = self._people * self.points
        sums = [self.study.second_moment(s) / self._largest * volumes for s in range(self.study.sites)]
        return Scatters(sums, volumes)

    @cached_property
    def _reduction(self) -> CapePCAProgram:
        """The published reduction to R directions."""
        return CapePCAProgram(columns=tuple(f"v{i}" for i in range(self.D)), n_components=self.R, clip=1.0)

    @cached_property
    def _exact_subspace(self) -> Floats:
        """Leading R directions without noise, shape (D, R)."""
        return np.asarray(self._scatters.rehearse(self._reduction)["components"]).T

    def _settings(self, round_delta: float = published.ROUND_DELTA) -> published.Settings:
        """The papers' settings, compressed to the chosen number of rounds."""
        step = published.PAPERS.first_step(self.R) * PAPERS_ROUNDS / self.rounds
        return published.Settings(rounds=self.rounds, step=step, delta=round_delta)

    def _published(self, trial: Trial, rng: np.random.Generator) -> Separated:
        """Run a published private method."""
        method = "cape-djica" if trial.method == CAPE_TUNED else trial.method
        settings = TUNED if trial.method == CAPE_TUNED else self._settings(trial.round_delta)
        sites = {"sites": self.study.sites, "colluders": COLLUDERS}
        if trial.calibration == "exact":
            epsilon = costs.epsilon_for_exact(
                method, settings.rounds, trial.epsilon, delta=settings.delta, total_delta=trial.delta, **sites
            )
            subspace, whole = self._exact_subspace, trial.epsilon
        else:
            # Fewer rounds at a larger epsilon of a round: the mu of all rounds stays that of 1000.
            epsilon = trial.epsilon * math.sqrt(PAPERS_ROUNDS / settings.rounds)
            subspace = self._noisy_subspace(method, trial.epsilon, settings.delta, rng)
            before = costs.reduction_mu(trial.epsilon, settings.delta, points=self.points, **sites)
            # `reduction_mu` is for capePCA; other methods have another cost per release.
            before *= math.sqrt(costs.price(method, **sites) / costs.price("cape-djica", **sites))
            after = costs.exact_mu(method, settings.rounds, epsilon, delta=settings.delta, **sites)
            # mu of the reduction and of the iteration add up in squares; the conversion to epsilon comes last, once.
            whole = accountant.epsilon(math.hypot(before, after), trial.delta)
        exact = costs.exact_epsilon(
            method, settings.rounds, epsilon, delta=settings.delta, total_delta=trial.delta, **sites
        )
        return self._run(method, subspace, epsilon, settings, rng, exact, whole)

    def _noisy_subspace(self, method: str, epsilon: float, delta: float, rng: np.random.Generator) -> Floats:
        """Private PCA of each method, with noise for a single volume, as published; shape (D, R)."""
        scatters = self._scatters
        if method in costs.ONE_SITE_METHODS:
            scatters = Scatters(scatters.scatters[:1], scatters.units[0])
        estimate = scatters.rehearse(self._reduction, costs.SCHEMES[method], published_tau(epsilon, delta), rng)
        return np.asarray(estimate["components"]).T

    def _wishart(self, trial: Trial, rng: np.random.Generator) -> Separated:
        """Run DP-djICA."""
        subspace = reduction.private_global_pca(self._scatters.scatters, self.R, trial.epsilon, rng)
        sites = [rows.astype(np.float32) for rows in self._projected(subspace)]
        estimate = published.dp_djica(sites, trial.epsilon, rng, self._settings(), ambient=self.D)
        return self._in_voxels(estimate.W, subspace, estimate.rounds, math.inf, math.inf)

    def _run(
        self,
        method: str,
        subspace: Floats,
        epsilon: float,
        settings: published.Settings,
        rng: np.random.Generator,
        exact: float,
        whole: float,
    ) -> Separated:
        """Reduce, whiten, rehearse a method, and map the result back to voxels."""
        moment = self._largest * subspace.T @ np.mean(self._scatters.scatters, axis=0) @ subspace
        projection = subspace @ reduction.whitening(moment / self._scatters.units[0])
        sites = [_people(rows.astype(np.float32), self.points) for rows in self._projected(projection)]
        W, rounds = rehearsed(method, sites, epsilon, settings, rng)
        return self._in_voxels(W, projection, rounds, exact, whole)

    def _projected(self, projection: Floats) -> list[Floats]:
        """Volumes of each site along the columns of a projection (D, R)."""
        return [self.study.projected(s, projection) for s in range(self.study.sites)]

    def _in_voxels(self, W: Floats, projection: Floats, rounds: int, exact: float, whole: float) -> Separated:
        """The result for voxels of an unmixing matrix for projected data."""
        unmixing = W @ projection.T
        maps = np.asarray(np.linalg.pinv(unmixing).T, dtype=np.float64)
        return Separated(unmixing, maps, rounds, exact, whole)


def _people(rows: Floats, points: int) -> Units:
    """Units of `points` rows each."""
    return Units(rows, np.arange(0, len(rows) + 1, points, dtype=np.int64))
