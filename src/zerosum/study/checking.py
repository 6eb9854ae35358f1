"""Checks whether a study can run: data, policy, budget, ranges and disk space of every site, without spending.

All faults of a site are collected, not only the first. The findings describe private data. They are meant for the
steward of the site and are not written to disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.algorithms import Algorithm
from zerosum.compute.devices import check_device, to_numpy
from zerosum.compute.units import Units
from zerosum.errors import BadStudy, ZerosumError
from zerosum.kernel.missing import OWN_ROWS
from zerosum.kernel.plan import Plan
from zerosum.protocol.progress import Observer, nobody
from zerosum.report.record import make_room
from zerosum.site.budget import check_budget, refusals
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.study.archive import result_bytes, results_folder
from zerosum.study.site_data import Faults, fault_lines, load_for, question_refusals
from zerosum.study.site_file import SiteFile
from zerosum.study.site_schema import check_schema, confirmed_schema
from zerosum.study.study_file import Study

# Share of values outside a public range above which the warning states it. Chosen by hand; no benchmark recorded.
_MAX_OUTSIDE = 0.2
# Change of a mean by a rule for missing values, in standard deviations, above which a warning is given. Chosen by hand.
_MEAN_CHANGE = 0.1


@dataclass
class SiteCheck:
    """Findings at one site, for its own steward."""

    site: str
    faults: list[str] = field(default_factory=list)  # each of them prevents the run
    warnings: list[str] = field(default_factory=list)  # the study runs, but the result may be of little use
    units: int | None = None
    relays_for: tuple[str, ...] = ()  # the sites below this one in the study's tree
    left: float | None = None  # epsilon left for one more study after this one, at the cap's delta

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form."""
        return asdict(self)


def check_study(study: Study, observer: Observer = nobody) -> list[SiteCheck]:
    """Check all sites whose site file is given.

    Reads the data and computes no release. Nothing is charged to a ledger.

    Parameters
    ----------
    study : Study
        The study, with at least one site file.
    observer : callable
        Receives progress reports while data are loaded.

    Returns
    -------
    list of SiteCheck
        One for each site file, in the order of `study.site_files`.

    Raises
    ------
    BadStudy
        If there is no site file, or a site file is of a site that is not on the roster.
    """
    plan, algorithm = study.plan(), study.build_algorithm()
    known = {site.name for site in study.sites}
    if not study.site_files:
        raise BadStudy("the study names no site's data: give a site's own file with --site")
    if unknown := sorted({file.name for file in study.site_files} - known):
        raise BadStudy(f"there is no site named {', '.join(map(repr, unknown))} on the study's roster")
    return [_check_site(study, plan, algorithm, file, observer) for file in study.site_files]


def _check_site(study: Study, plan: Plan, algorithm: Algorithm, file: SiteFile, observer: Observer) -> SiteCheck:
    """Run all checks of one site. A failed check is added to the faults, and the next check follows.

    Parameters
    ----------
    study : Study
        The study.
    plan : Plan
        A plan of it, which is not run.
    algorithm : Algorithm
        Its program; names columns, ranges and rules.
    file : SiteFile
        The site.
    observer : callable
        Receives progress reports.
    """
    site_check = SiteCheck(file.name)
    position = [site.name for site in plan.sites].index(file.name)
    policy: Policy | None = None
    try:
        policy = file.load_policy(study.unit.kind, plan.adjacency)
        # The functions that a serving site uses, so that both decide alike.
        site_check.faults += [str(refusal) for refusal in refusals(plan, policy)]
        site_check.left = check_budget(plan, position, policy)
    except ZerosumError as error:
        site_check.faults.append(str(error))
    for use, folder, size in _places(plan, policy):
        try:
            _test_disk_space(folder, size)
        except OSError as error:
            site_check.faults.append(f"{use} cannot be written in {folder}: {error.strerror or error}")
    schema = None if policy is None else _compare(plan, file, policy, site_check)
    # In a rehearsal all sites are in one process, and no schema is confirmed: only a serving site needs sockets.
    unknown = [name for name in plan.tree.children[file.name] if name not in file.children]
    if schema is not None and unknown:
        site_check.faults.append(
            f"the study's tree puts {', '.join(map(repr, unknown))} below this site, and [children] has no socket of it"
        )
    site_check.relays_for = plan.tree.branch[file.name][1:]
    design = study.full_design
    raw: list[Units] = []
    try:
        check_device(file.device)
        if schema is None:
            units = study.read_units(file, algorithm, observer, site_check.warnings, raw)
        else:  # The same reader that the serving site uses.
            faults: Faults = []
            units = load_for(plan, file, schema, faults, raw)
            site_check.warnings += fault_lines(faults, algorithm.rule_words() if design is None else design.rule_words)
    except ZerosumError as error:
        site_check.faults.append(f"{error}{f' ({error.detail})' if error.detail else ''}")
        return site_check
    site_check.units = len(units)
    # As they were read: a design may copy a unit with missing values.
    site_check.faults += _contradictions(plan, position, policy, units, raw[0].largest if raw else units.largest)
    if design is None:
        site_check.warnings += list(_range_warnings(algorithm, units))
    elif raw:
        # Columns of a design are clamped and imputed: the rows as they were read are compared with its declarations.
        site_check.warnings += list(_column_warnings(design.read, design.ranges, design.missing, raw[0]))
    return site_check


def _compare(plan: Plan, file: SiteFile, policy: Policy, site_check: SiteCheck) -> DataSchema | None:
    """Compare the data of a serving site with its schema, and the plan with the schema.

    Adds faults and warnings to `site_check`. Returns the schema, or None if the site has no confirmed schema.

    Parameters
    ----------
    plan : Plan
        The plan, whose question is compared with the schema.
    file : SiteFile
        The site; a schema that is not confirmed counts as none.
    policy : Policy
        The site's policy.
    site_check : SiteCheck
        Receives the findings.
    """
    try:
        schema = confirmed_schema(file)
    # Sites of a rehearsal have no schema. A serving site without one refuses to start, so no fault is added here.
    except ZerosumError:
        return None
    differs = check_schema(file, schema, policy)
    site_check.faults += differs.faults
    site_check.warnings += differs.warnings
    try:
        site_check.faults += [str(refusal) for refusal in question_refusals(plan, file, schema)]
    except ZerosumError as error:
        site_check.faults.append(str(error))
    return schema


def _contradictions(plan: Plan, position: int, policy: Policy | None, units: Units, largest: int) -> Iterator[str]:
    """Yield contradictions between the data and the plan or policy: number of units, rows per unit, number of
    columns.

    Parameters
    ----------
    plan : Plan
        The plan.
    position : int
        Of the site in it.
    policy : Policy or None
        Of the site.
    units : Units
        In the columns of the plan.
    largest : int
        The most rows of a unit as they were read.
    """
    if policy is not None and len(units) < policy.minimum_units:
        yield f"its policy asks for at least {policy.minimum_units} units, its data hold {len(units)}"
    declared = plan.sites[position].units
    if declared is not None and declared != len(units):
        yield f"the study declares {declared} units, its data hold {len(units)}"
    if plan.unit == "record" and largest > 1:
        yield "the study protects single records, but units here own several rows"
    for release in plan.releases:
        if release.columns not in (None, units.columns):
            yield f"the data do not have the {release.columns} columns of the study"
            break


def _range_warnings(algorithm: Algorithm, units: Units) -> Iterator[str]:
    """Yield warnings about public ranges, rules and clips that do not match the data."""
    if units.is_sparse:
        return
    ranges, clip = _public_ranges(algorithm), getattr(algorithm, "clip", None)
    if ranges and units.columns == len(algorithm.columns):
        yield from _column_warnings(algorithm.columns, ranges, algorithm.rules, units)
        return
    rows = np.asarray(to_numpy(units.rows), dtype=np.float64)
    if not ranges and isinstance(clip, float):
        # A missing value is filled in before the clip; 0 stands for it here.
        norms = np.linalg.norm(np.nan_to_num(rows), axis=1)
        if (cut := float(np.mean(norms > clip))) > 0.5:
            yield f"{cut:.0%} of the rows are longer than the clip of {clip:g}"


def _column_warnings(
    columns: Sequence[str], ranges: Mapping[str, tuple[float, float]], rules: Mapping[str, Any], units: Units
) -> Iterator[str]:
    """Yield warnings about ranges and rules for missing values that do not match the data.

    Reported are values outside a range, which are clamped to it; ranges much wider than the data, since noise is scaled
    to the range; and rules that move the mean of a column. Numbers of people are in these sentences, which are for the
    steward only.

    Parameters
    ----------
    columns : sequence of str
        The columns of the rows.
    ranges : mapping
        Public range of each column of numbers.
    rules : mapping
        Rule for missing values by column.
    units : Units
        The rows as they were read.
    """
    rows = np.asarray(to_numpy(units.rows), dtype=np.float64)
    for at, name in enumerate(columns):
        if name not in ranges:
            continue
        (low, high), here = ranges[name], np.isfinite(rows[:, at])
        values = rows[here, at]
        if not len(values):
            yield f"column {name!r} has no value that is not missing"
            continue
        outside = int(np.sum((values < low) | (values > high)))
        spread = float(np.ptp(values)) / (high - low)
        if outside:
            many = f" ({outside / len(values):.0%})" if outside > _MAX_OUTSIDE * len(values) else ""
            yield (
                f"column {name!r}: {outside} of {len(values)} values{many} lie outside the range {low:g} to {high:g}, "
                "and count as its ends"
            )
        # The width of the range cannot be judged from two values (a 0/1 indicator). The limit 0.02 was chosen by hand;
        # no benchmark recorded.
        elif spread < 0.02 and len(np.unique(values)) > 2:
            yield f"column {name!r}: all values lie within {spread:.1%} of the range {low:g} to {high:g}"
        if name in rules and not np.all(here) and (taken := _filled_value(rules[name], low, high, units)) is not None:
            known = np.clip(values, low, high)
            before, after = float(np.mean(known)), float(np.mean(known)) * np.mean(here) + taken * np.mean(~here)
            if abs(after - before) > _MEAN_CHANGE * float(np.std(known)):
                yield (
                    f"column {name!r}: {np.mean(~here):.0%} of the values are missing, and the rule {rules[name]!r} "
                    f"moves the mean from {before:.4g} to {after:.4g}"
                )


def _filled_value(rule: Any, low: float, high: float, units: Units) -> float | None:
    """The number that a rule takes in place of a missing value, or None if it depends on other rows."""
    if isinstance(rule, bool | str):
        # A unit with one row has no other: the middle of the range is taken.
        return (low + high) / 2 if rule == OWN_ROWS and units.largest == 1 else None
    return float(np.clip(rule, low, high))


def _public_ranges(algorithm: Algorithm) -> dict[str, tuple[float, float]]:
    """Public (low, high) range of each column, from the parameter `ranges` or from the lists `lower` and `upper`. Empty
    if the algorithm has neither."""
    if ranges := getattr(algorithm, "ranges", None):
        return dict(ranges)
    lower, upper = getattr(algorithm, "lower", None), getattr(algorithm, "upper", None)
    if lower is None or upper is None or len(lower) != len(algorithm.columns):
        return {}
    return {name: (float(low), float(high)) for name, low, high in zip(algorithm.columns, lower, upper, strict=True)}


def _places(plan: Plan, policy: Policy | None) -> Iterator[tuple[str, Path, int]]:
    """Yield the files a run writes at this site: (name in messages, folder, bytes needed)."""
    if policy is not None:
        # 64 KiB for ledger rows, 1 KiB for the counter. Chosen by hand; no benchmark recorded.
        yield "the ledger", policy.ledger_path.parent, 1 << 16
        yield "its counter", policy.counter_path.parent, 1 << 10
    yield "a result", results_folder(), result_bytes(plan)


def _test_disk_space(folder: Path, size: int) -> None:
    """Test that `size` bytes can be written to `folder`. The test file is removed, and no folder is created.

    Raises OSError if they cannot.
    """
    # The folder may not exist yet. Its nearest existing parent is on the same disk.
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    # a new name, so no existing file is overwritten
    handle, name = tempfile.mkstemp(prefix=".zerosum-check-", dir=nearest)
    os.close(handle)
    try:
        make_room(Path(name), size)
    finally:
        Path(name).unlink(missing_ok=True)
