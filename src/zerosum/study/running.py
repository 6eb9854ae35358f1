"""From a plan to a result: `zerosum.run` over sites in memory, and execution of a program over any engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from os import PathLike
from typing import Literal

from numpy.typing import ArrayLike

from zerosum.algorithms import ALGORITHMS, Algorithm
from zerosum.compute.units import Units
from zerosum.coordinator.conduct import conduct
from zerosum.coordinator.journal import Journal
from zerosum.data.frames import is_frame, is_text
from zerosum.data.tables import units_of
from zerosum.engines.base import Engine
from zerosum.engines.in_process import InProcess
from zerosum.engines.tree import Tree
from zerosum.errors import BadData, BadParameter, ZerosumError
from zerosum.kernel.names import check_name
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import Calibration, NoiseChoice, PlannedSite, Terms
from zerosum.protocol.progress import Observer, nobody
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study.archive import ArchiveWriter, is_archived
from zerosum.study.budget import Budget
from zerosum.study.checkpoint import Checkpoint
from zerosum.study.planning import (
    Provenance,
    check_measures,
    coalition_of,
    make_plan,
    resolve,
    result_of,
    roster_with_identities,
)

Unit = Literal["person", "record"]


def execute(
    plan: Plan, algorithm: Algorithm, engine: Engine, observer: Observer = nobody, journal: Journal | None = None
) -> Result:
    """Run the program of a plan over an engine, or continue from its journal.

    Parameters
    ----------
    plan : Plan
        Pinned plan.
    algorithm : Algorithm
        The program of the plan; open parameters are resolved from the plan's terms.
    engine : Engine
        Transport to the sites.
    observer : callable
        Receives progress reports.
    journal : Journal, optional
        Records requests and releases. Rounds that it already holds are not requested again.
    """
    program = resolve(algorithm, plan).program(plan.adjacency)
    outcome = conduct(plan, program, engine, observer, journal)
    return result_of(outcome)


def execute_in_process(
    plan: Plan, algorithm: Algorithm, sites: Sequence[Site], observer: Observer = nobody, journal: Journal | None = None
) -> Result:
    """Run a plan with all its sites in this process.

    A run that charges a ledger is archived (`zerosum.study.archive`), and the result is on disk before it is returned.

    Parameters
    ----------
    plan : Plan
        Pinned plan.
    algorithm : Algorithm
        The program of the plan.
    sites : sequence of Site
        All sites of the roster.
    observer : callable
        Receives progress reports.
    journal : Journal, optional
        The journal of a checkpoint; by default the archive has one.
    """
    for site in sites:
        try:
            # Before the first request. Under add-remove a refusal by the number of units is for the owner of the data
            # only.
            site.check_data()
        except ZerosumError as error:
            raise error.about(f"site {site.name!r}") from None
    with closing(InProcess(sites)) as engine, ExitStack() as stack:
        writer = (
            stack.enter_context(ArchiveWriter(plan, algorithm, sites, journal)) if is_archived(plan, sites) else None
        )
        # The archive reserves disk space first: a release that cannot be stored must not be paid for.
        program = resolve(algorithm, plan).program(plan.adjacency)
        recorded = journal if writer is None else writer.journal
        # Without a tree the engine reaches all sites itself.
        carrier = Tree(plan, engine) if plan.parents else engine
        result = result_of(conduct(plan, program, carrier, observer, recorded))
        return result if writer is None else writer.conclude(result)


def run(
    algorithm: Algorithm,
    sites: Mapping[str, ArrayLike | Units | Site],
    *,
    epsilon: float,
    delta: float,
    scheme: str | Scheme = DEFAULT_SCHEME,
    colluders: int | None = None,
    dropouts: int = 0,
    unit: Unit | None = None,
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE,
    results_to_sites: bool = True,
    policies: Mapping[str, Policy] | None = None,
    calibration: Calibration = "exact",
    random_state: int | None = None,
    attempts: int = 0,
    observer: Observer = nobody,
    checkpoint: str | PathLike[str] | None = None,
    measured_in: Mapping[str, str] | None = None,
    budget: Budget | None = None,
    name: str | None = None,
    noise: NoiseChoice = "gaussian",
) -> Result:
    """Run a program of `zerosum.algorithms` over sites held in memory. Each call spends budget again.

    A site without a policy gets the default one. Its ledger, under the site's name, lies in the user's state folder and
    is charged as in any other study.

    Parameters
    ----------
    algorithm : Algorithm
        The question: `zerosum.algorithms.MeanProgram(...)` and so on. Estimators have their own `fit`.
    sites : dict of str to array, frame, Units or Site
        Data by site name. Each row of an array is a unit. Of a frame (pandas, polars, Arrow) the columns named in the
        program are read, and categories may be text.
    epsilon, delta : float
        Upper bound on the cost of the whole study for any one unit.
    scheme : str or Scheme, default="secure-sum"
        How the noise of the sites combines.
    colluders : int, optional
        Number of sites that may collude with the coordinator; by default max(1, ceil(S/3) - 1) of S sites.
    dropouts : int, default=0
        Number of sites that may be lost in a round.
    unit : "person" or "record", optional
        What is protected. Required for plain tables, whose rows could be either. `Units` with owners of rows hold
        persons.
    adjacency : Adjacency, default=Adjacency.REPLACE_ONE
        Neighbouring data sets differ by one replaced unit, or by one added or removed unit.
    results_to_sites : bool, default=True
        Whether sites receive the result.
    policies : dict of str to Policy, optional
        Policies by site name.
    calibration : {"exact", "published"}, default="exact"
        Noise from the exact privacy cost, or from the papers' formulas.
    random_state : int, optional
        Seed of a reproducible run. It gives no privacy, so sites with private data refuse it.
    attempts : int, default=0
        Number of rounds, in all, that may be repeated after a loss or a kill. They are paid for in advance by more
        noise, whether they are used or not.
    observer : callable, optional
        Called after every round with the numbers of finished and planned rounds.
    checkpoint : path, optional
        Folder in which the state of the study is stored. A second call with the same folder resumes a killed study. For
        a finished study it returns the stored result and spends nothing.
    measured_in : dict of str to str, optional
        Unit of measurement by column name, stored with the result.
    budget : Budget, optional
        Shared budget of several studies. A study beyond it is refused.
    name : str, optional
        Name of the study in ledgers and reports; by default the name of its algorithm.
    noise : {"auto", "gaussian", "laplace"}, default="gaussian"
        Law of the noise. "auto" takes the one with the smaller noise for means and histograms that are one release, and
        Gaussian noise for all other programs.

    Returns
    -------
    Result
        The estimate, the privacy report and the participants.

    Raises
    ------
    ZerosumError
        If the question or the data are invalid, or a site refuses.
    """
    _check_program(algorithm)
    if not isinstance(sites, Mapping):
        raise BadParameter("sites must be a dict with the data of each site by its name")
    coalition = coalition_of(colluders, dropouts, len(sites))
    chosen = scheme if isinstance(scheme, Scheme) else Scheme(scheme)
    # A misspelt name would leave its site with the default policy.
    if unknown := set(policies or {}) - set(sites):
        raise BadParameter(f"there is no site named {', '.join(map(repr, sorted(unknown)))} for the policy given")
    try:
        adjacency = Adjacency(adjacency)
    except ValueError:
        raise BadParameter(f"adjacency must be 'replace-one' or 'add-remove', got {adjacency!r}") from None
    # All tables are read before the plan is made, so that a table that cannot be read costs nothing.
    tables = {site: _units(data, algorithm, site) for site, data in sites.items()}
    unit = declared_unit(unit, tables.values(), seeded=random_state is not None)
    stored = None if checkpoint is None else Checkpoint(checkpoint)
    members = []
    for site_name, data in sites.items():
        check_name("a site", site_name.strip() if isinstance(site_name, str) else "")
        # A `Site` has its own policy and identity, so `policies` and `checkpoint` do not apply to it.
        if isinstance(data, Site):
            if data.name != site_name:
                raise BadParameter(f"the site {data.name!r} was given under the name {site_name!r}")
            members.append(data)
            continue
        policy = (policies or {}).get(site_name) or Policy(population=site_name, unit=unit, adjacency=adjacency)
        members.append(
            Site(
                site_name,
                tables[site_name],
                policy,
                None if stored is None else stored.identity(site_name, tables[site_name]),
            )
        )
    # Under replace-one counts are public. Under add-remove they are private and not part of the plan.
    counted = adjacency is Adjacency.REPLACE_ONE
    shapes = [PlannedSite(site.name, len(site.units) if counted else None) for site in members]
    terms = Terms(
        unit=unit,
        adjacency=adjacency,
        epsilon=epsilon,
        delta=delta,
        scheme=chosen,
        coalition=coalition,
        sites=roster_with_identities(members, shapes),
        results_to_sites=results_to_sites,
        calibration=calibration,
        seed=random_state,
        attempts=attempts,
    )
    provenance = Provenance({"measured_in": check_measures(measured_in, algorithm.columns)} if measured_in else {})
    plan = make_plan(algorithm, terms, algorithm.name if name is None else name, provenance, noise)
    # Sites consent independent of the values of their rows, since a refusal would reveal data. The caller of this
    # function holds the data, so an error here may name a column.
    _name_missing(algorithm, members)
    for request in resolve(algorithm, plan).requests(adjacency):
        for site in members:
            request.statistic.check(site.units)
            request.statistic.check_values(site.units)
    with ExitStack() as stack:
        journal = None if stored is None else stack.enter_context(stored.journal(plan, members))
        # A resumed study was charged to the budget when it began.
        if budget is not None and not (journal is not None and journal.rounds):
            observer = stack.enter_context(budget.paying(plan, observer))
        return execute_in_process(plan if journal is None else journal.plan, algorithm, members, observer, journal)


def _name_missing(algorithm: Algorithm, members: Iterable[Site]) -> None:
    """Raise `BadData` with the column that has missing values without a rule. For the owner of the data only."""
    for site in members:
        try:
            algorithm.check_missing(site.units)
        except BadData as error:
            raise error.about(f"site {site.name!r}") from None


def declared_unit(unit: Unit | None, tables: Iterable[Units], *, seeded: bool) -> Unit:
    """The protected unit: as declared, or as given by the data.

    Parameters
    ----------
    unit : "person", "record" or None
        The declared unit.
    tables : iterable of Units
        Data of the sites. A plain row may be a person or a record, so plain tables need a declaration.
    seeded : bool
        Whether the run is a reproduction, which protects no one. Then a default is chosen.

    >>> declared_unit(None, [Units.from_list([[[1.0], [2.0]], [[3.0]]])], seeded=False)
    'person'
    """
    if unit not in (None, "person", "record"):
        raise BadParameter(f"unit must be 'person' or 'record', got {unit!r}")
    if unit is not None:
        return unit
    plain = [table.offsets is None for table in tables]
    # Owners of rows were given, so rows are not the protected unit.
    if not any(plain):
        return "person"
    if not seeded:
        raise BadParameter(
            "declare the protected unit: unit='person' if every row is a different person, unit='record' if rows are "
            "protected one by one"
        )
    return "record" if all(plain) else "person"


def _units(data: ArrayLike | Units | Site, algorithm: Algorithm, name: str) -> Units:
    """Units of one site from any accepted type of data."""
    if isinstance(data, Site):
        return data.units
    if isinstance(data, Units):
        return data
    if is_frame(data) or is_text(data):
        columns, label = algorithm.columns, f"the data of site {name!r}"
        return units_of(data, label, columns=columns, categories=algorithm.categories, missing=algorithm.rules)
    try:
        return Units.from_rows(data)
    except (TypeError, ValueError) as error:
        if isinstance(error, ZerosumError):
            raise
        raise BadData(f"the data of site {name!r} are not a table of numbers") from None


def _check_program(algorithm: object) -> None:
    """Raise `BadParameter` for an object that is not a program, with the call to use instead."""
    if isinstance(algorithm, Algorithm):
        return
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    if issubclass(kind, Algorithm):
        raise BadParameter(f"give the program its parameters: zerosum.algorithms.{kind.__name__}(...)")
    # By the name of the module: this package may not import estimators (tests/test_architecture.py).
    known = next((each for each in kind.__mro__ if each.__module__.startswith("zerosum.estimators.")), None)
    if known is not None:
        program = ALGORITHMS.get(getattr(known, "_algorithm", ""))
        instead = "" if program is None else f", or run zerosum.algorithms.{program.__name__}(...)"
        raise BadParameter(f"zerosum.{known.__name__} is an estimator: call .fit(sites){instead}")
    raise BadParameter(
        f"run takes a program, such as zerosum.algorithms.MeanProgram(...), got an object of type {kind.__name__!r}"
    )
