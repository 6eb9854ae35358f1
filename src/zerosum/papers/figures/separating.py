"""One separation of made-up brains, by Zerosum or as in capeDJICA or DP-djICA, with what it cost.

Zerosum pays for everything. The papers' methods are given exactly whitened data, which is not private: on volumes
divided by their largest norm, as the papers have them, their iteration does not move (without noise, 256 people: gain
index 0.2238 at the start, 0.2233 after 1000 rounds, 0.193 on white data). Calibrated exactly they also get the exact
subspace for nothing; as published they find it by private PCA (`with_reduction` says what that is worth for a person).

The papers go 1000 rounds of step 0.015/log R. In fewer rounds the step and the noise are changed so that the way, the
noise on it and the exact total epsilon stay the same: with a kth of the rounds k times the step, and sqrt(k) times the
epsilon of a round. capeDJICA of 1024 people at an exact total of 276 has the Amari index 0.246 after 1000 rounds (two
seeds) and 0.248 or 0.250 after 20. Without noise the papers' tolerance ends djICA after 355 rounds at 0.264; without
tolerance it comes to 0.247, and compressed to 0.248. DP-djICA, which has no such total, is given the larger step alone.

Tested in tests/papers/test_figures_ica.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from zerosum.algorithms.ica import ICA
from zerosum.algorithms.metrics import amari_index, matched
from zerosum.arrays import Floats
from zerosum.data.bases import low_frequencies
from zerosum.data.fmri import Brains
from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.kernel.units import Units
from zerosum.papers.figures.trial import run_trial
from zerosum.papers.methods import ica as published
from zerosum.papers.methods import ica_costs as costs
from zerosum.papers.methods import pca, reduction
from zerosum.study import DEFAULT_SCHEME

COLLUDERS = 1
OURS, OURS_PCA, OURS_ALONE, OURS_OPEN = "zerosum", "zerosum-pca", "zerosum-one-site", "zerosum-non-private"
OPEN, OPEN_TUNED, CAPE_TUNED, NOT_PRIVATE = "non-private", "non-private-tuned", "cape-djica-tuned", "dp-djica"
PAPERS_ROUNDS = published.PAPERS.rounds
TUNED = published.Settings(rounds=100, step=1.0)  # by us, for the data at hand: 100 rounds are then enough


@dataclass(frozen=True)
class Trial:
    """A method at one price. `epsilon` is the total where the calibration is exact and a round's where it is published.

    `delta` is that of the total, `round_delta` the one in the published noise.
    """

    method: str
    calibration: str = "none"
    epsilon: float = math.inf
    delta: float = 0.0
    round_delta: float = published.ROUND_DELTA


@dataclass(frozen=True)
class Separated:
    """What was found, in voxels, and for how much: both epsilons are a person's."""

    unmixing: Floats  # R x D
    maps: Floats  # R x D
    rounds: int
    exact_epsilon: float  # of the iteration alone for the papers' methods, as they count; all of it for ours
    with_reduction: float

    def amari_index(self, truth: Floats) -> float:
        return amari_index(self.unmixing, truth.T)

    def correlation(self, truth: Floats) -> float:
        return float(np.mean(matched(self.maps, truth).correlations))


class Separating:
    """A study, and every way to separate it."""

    def __init__(self, study: Brains, rounds: int = PAPERS_ROUNDS, per_axis: int = 8) -> None:
        self.study = study
        self.R, self.D = study.maps.shape
        self.rounds = rounds
        self.basis = low_frequencies(math.isqrt(self.D), per_axis)
        self.points = int(study.sources[0].shape[1])

    def separate(self, trial: Trial, seed: int | None) -> Separated:
        """Carry out one trial; without a seed Zerosum's own noise comes from the operating system."""
        method = trial.method
        if method in (OURS, OURS_PCA, OURS_ALONE, OURS_OPEN):
            return self._ours(trial, seed)
        rng = np.random.default_rng([seed or 0, *method.encode()])
        if method in (OPEN, OPEN_TUNED):
            settings = TUNED if method == OPEN_TUNED else self._settings()
            return self._run(published.djica, self._exact_subspace, math.inf, settings, rng, math.inf, math.inf)
        if method == NOT_PRIVATE:
            return self._wishart(trial, rng)
        return self._published(trial, rng)

    # ---- ours ------------------------------------------------------------------------------------------------------

    def _ours(self, trial: Trial, seed: int | None) -> Separated:
        basis = None if trial.method == OURS_PCA else self.basis
        private = trial.method != OURS_OPEN
        scheme = DEFAULT_SCHEME if private else "non-private"
        epsilon, delta = (trial.epsilon, trial.delta) if private else (1.0, 1e-5)  # a plan has some, noise or not
        if trial.method == OURS_ALONE:
            # the first site is its own trusted coordinator; a study has two sites, so it is cut in half
            scheme, whole = "pooled", self._units(0, basis)
            half = len(whole) // 2 * self.points
            parts = {"first half": whole.rows[:half], "second half": whole.rows[half:]}
            units = {name: _people(rows, self.points) for name, rows in parts.items()}
        else:
            units = {f"site {s + 1}": self._units(s, basis) for s in range(self.study.sites)}
        columns = self.D if basis is None else basis.shape[1]
        question = ICA(columns=tuple(f"v{i}" for i in range(columns)), n_components=self.R, per_recording="none")
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
        """A site's people. In the span of an orthonormal basis ICA sees no more of a volume than its coordinates."""
        if basis is None:
            return _people(np.asarray(self.study.observed(site), dtype=np.float64).reshape(-1, self.D), self.points)
        return _people(self.study.projected(site, basis), self.points)

    # ---- the papers ------------------------------------------------------------------------------------------------

    @property
    def _people(self) -> int:
        """At each site; the papers' are of equal size."""
        if len(set(self.study.people)) > 1:
            raise BadParameter(f"the papers' methods need sites of equal size, got {self.study.people}")
        return self.study.people[0]

    @cached_property
    def _largest(self) -> float:
        """The largest squared norm of all volumes, which is not private."""
        if self.study.noise > 0:
            return self.study.largest_norm() ** 2
        span = np.linalg.qr(np.concatenate(self.study.site_maps).T)[0]  # holds all there is, and is quicker
        rows = [self.study.projected(s, span) for s in range(self.study.sites)]
        return max(float(np.max(np.einsum("ni,ni->n", own, own))) for own in rows)

    @cached_property
    def _moments(self) -> list[Floats]:
        """Of volumes divided by the largest norm of all, as the papers have it."""
        return [self.study.second_moment(s) / self._largest for s in range(self.study.sites)]

    @cached_property
    def _exact_subspace(self) -> Floats:
        return reduction.non_private(self._moments, self.R)

    def _settings(self, round_delta: float = published.ROUND_DELTA) -> published.Settings:
        step = published.PAPERS.first_step(self.R) * PAPERS_ROUNDS / self.rounds
        return published.Settings(rounds=self.rounds, step=step, delta=round_delta)

    def _published(self, trial: Trial, rng: np.random.Generator) -> Separated:
        method = "cape-djica" if trial.method == CAPE_TUNED else trial.method
        settings = TUNED if trial.method == CAPE_TUNED else self._settings(trial.round_delta)
        sites = {"sites": self.study.sites, "colluders": COLLUDERS}
        if trial.calibration == "exact":
            epsilon = costs.epsilon_for_exact(
                method, settings.rounds, trial.epsilon, delta=settings.delta, total_delta=trial.delta, **sites
            )
            subspace, whole = self._exact_subspace, trial.epsilon
        else:
            epsilon = trial.epsilon * math.sqrt(PAPERS_ROUNDS / settings.rounds)
            subspace = self._noisy_subspace(method, trial.epsilon, settings.delta, rng)
            before = costs.reduction_mu(trial.epsilon, settings.delta, points=self.points, **sites)
            before *= math.sqrt(costs.price(method, **sites) / costs.price("cape-djica", **sites))
            after = costs.exact_mu(method, settings.rounds, epsilon, delta=settings.delta, **sites)
            whole = accountant.epsilon(math.hypot(before, after), trial.delta)
        exact = costs.exact_epsilon(
            method, settings.rounds, epsilon, delta=settings.delta, total_delta=trial.delta, **sites
        )
        return self._run(published.METHODS[method], subspace, epsilon, settings, rng, exact, whole)

    def _noisy_subspace(self, method: str, epsilon: float, delta: float, rng: np.random.Generator) -> Floats:
        """Each method's own private PCA, with noise for the 1/n of a single volume, as published."""
        volumes = self._people * self.points
        tau = pca.published_tau(epsilon, delta, volumes)
        if method == "cape-djica":
            return reduction.cape(self._moments, self.R, tau, rng)
        if method == "pooled":
            tau = pca.published_tau(epsilon, delta, volumes * self.study.sites)
            return pca.top(np.mean(self._moments, axis=0) + pca.symmetric_noise(self.D, tau, rng), self.R)
        chosen = self._moments[:1] if method == "single-site" else self._moments
        noisy = [moment + pca.symmetric_noise(self.D, tau, rng) for moment in chosen]
        return pca.top(np.mean(noisy, axis=0), self.R)

    def _wishart(self, trial: Trial, rng: np.random.Generator) -> Separated:
        volumes = self._people * self.points
        scatters = [moment * volumes for moment in self._moments]
        subspace = reduction.private_global_pca(scatters, self.R, trial.epsilon, rng)
        settings = self._settings()
        method = partial(published.dp_djica, ambient=self.D)
        return self._run(method, subspace, trial.epsilon, settings, rng, math.inf, math.inf, white=False)

    def _run(
        self,
        method: published.Method,
        subspace: Floats,
        epsilon: float,
        settings: published.Settings,
        rng: np.random.Generator,
        exact: float,
        whole: float,
        white: bool = True,
    ) -> Separated:
        projection = subspace
        if white:
            moment = self._largest * subspace.T @ np.mean(self._moments, axis=0) @ subspace
            projection = subspace @ reduction.whitening(moment)
        sites = [self.study.projected(s, projection).astype(np.float32) for s in range(self.study.sites)]
        found = method(sites, self._people, epsilon, rng, settings)
        unmixing = found.W @ projection.T
        maps = np.asarray(np.linalg.pinv(unmixing).T, dtype=np.float64)
        return Separated(unmixing, maps, found.rounds, exact, whole)


def _people(rows: Floats, points: int) -> Units:
    return Units(rows, np.arange(0, len(rows) + 1, points, dtype=np.int64))
