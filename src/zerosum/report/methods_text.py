"""The paragraph on methods for a paper, from the plan of a study: what was computed, on what, and under what guarantee.

Everything in it is public: the plan, the question, and names of quantities. It states facts of the run; the authors add
why the ranges and the budget were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zerosum.data.design import COMPLETE_ROWS
from zerosum.kernel.amounts import format_epsilon
from zerosum.kernel.missing import OBSERVED, OWN_ROWS
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import Quantity
from zerosum.report.guarantee_text import description, parameter_text, range_text
from zerosum.report.record import Result, adversary, privacy_report
from zerosum.version import VERSION

_REGRESSIONS = {
    "linear-regression": "linear regression",
    "logistic-regression": "logistic regression",
    "multinomial-regression": "multinomial logistic regression",
    "poisson-regression": "Poisson regression",
    "cox-regression": "Cox proportional hazards regression",
}
_RATIOS = {
    "logistic-regression": "odds ratios",
    "multinomial-regression": "odds ratios against the reference class",
    "poisson-regression": "rate ratios",
    "cox-regression": "hazard ratios",
}
_MOST_COLUMNS = 30  # largest number of columns that are listed


def methods(result: Result) -> tuple[str, ...]:
    """Paragraphs on methods for a paper.

    Parameters
    ----------
    result : Result
        The result.
    """
    return methods_of(result.plan, result.estimate, result.versions.get("zerosum", VERSION))


def methods_of(plan: Plan, estimate: Mapping[str, Quantity], version: str = VERSION) -> tuple[str, ...]:
    """Paragraphs on methods for a paper.

    Parameters
    ----------
    plan : Plan
        The plan.
    estimate : mapping of str to Quantity
        The result, whose names of quantities decide which errors are described.
    version : str
        Version of Zerosum that ran the study.
    """
    return (
        " ".join(_analysis(plan, _people(plan, estimate), version)),
        " ".join(_privacy(plan)),
        " ".join(_errors(plan, estimate)),
    )


def _people(plan: Plan, estimate: Mapping[str, Quantity]) -> float | None:
    """Public number of units: that of the plan, or a count without noise in the result; None if it is in neither."""
    units = [site.units for site in plan.sites]
    if all(each is not None for each in units):
        return float(sum(each or 0 for each in units))
    counts = estimate.get("units")
    # A count with noise is an estimate; a paper states the number of people only where it is public.
    if counts is not None and counts.std is not None and float(np.ravel(counts.std)[0]) == 0:
        return float(np.ravel(counts.value)[0])
    return None


def _analysis(plan: Plan, units: float | None, version: str) -> list[str]:
    """Sentences on the analysis, its columns and their public properties.

    Parameters
    ----------
    plan : Plan
        The plan.
    units : float, optional
        Public number of units.
    version : str
        Version of Zerosum.
    """
    people = "people" if plan.unit == "person" else "records"
    many = "" if units is None else f" with {units:.0f} {people}"
    joined = "without pooling records" if not plan.scheme.facts.sees_data else "on records pooled at a trusted holder"
    sentences = [
        f"Estimates were computed jointly over {len(plan.sites)} sites{many}, {joined}, with Zerosum {version}.",
        _model(plan),
    ]
    asked = plan.question
    ranges = _ranges(plan)
    if ranges and len(ranges) <= _MOST_COLUMNS:
        listed = "; ".join(f"{name}, {text}" for name, text in ranges.items())
        sentences.append(
            f"Values were limited to public ranges and categories that do not depend on the data: {listed}."
        )
    sentences += _missing(plan)
    if "imputation" in asked.files:
        sentences.append(
            "Missing values with the rule impute were drawn at the sites from a public model of the columns, given the "
            "other values of the same unit; the uncertainty of that model is not part of the standard errors."
        )
    if asked.parameters.get("weight") == COMPLETE_ROWS:
        sentences.append(
            "Rows with missing values in a column of complete cases had weight zero; the share of complete rows was "
            "part of a noisy release."
        )
    elif asked.parameters.get("weight"):
        sentences.append(f"Rows were weighted by {asked.parameters['weight']}.")
    if plan.unit == "person":
        sentences.append("Every person has weight one, whatever the number of their rows.")
    return sentences


def _model(plan: Plan) -> str:
    """Sentence on the model or the statistic."""
    asked = plan.question
    parameters = asked.parameters
    # A question of many columns holds only the first ones: a list of them would be wrong.
    complete = len(asked.columns) == asked.n_columns and asked.n_columns <= _MOST_COLUMNS
    if plan.algorithm in _REGRESSIONS:
        # Columns with a role are no features of the model.
        named = ("offset", "weight", "draw", "entry", "stratum")
        roles = [str(parameters[role]) for role in named if parameters.get(role)]
        response = asked.columns[-1] if complete else ""
        if plan.algorithm == "cox-regression" and complete:
            # The time is the column before the event.
            roles.append(asked.columns[-2])
            response = f"the time {asked.columns[-2]} to {response}"
        features = [name for name in asked.columns[:-1] if name not in roles]
        on = f" of {response} on {', '.join(features)}" if complete else f" on {asked.n_columns - 1} columns"
        ratio = f" and exponentiated to {_RATIOS[plan.algorithm]}" if plan.algorithm in _RATIOS else ""
        offset = f", with the offset {parameters['offset']}" if parameters.get("offset") else ""
        estimated = f"; coefficients were estimated{ratio}" if ratio else ""
        return f"A {_REGRESSIONS[plan.algorithm]}{on}{offset} was fitted{estimated}."
    by = f", by {parameters['by']}" if parameters.get("by") else ""
    names = f" ({', '.join(asked.columns)})" if complete else f" ({asked.n_columns} columns)"
    return f"The analysis was {description(plan.algorithm)}{names}{by}."


def _ranges(plan: Plan) -> dict[str, str]:
    """Public range or categories of each column, for the columns that have any."""
    asked = plan.question
    texts = {name: range_text(asked.parameters, name, at) for at, name in enumerate(asked.columns)}
    # The weight of complete rows is no column of the sites.
    return {name: text for name, text in texts.items() if text and name != COMPLETE_ROWS}


def _missing(plan: Plan) -> list[str]:
    """Sentences on missing values."""
    rules = plan.question.parameters.get("missing")
    if rules is None:
        return []
    given = rules if isinstance(rules, Mapping) else dict.fromkeys(plan.question.columns, rules)
    words = {
        OBSERVED: "were left out of the statistics of their column",
        OWN_ROWS: "were replaced by the mean of the person's other rows, or else by the middle of the public range",
    }
    # One sentence for each rule, with all columns that have it.
    by_text: dict[str, list[str]] = {}
    for name, rule in given.items():
        text = words.get(str(rule), f"were replaced by {parameter_text(rule)}")
        by_text.setdefault(text, []).append(name)
    return [f"Missing values of {', '.join(names)} {text}." for text, names in by_text.items()]


def _privacy(plan: Plan) -> list[str]:
    """Sentences on the guarantee."""
    if not plan.private:
        return ["The run was not private: its noise can be removed, or it has none. It is fit for public data only."]
    report = privacy_report(plan)
    # What differs between neighbouring data sets is part of the guarantee, and reviewers ask for it.
    change = (
        f"one {plan.unit} with all its rows replaced by another"
        if plan.adjacency.value == "replace-one"
        else f"one {plan.unit} with all its rows added or removed"
    )
    who = "the readers of the result" if plan.scheme.facts.sees_data else adversary(report.colluders)
    rounds = len(report.releases)
    return [
        f"The whole study satisfies differential privacy with epsilon {format_epsilon(report.worst_epsilon)} and "
        f"delta {plan.delta:g} for "
        f"each {plan.unit}, with neighbouring data sets that differ in {change}, against {who}.",
        f"Noise was added to {'the sum' if rounds == 1 else f'the sums of {rounds} releases'} over all sites"
        + (", which no party sees without noise, by secure aggregation." if not plan.scheme.facts.sees_data else "."),
        f"Epsilon was accounted exactly for the composition of all releases; the digest of the plan is "
        f"{plan.public_digest[:16]}.",
    ]


def _errors(plan: Plan, estimate: Mapping[str, Quantity]) -> list[str]:
    """Sentences on intervals."""
    sentences = []
    names = estimate.keys()
    # Names of quantities decide, so that a result of any algorithm is described by the errors that it has.
    # The effect of a hypothesis test has an interval for the population only.
    tested = "effect_interval" in names
    population = tested or any("population" in name for name in names)
    if population:
        sentences.append(
            "Confidence intervals (95 %) are for the population that the units are a sample of, and contain sampling "
            "error and the noise of differential privacy."
        )
    pooled = any(name.startswith("pooled_") or name.endswith("_interval") for name in names)
    if not tested and (pooled or any(quantity.std is not None for quantity in estimate.values())):
        # A regression also has an error from clips and weights of rows, which its standard errors contain.
        contents = (
            "the noise of differential privacy and an estimate of the error that limits on single contributions cause."
            if "pooled_std" in names
            else "the noise of differential privacy alone, whose distribution is known."
        )
        sentences.append(
            "Intervals for these data are for the result of the same analysis on the pooled records, and contain "
            + contents
        )
    if "identified" in estimate and not bool(estimate["identified"].value.all()):
        sentences.append("Coefficients that the noise of this budget leaves undetermined are marked as not identified.")
    if "units" in estimate or "observed" in estimate:
        sentences.append(
            "Noisy counts were made consistent by weighted least squares, so that groups add up and no column has more "
            "observed units than its group."
        )
    return sentences


def _listed(value: Any) -> list[Any]:
    """A parameter as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]
