"""From a plan to a result: `zerosum.run` over sites held in memory, and a program over any engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from os import PathLike
from typing import Literal

from numpy.typing import ArrayLike

from zerosum.algorithms import Algorithm
from zerosum.coordinator.conduct import conduct
from zerosum.coordinator.journal import Journal
from zerosum.data.frames import is_frame, is_text
from zerosum.data.tables import units_of
from zerosum.engines.base import Engine
from zerosum.engines.in_process import InProcess
from zerosum.errors import BadData, BadParameter, ZerosumError
from zerosum.kernel.names import check_name
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import Calibration, PlannedSite, Terms
from zerosum.kernel.units import Units
from zerosum.protocol.progress import Observer, nobody
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study.budget import Budget
from zerosum.study.checkpoint import Checkpoint
from zerosum.study.kept import Keeping, is_kept
from zerosum.study.planning import MadeOf, check_measures, coalition_of, identified, make_plan, resolve, result_of

Unit = Literal["person", "record"]


def execute(
    plan: Plan, algorithm: Algorithm, engine: Engine, observer: Observer = nobody, journal: Journal | None = None
) -> Result:
    """Run a plan's program over an engine, or go on where its journal ends."""
    program = resolve(algorithm, plan).program(plan.adjacency)
    outcome = conduct(plan, program, engine, observer, journal)
    return result_of(outcome)


def execute_here(
    plan: Plan, algorithm: Algorithm, sites: Sequence[Site], observer: Observer = nobody, journal: Journal | None = None
) -> Result:
    """Run a plan with all its sites in this process. Whatever is spent is kept (`zerosum.study.kept`), and the result
    is on the disk before anybody hears of it."""
    for site in sites:
        try:
            site.check_data()
        except ZerosumError as error:
            raise error.about(f"site {site.name!r}") from None
    with closing(InProcess(sites)) as engine:
        if not is_kept(plan, sites):
            return execute(plan, algorithm, engine, observer, journal)
        with Keeping(plan, algorithm, sites, journal) as keeping:
            return keeping.conclude(execute(plan, algorithm, engine, observer, keeping.journal))


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
) -> Result:
    """Run a program of `zerosum.algorithms` over sites held in memory. Running again is spending again.

    A site without a policy of its own gets the default one: its ledger, under the site's name, lies in the user's state
    folder, and the spend is as real as in any study.

    Parameters
    ----------
    algorithm : Algorithm
        What is asked: `zerosum.algorithms.Mean(...)` and so on. Estimators have a `fit` of their own.
    sites : dict of str to array, frame, Units or Site
        The data of each site by its name; every row of an array is a unit. Of a frame (pandas, polars, Arrow) the
        columns are read that the program names, and categories may be text.
    epsilon, delta : float
        What the whole study may cost any one unit.
    scheme : str or Scheme, default="secure-sum"
        How sites' noise combines.
    colluders : int, optional
        Sites that may collude with the coordinator, by default a third less one, at least one.
    dropouts : int, default=0
        Sites that may be lost on the way.
    unit : "person" or "record", optional
        What is protected. It must be said where rows are plain tables, which could be either; `Units` that say whose
        each row is hold persons.
    adjacency : Adjacency, default=Adjacency.REPLACE_ONE
        Whether a neighbour has one unit replaced, or one added or removed.
    results_to_sites : bool, default=True
        Whether sites are told the result.
    policies : dict of str to Policy, optional
        Sites' own policies by name, used as they are.
    calibration : {"exact", "published"}, default="exact"
        Whether noise follows the exact cost or the papers' formulas.
    random_state : int, optional
        A number makes a reproduction run, which protects nobody: sites with private data refuse it.
    attempts : int, default=0
        How many rounds, in all, may be tried once more after a loss or a kill. They are paid for in advance, with more
        noise, whether they are used or not.
    observer : callable, optional
        Hears after every round how many are done, and how many were planned.
    checkpoint : path, optional
        A folder in which the study survives its process. Called again with the same folder, a study that was killed
        goes on where it was, and one that is over gives its result again and spends nothing.
    measured_in : dict of str to str, optional
        The unit of measurement of columns, by name; it goes with the result wherever that goes.
    budget : Budget, optional
        What several studies may cost together; what goes beyond is refused.
    name : str, optional
        What the study is called in ledgers and reports; by default as its algorithm is.

    Returns
    -------
    Result
        The estimate, the privacy report, and who took part.

    Raises
    ------
    ZerosumError
        What is wrong with the question or the data, or which site refuses and why.
    """
    _check_program(algorithm)
    if not isinstance(sites, Mapping):
        raise BadParameter("sites must be a dict with the data of each site by its name")
    coalition = coalition_of(colluders, dropouts, len(sites))
    chosen = scheme if isinstance(scheme, Scheme) else Scheme(scheme)
    if strangers := set(policies or {}) - set(sites):
        raise BadParameter(f"there is no site named {', '.join(map(repr, sorted(strangers)))} for the policy given")
    try:
        adjacency = Adjacency(adjacency)
    except ValueError:
        raise BadParameter(f"adjacency must be 'replace-one' or 'add-remove', got {adjacency!r}") from None
    tables = {site: _units(data, algorithm, site) for site, data in sites.items()}
    unit = declared_unit(unit, tables.values(), seeded=random_state is not None)
    kept = None if checkpoint is None else Checkpoint(checkpoint)
    members = []
    for called, data in sites.items():
        check_name("a site", called.strip() if isinstance(called, str) else "")
        if isinstance(data, Site):
            if data.name != called:
                raise BadParameter(f"the site {data.name!r} was given under the name {called!r}")
            members.append(data)
            continue
        policy = (policies or {}).get(called) or Policy(population=called, unit=unit, adjacency=adjacency)
        members.append(
            Site(called, tables[called], policy, None if kept is None else kept.identity(called, tables[called]))
        )
    counted = adjacency is Adjacency.REPLACE_ONE  # counts are public; otherwise they are data
    shapes = [PlannedSite(site.name, len(site.units) if counted else None) for site in members]
    terms = Terms(
        unit=unit,
        adjacency=adjacency,
        epsilon=epsilon,
        delta=delta,
        scheme=chosen,
        coalition=coalition,
        sites=identified(members, shapes),
        results_to_sites=results_to_sites,
        calibration=calibration,
        seed=random_state,
        attempts=attempts,
    )
    made_of = MadeOf({"measured_in": check_measures(measured_in, algorithm.columns)} if measured_in else {})
    plan = make_plan(algorithm, terms, algorithm.name if name is None else name, made_of)
    # Sites agree whatever their rows hold. The caller of this function holds the data, so an error may name a column.
    _name_missing(algorithm, members)
    for request in resolve(algorithm, plan).requests(adjacency):
        for site in members:
            request.statistic.check(site.units)
            request.statistic.check_values(site.units)
    with ExitStack() as stack:
        journal = None if kept is None else stack.enter_context(kept.journal(plan, members))
        if budget is not None and not (journal is not None and journal.rounds):  # one that goes on was paid for
            observer = stack.enter_context(budget.paying(plan, observer))
        return execute_here(plan if journal is None else journal.plan, algorithm, members, observer, journal)


def _name_missing(algorithm: Algorithm, members: Iterable[Site]) -> None:
    """Tell the owner of the data in which column values are missing and have no rule."""
    for site in members:
        try:
            algorithm.check_missing(site.units)
        except BadData as error:
            raise error.about(f"site {site.name!r}") from None


def declared_unit(unit: Unit | None, tables: Iterable[Units], *, seeded: bool) -> Unit:
    """What a study protects: as said, or as the data say it. A plain row may be a person or a record.

    >>> declared_unit(None, [Units.from_list([[[1.0], [2.0]], [[3.0]]])], seeded=False)
    'person'
    """
    if unit not in (None, "person", "record"):
        raise BadParameter(f"unit must be 'person' or 'record', got {unit!r}")
    if unit is not None:
        return unit
    plain = [table.offsets is None for table in tables]
    if not any(plain):
        return "person"
    if not seeded:
        raise BadParameter(
            "say what is protected: unit='person' where every row is one person's, unit='record' where rows are "
            "protected one by one"
        )
    return "record" if all(plain) else "person"


def _units(data: ArrayLike | Units | Site, algorithm: Algorithm, name: str) -> Units:
    if isinstance(data, Site):
        return data.units
    if isinstance(data, Units):
        return data
    if is_frame(data) or is_text(data):
        columns, called = algorithm.columns, f"the data of site {name!r}"
        return units_of(data, called, columns=columns, categories=algorithm.categories, missing=algorithm.rules)
    try:
        return Units.from_rows(data)
    except (TypeError, ValueError) as error:
        if isinstance(error, ZerosumError):
            raise
        raise BadData(f"the data of site {name!r} are no table of numbers") from None


def _check_program(algorithm: object) -> None:
    """Refuse whatever is no program, and say what to do instead."""
    if isinstance(algorithm, Algorithm):
        return
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    if issubclass(kind, Algorithm):
        raise BadParameter(f"give the program its parameters: zerosum.algorithms.{kind.__name__}(...)")
    known = next((each for each in kind.__mro__ if each.__module__.startswith("zerosum.estimators.")), None)
    if known is not None:
        name = known.__name__
        raise BadParameter(f"zerosum.{name} is an estimator: call .fit(sites), or run zerosum.algorithms.{name}(...)")
    raise BadParameter(
        f"run takes a program, such as zerosum.algorithms.Mean(...), got an object of type {kind.__name__!r}"
    )
