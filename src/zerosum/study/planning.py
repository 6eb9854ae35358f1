"""From a question to a plan: resolves open parameters of an algorithm and lists all its releases."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from zerosum.algorithms import Algorithm, Estimate
from zerosum.algorithms.program import PublicFacts
from zerosum.coordinator.conduct import Outcome
from zerosum.errors import BadParameter
from zerosum.kernel.accountant import mu_for
from zerosum.kernel.laplace import LAPLACE_SCHEMES, interval_factor
from zerosum.kernel.names import counted
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import Axis
from zerosum.kernel.question import Question
from zerosum.kernel.schemes import NoiseMechanism
from zerosum.kernel.terms import NoiseChoice, PlannedRelease, PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.report.record import Result, versions
from zerosum.report.warnings import result_warnings
from zerosum.site.site import Site

MOST_FAULTS = 20  # losses that are listed among the warnings of a result; chosen by hand


def make_plan(
    algorithm: Algorithm,
    terms: Terms,
    name: str,
    provenance: Provenance | None = None,
    noise: NoiseChoice = "gaussian",
) -> Plan:
    """Make a plan with a new study name. Each run of a plan is a separate study.

    Parameters
    ----------
    algorithm : Algorithm
        The program; open parameters are resolved from `terms`.
    terms : Terms
        Sites, budget, scheme and coalition.
    name : str
        Name of the study. Eight random bytes are appended, so that ledgers distinguish repeated studies.
    provenance : Provenance, optional
        Public facts about the data.
    noise : {"auto", "gaussian", "laplace"}, default="gaussian"
        One law for all releases, or "auto": the law with the smaller noise (`_plan_of`).
    """
    resolved = resolve(algorithm, terms)
    # The resolved parameters and not the given ones: sites compute from the plan alone and consent to these values.
    parameters = {each: getattr(resolved, each) for each in type(resolved).model_fields if each != "columns"}
    provenance = provenance or Provenance()
    question = replace(
        Question.of(resolved.columns, parameters, provenance.preprocessing, provenance.files),
        purpose=provenance.purpose,
        permit=dict(provenance.permit),
    )
    # Ledgers identify a study by its name, so that a repeated run is charged again.
    study = f"{name} {secrets.token_hex(8)}"
    return _plan_of(resolved, terms, study, question, noise)


def _plan_of(algorithm: Algorithm, terms: Terms, study: str, question: Question, noise: NoiseChoice) -> Plan:
    """The plan with the noise law that was asked for.

    "auto" compares the two laws for a study of one release, at the same epsilon and delta: the standard deviation of
    each released number. Under one scheme both are a common factor times

        D_2 sqrt(1 + A) / mu             Gaussian noise: L2 sensitivity, mu of (epsilon, delta)
        sqrt(2) D_1 (1 + A) / epsilon    Laplace noise: L1 sensitivity

    for A attempts, whose Laplace losses are added up here. Laplace noise is smaller for few numbers, since an L1 norm
    grows faster with their count than an L2 norm, and for counts of categories, whose L1 norm does not grow. Studies of
    several releases have Gaussian noise: losses of Gaussian releases compose at a smaller cost.

    Parameters
    ----------
    algorithm : Algorithm
        The program, resolved.
    terms : Terms
        Sites, budget, scheme and coalition.
    study : str
        Name of the study.
    question : Question
        The question in words.
    noise : str
        "auto", "gaussian" or "laplace".
    """

    def plan(releases: tuple[PlannedRelease, ...]) -> Plan:
        return Plan.of(terms, study, algorithm.name, releases, question)

    if noise == "laplace" and not algorithm.laplace:
        raise BadParameter(
            f"the algorithm {algorithm.name!r} has no intervals for Laplace noise: use noise = 'gaussian'"
        )
    if noise != "auto":
        return plan(algorithm.releases(terms.adjacency, noise))
    releases = algorithm.releases(terms.adjacency)
    able = algorithm.laplace and terms.scheme.name in LAPLACE_SCHEMES and terms.calibration == "exact"
    if able and len(releases) == 1:
        # Without a proved L1 bound, or on a grid that would be too fine for the sampler, Gaussian noise is left.
        with suppress(BadParameter):
            pure, rounds = algorithm.releases(terms.adjacency, "laplace"), 1 + terms.attempts
            gaussian_noise = releases[0].sensitivity * math.sqrt(rounds) / mu_for(terms.epsilon, terms.delta)
            if math.sqrt(2) * pure[0].sensitivity * rounds / terms.epsilon < gaussian_noise:
                planned = plan(pure)
                _ = planned.law(0)  # calibrated now, so that a refusal is one of the law
                return planned
    return plan(releases)


@dataclass(frozen=True)
class Provenance:
    """Public facts about a study beside its columns: preprocessing, the public files it uses, purpose and permit."""

    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # use of the file ("mask", "basis", ...) to its SHA-256
    purpose: str = ""  # of the study
    permit: Mapping[str, str] = field(default_factory=dict)  # `zerosum.study.entries.PermitTable.texts`


def check_measures(measures: Mapping[str, str], columns: Sequence[str]) -> dict[str, str]:
    """Validate units of measurement, by column name. Raises `BadParameter` for a name that is not in `columns`."""
    if unknown := [name for name in measures if name not in columns]:
        raise BadParameter(f"measured_in has {unknown[0]!r}, which is not one of the columns")
    return {str(name): str(unit) for name, unit in measures.items()}


def result_of(outcome: Outcome[Estimate], archive_id: str = "") -> Result:
    """Make the `Result` of a finished study: estimate, plan, participants, library versions, warnings."""
    plan = outcome.plan
    reached = with_reach(outcome.result, plan, outcome.participants)
    warnings = result_warnings(reached, plan) if plan.scheme.facts.noisy else ()
    estimate = with_measurement_units(reached, plan)
    losses = tuple(each.as_record() for each in outcome.faults)
    warnings += tuple(each.in_words() for each in outcome.faults[:MOST_FAULTS])
    if (more := len(losses) - MOST_FAULTS) > 0:
        warnings += (f"{counted(more, 'further loss', 'further losses')} of sites: result.json lists them",)
    return Result(estimate, plan, outcome.participants, versions(), archive_id, warnings, losses)


def with_reach(estimate: Estimate, plan: Plan, participants: Sequence[Sequence[str]]) -> Estimate:
    """The estimate with the 95 % intervals of Laplace noise (`zerosum.kernel.laplace.interval_factor`) where the study
    has it; unchanged for Gaussian noise.

    With Laplace noise in one sum the error of a mean or a count is that noise times a constant. Where a mean has the
    noise of its count as well, the error is to first order a sum of two independent such variables, which lies nearer
    to normal noise than each of them: the factor is then a little too large.

    Parameters
    ----------
    estimate : mapping of str to Quantity
        The result of the program.
    plan : Plan
        The public plan.
    participants : sequence of sequences of str
        Names of the sites in each round; lost sites add no share of noise.
    """
    shares = [
        1.0 if law.mechanism is NoiseMechanism.TRUSTED or not present else len(present) / law.parts
        for round, present in enumerate(participants)
        if plan.release(round).laplace
        for law in [plan.law(round)]
    ]
    if not shares:
        return estimate
    reach = interval_factor(min(shares))  # the fewest shares have the widest interval
    return {name: each if each.std is None else replace(each, reach=reach) for name, each in estimate.items()}


def with_measurement_units(estimate: Estimate, plan: Plan) -> Estimate:
    """The estimate with units of measurement on its column axes, where the question has them."""
    known = plan.question.preprocessing.get("measured_in")
    if not isinstance(known, Mapping):
        return estimate

    def with_units(axis: Axis) -> Axis:
        # Axes of components or classes have no unit of measurement, and an axis that has units keeps them.
        if axis.name != "column" or axis.units:
            return axis
        return replace(axis, units=tuple(str(known.get(name, "")) for name in axis.labels))

    return {name: replace(each, axes=tuple(map(with_units, each.axes))) for name, each in estimate.items()}


def resolve(algorithm: Algorithm, terms: Terms) -> Algorithm:
    """The algorithm with all open parameters chosen from the public facts of the terms.

    The choice does not depend on releases. The planner and the process that runs the plan therefore choose the same
    values.

    Parameters
    ----------
    algorithm : Algorithm
        The program, with parameters that may be open (None).
    terms : Terms
        Sites, budget, scheme and coalition.
    """
    return algorithm.resolve(facts_of(terms))


def facts_of(terms: Terms) -> PublicFacts:
    """The public facts of some terms, from which a planner chooses and an expectation follows.

    Parameters
    ----------
    terms : Terms
        Sites, budget, scheme and coalition.
    """
    units = [site.units for site in terms.sites if site.units is not None]
    # A sum over some of the sites would be taken for the whole study's number.
    total = sum(units) if len(units) == len(terms.sites) else None
    noise = terms.noise_of_everything
    # A publication adds its noise at one site, so its noise multiplier is 1 / mu of the whole budget, independent of
    # the other sites.
    alone = 1 / mu_for(terms.epsilon, terms.delta) if noise > 0 else 0.0
    return PublicFacts(noise=noise, units=total, published=alone)


def roster_with_identities(sites: Sequence[Site], shapes: Sequence[PlannedSite]) -> tuple[PlannedSite, ...]:
    """Roster with the public identities of the sites that take part.

    Raises
    ------
    BadParameter
        If two sites share a ledger (the same people would count twice), or the roster pins another identity.
    """
    # Resolved, since two paths may lead to one file by a symbolic link.
    ledgers = [site.policy.ledger_path.resolve() for site in sites]
    if len(set(ledgers)) < len(ledgers):
        raise BadParameter("two sites have the same ledger: the same people must not take part twice")
    known = {site.name: site.identity.public.hex() for site in sites}
    for shape in shapes:
        if shape.identity is not None and sites and shape.identity != known.get(shape.name):
            raise BadParameter(f"the plan pins another identity for {shape.name!r} than that site has")
    return tuple(replace(shape, identity=known.get(shape.name, shape.identity)) for shape in shapes)


def pin(plan: Plan, sites: Sequence[Site]) -> Plan:
    """The plan with the identities of these sites in its roster."""
    return plan.identified(roster_with_identities(sites, plan.sites))


def coalition_of(colluders: int | None, dropouts: int, sites: int) -> Coalition:
    """The coalition, with the default number of colluders for `sites` sites if it is None.

    Parameters
    ----------
    colluders : int or None
        C, sites that may collude with the coordinator.
    dropouts : int
        L, sites that may be lost in a round.
    sites : int
        S, sites on the roster.
    """
    if colluders is None:
        colluders = Coalition.default(sites).colluders
    return Coalition(colluders, dropouts)
