"""Comparison of schemes: one study under each scheme, on public or synthetic data, with seeds and without spending.

Unlike a forecast, this runs the whole protocol with sites, messages and ledgers, so every scheme is measured as it
would run. The noise comes from seeds and the data are public, so that a comparison can be repeated; nothing is
protected, and the policies of sites must permit that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from zerosum.arrays import Array, Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter, BadStudy, PolicyRefused, ZerosumError
from zerosum.forecast.assumptions import Assumptions
from zerosum.forecast.empirical_population import MAX_ELEMENTS
from zerosum.forecast.forecasting import OnStep
from zerosum.forecast.measures import Line, Measure, measure_of
from zerosum.forecast.populations import population_of
from zerosum.forecast.settings import Setting, split_by_site, study_in_setting
from zerosum.forecast.structures import structures_of
from zerosum.kernel.schemes import DEFAULT_SCHEME, SCHEMES
from zerosum.kernel.terms import Calibration
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study.entries import SchemeTable
from zerosum.study.planning import pin
from zerosum.study.running import execute_in_process
from zerosum.study.study_file import Study

# Name that selects all schemes.
ALL = "all"
# Default number of runs per scheme. Chosen by hand; no benchmark recorded.
SEEDS = 5
# The scheme without noise, which gives the reference result.
WITHOUT = "non-private"
_MEMORY = Path("/dev/shm")  # noqa: S108 ledgers of seeded runs are discarded and need no disk
_AS_PUBLISHED = ("local", "cape-published")  # Schemes that are also run with the papers' noise formulas.


@dataclass(frozen=True)
class SchemeLine:
    """Result of one scheme.

    `error` is the root mean square, over the numbers of a result and over seeds, of the difference from the result
    without privacy. For algorithms that are evaluated by a loss it is the root mean square loss. `low` and `high` are
    the smallest and largest error over the seeds.
    """

    scheme: str
    calibration: Calibration
    trusted: str
    error: float | None = None
    low: float | None = None
    high: float | None = None
    epsilon: float | None = None  # exact epsilon of the site with the largest cost; None for no privacy
    refused: str = ""  # reason why the scheme cannot run this study
    hidden: float = 0.0  # Mean number of values per run that noise suppresses. `error` is over the remaining values.

    @property
    def heading(self) -> str:
        """Name of the scheme for tables."""
        return f"{self.scheme}, as published" if self.calibration == "published" else self.scheme


@dataclass(frozen=True)
class Comparison:
    """One study under several schemes, each with the same seeds."""

    study: str
    algorithm: str
    unit: str
    data: str
    seeds: int
    lines: tuple[SchemeLine, ...]
    loss: bool = False  # Whether errors are losses. The result without privacy then has a nonzero error too.
    spent = "nothing: the data are public or made up, the noise comes from seeds, and no ledger was charged"

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form."""
        own = {name: getattr(self, name) for name in ("study", "algorithm", "unit", "data", "seeds", "loss", "spent")}
        return own | {"schemes": [asdict(line) for line in self.lines]}


def compare(
    study: Study,
    schemes: Sequence[str] = (ALL,),
    *,
    seeds: int = SEEDS,
    made_up: bool = False,
    assumptions: Assumptions | None = None,
    people: int | None = None,
    on_step: OnStep = lambda done, planned: None,
) -> Comparison:
    """Run a study under each scheme, several seeds each.

    Parameters
    ----------
    study : Study
        The study. Its sites' data are used, and their policies must declare them public or synthetic.
    schemes : sequence of str
        Scheme names, or "all".
    seeds : int
        Runs per scheme, at least 2.
    made_up : bool
        Use synthetic data from public assumptions instead of the sites' data.
    assumptions : Assumptions, optional
        Assumptions about the synthetic data.
    people : int, optional
        Number of synthetic units; by default as the roster declares.
    on_step : callable
        Receives (done, planned) after each run.

    Raises
    ------
    BadParameter
        If the algorithm has no accuracy measure, or a parameter is invalid.
    PolicyRefused
        If a policy declares the data private.
    """
    if seeds < 2:
        raise BadParameter("a spread needs at least two seeds")
    chosen = _chosen(schemes)
    algorithm = study.build_algorithm()
    measure = measure_of(algorithm)
    if measure is None:
        raise BadParameter(
            f"no comparison is offered for the algorithm {study.algorithm!r}: no single figure measures the "
            "quality of its result"
        )
    if made_up:
        study = study_in_setting(study, Setting.of(study, people))
        data, description, anchor = _synthetic_data(study, assumptions or Assumptions(), people)
    else:
        data, description, anchor = (
            _own_data(study),
            "the sites' own, which their policies call public or synthetic",
            None,
        )
    description += measure.reference_clause(anchor)
    planned = len(chosen) * seeds + 1
    with TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        runner = _Runner(study, data, Path(folder))
        # The reference of all errors.
        truth = runner.run(WITHOUT, "exact", 0)
        if measure.make_anchor is not None and anchor is None:
            anchor = measure.make_anchor(truth.estimate)
        read = _ResultReader(measure, _together(data), anchor)
        # A loss is absolute, so its reference is 0 instead of the result without privacy.
        whole = np.zeros(len(read.counted)) if measure.loss else read(truth)
        lines = []
        for number, (scheme, calibration) in enumerate(chosen):
            on_step(1 + number * seeds, planned)
            facts = SCHEMES[scheme]
            errors, hidden = [], 0
            try:
                # Without noise all runs are equal.
                for seed in range(seeds if facts.noisy else 1):
                    result = runner.run(scheme, calibration, seed)
                    gaps = read(result) - whole
                    # A value is NaN when noise suppresses it. Values that are NaN without noise too are not counted.
                    hidden += int(np.sum(np.isnan(gaps) & ~np.isnan(whole)))
                    if not np.all(np.isnan(gaps)):
                        errors.append(math.sqrt(float(np.nanmean(gaps**2))))
                    on_step(2 + number * seeds + seed, planned)
            # A scheme may be refused for this study: the table shows the reason, and the other schemes go on.
            except ZerosumError as error:
                lines.append(SchemeLine(scheme, calibration, facts.trusted_party, refused=str(error)))
                continue
            if not errors:
                lines.append(
                    SchemeLine(scheme, calibration, facts.trusted_party, refused="noise hides all of the result")
                )
                continue
            # Root mean square over seeds, then the smallest and the largest.
            figures = (math.sqrt(float(np.mean(np.square(errors)))), min(errors), max(errors))
            worst = result.report.worst_epsilon
            exact = worst if math.isfinite(worst) else None
            gone = hidden / (seeds if facts.noisy else 1)
            lines.append(SchemeLine(scheme, calibration, facts.trusted_party, *figures, epsilon=exact, hidden=gone))
    return Comparison(study.name, study.algorithm, measure.unit, description, seeds, tuple(lines), measure.loss)


@dataclass(frozen=True)
class _ResultReader:
    """Reads the numbers of a result that count, each divided by its scale.

    Attributes
    ----------
    measure : Measure
        How the result is evaluated.
    all_units : Units
        Data of all sites together.
    anchor : array or None
        Reference for matching (centres, maps, topics) or evaluation.
    """

    measure: Measure
    all_units: Units
    anchor: Floats | None

    @property
    def counted(self) -> list[Line]:
        """The lines of the measure that count."""
        return [line for line in self.measure.lines if line.counts]

    def __call__(self, result: Result) -> Floats:
        """Scaled values, array of shape (n_counted,)."""
        values = self.measure.values(result.estimate, self.all_units, self.anchor)
        counting = np.array([line.counts for line in self.measure.lines])
        return np.asarray(values[counting] / [line.scale for line in self.counted])


def _chosen(schemes: Sequence[str]) -> list[tuple[str, Calibration]]:
    """Pairs of scheme and calibration, in the order of the table. Raises `BadParameter` for unknown names."""
    names = [name for each in schemes for name in each.split(",")]
    if unknown := [name for name in names if name not in (ALL, *SCHEMES)]:
        raise BadParameter(f"unknown scheme {unknown[0]!r}; there are {ALL}, {', '.join(SCHEMES)}")
    # A single scheme is run with the exact calibration; the papers' formulas are compared with `all` only.
    if ALL not in names:
        return [(name, "exact") for name in dict.fromkeys(names)]
    published: list[tuple[str, Calibration]] = [(name, "published") for name in _AS_PUBLISHED]
    # The two bounds of what is possible, then the default, then the others.
    first = [WITHOUT, "pooled", DEFAULT_SCHEME]
    return [*((name, "exact") for name in (*first, *(name for name in SCHEMES if name not in first))), *published]


def _own_data(study: Study) -> dict[str, Units]:
    """Data of the sites by name. All policies are checked before any data are read."""
    files = {file.name: file for file in study.site_files}
    if missing := [site.name for site in study.sites if site.name not in files]:
        raise BadStudy(
            f"the study names no data for {', '.join(map(repr, missing))}: give their site files, or compare "
            "on made-up people (--made-up)"
        )
    # All policies first: one private site is enough to refuse, and nothing has been read by then.
    for file in files.values():
        if file.load_policy(study.unit.kind, study.unit.adjacency).data == "private":
            raise PolicyRefused(
                f"site {file.name!r}: its data are private, and a comparison runs without privacy and with seeds: its "
                "policy must call them public or synthetic, or compare on made-up people (--made-up)"
            )
    algorithm = study.build_algorithm()
    return {site.name: study.read_units(files[site.name], algorithm) for site in study.sites}


def _synthetic_data(
    study: Study, assumptions: Assumptions, people: int | None
) -> tuple[dict[str, Units], str, Floats | None]:
    """Synthetic data by site, a description of the assumptions, and the true parameters (or None)."""
    algorithm = study.build_algorithm()
    # What is not stated is completed as typical, as for a forecast.
    assumptions = structures_of(algorithm, assumptions, study.full_design)[0].assumptions
    population = population_of(algorithm, assumptions, study.full_design)
    if population is None:
        raise BadParameter(f"there are no synthetic data for the algorithm {study.algorithm!r}: give public data")
    count = Setting.of(study, people).people
    if count * population.numbers_each > MAX_ELEMENTS:
        raise BadParameter(
            f"{count} made-up people would be {count * population.numbers_each:.2g} numbers, too many for a "
            f"comparison: give --people {MAX_ELEMENTS // population.numbers_each} or fewer"
        )
    all_units = population.people(count, np.random.default_rng(18))
    parts = split_by_site(all_units, [site.units or 1 for site in study.sites])
    description = f"made up: {population.description}"
    return {site.name: part for site, part in zip(study.sites, parts, strict=True)}, description, population.truth


def _together(data: dict[str, Units]) -> Units:
    """Concatenation of the data of all sites."""
    if any(units.is_sparse for units in data.values()):
        rows: Array = csr_array(vstack([units.rows for units in data.values()]))
    else:
        rows = np.vstack([np.asarray(units.rows, dtype=np.float64) for units in data.values()])
    if all(units.offsets is None for units in data.values()):
        return Units(rows)
    # Rows of each unit; a table without offsets has one.
    each = [np.ones(len(u), dtype=np.int64) if u.offsets is None else np.diff(u.offsets) for u in data.values()]
    return Units(rows, np.concatenate([[0], np.cumsum(np.concatenate(each))]))


class _Runner:
    """Runs one study on fixed data with temporary ledgers in `folder`."""

    def __init__(self, study: Study, data: dict[str, Units], folder: Path) -> None:
        self.study, self.data, self.folder, self._count = study, data, folder, 0

    def run(self, scheme: str, calibration: Calibration, seed: int) -> Result:
        """One seeded run under a scheme."""
        self._count += 1
        privacy = self.study.privacy.model_copy(update={"calibration": calibration, "random_state": seed})
        # Only the cape schemes support other combinations than sums.
        combine = {} if scheme.startswith("cape") else {"combine": SchemeTable().combine}
        table = self.study.scheme.model_copy(update={"name": scheme, **combine})
        # Every run creates its sites anew, so the roster must not pin identities.
        sites = tuple(site.model_copy(update={"identity": None}) for site in self.study.sites)
        study = self.study.model_copy(update={"privacy": privacy, "scheme": table, "sites": sites, "site_files": ()})
        members = list(self._members(study))
        return execute_in_process(pin(study.plan(), members), study.build_algorithm(), members)

    def _members(self, study: Study) -> Iterator[Site]:
        """Yield the sites, each with a new temporary ledger."""
        for at, (name, units) in enumerate(self.data.items()):
            # A new name for each run and site: a ledger remembers the studies that were charged to it.
            ledger = self.folder / f"{self._count}-{at}.sqlite"
            settings = {"unit": study.unit.kind, "adjacency": study.unit.adjacency, "delta": study.privacy.delta}
            yield Site(name, units, Policy.throwaway(name, ledger, **settings))
