"""Text of a report: the question, the guarantee, and its limits.

The guarantee is stated three times: as odds (exp(epsilon) times as likely, but for a chance of delta), as a guess
between two cases (`best_guess`), and in the words of a statistician (`PrivacyReport.sentences`). All three follow from
the same exact costs. What is not promised follows in points, since readers tend to take privacy for more than it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from zerosum.kernel.amounts import format_epsilon
from zerosum.kernel.names import counted
from zerosum.kernel.plan import Plan
from zerosum.kernel.question import Question
from zerosum.kernel.schemes import SCHEMES
from zerosum.report.document import Block, Table, Text
from zerosum.report.number_format import format_number
from zerosum.report.record import PrivacyReport, adversary

# Name of an algorithm to a description of its result.
_DESCRIPTIONS = {
    "mean": "the mean of every column",
    "histogram": "how many fall into each bin",
    "covariance": "means, and how columns vary with each other",
    "k-means": "the centres of clusters",
    "mixture": "a mixture of normal clusters",
    "topics": "the topics of documents",
    "pca": "principal components",
    "ica": "independent components",
    "linear-regression": "a linear regression",
    "logistic-regression": "a logistic regression",
    "multinomial-regression": "a multinomial logistic regression",
    "poisson-regression": "a Poisson regression",
    "cox-regression": "a Cox regression of survival times",
    "polynomial-loss": "a regression by a polynomial loss",
    "feature-classifier": "a classifier on public features",
    "neural-classifier": "a neural network that classifies",
    "data-collaboration": "a classifier on published noisy records (Data Collaboration)",
    "describe": "a table that describes the columns",
    "quantiles": "quantiles of every column",
    "survival": "survival curves",
    "correlation": "correlations of the columns",
    "guided-ica": "the difference of people's maps from public templates",
    "connectivity": "connectivity between networks",
    "additive-model": "an additive model of a response",
    "synthetic-data": "a model of the table for synthetic records",
    "hypothesis-test": "a test of a hypothesis about the columns",
    "statistic": "the sum of a statistic of the sites' own",
}
# At epsilon 5 the odds may change by a factor of exp(5) = 148.
_LARGE_EPSILON = 5.0  # epsilon above which the reader is warned; chosen by hand
_MOST_COLUMNS = 60  # largest number of columns listed singly
# Parameters that are shown in the table of columns.
_COLUMN_PARAMETERS = {"lower", "upper", "ranges", "levels", "missing", "measured_in"}


def description(algorithm: str) -> str:
    """Description of an algorithm's result."""
    return _DESCRIPTIONS.get(algorithm, algorithm)


def study_title(study: str) -> str:
    """Name of a study without the random suffix of the plan."""
    return re.sub(" [0-9a-f]{16}$", "", study) or study


def summary(plan: Plan, report: PrivacyReport, *, done: bool = True) -> str:
    """Two sentences: what was computed, and its cost.

    Parameters
    ----------
    plan : Plan
        The plan.
    report : PrivacyReport
        Its costs.
    done : bool
        Whether the study was run.
    """
    does, costs, saw = ("computed", "cost", "saw") if done else ("would compute", "would cost", "would see")
    sites = f"{len(plan.sites)} sites {does} {description(plan.algorithm)} together"
    if not plan.private:
        return f"{sites}. The run protects no person: its data must be public or synthetic."
    # Published records leave the site one by one, even if noisy.
    if any(release.kind == "publication" for release in plan.releases):
        access = f", from a noisy record of every {plan.unit} that each {'published' if done else 'would publish'}"
    elif plan.scheme.facts.sees_data:
        access = f"; the coordinator {saw} the data"
    else:
        access = " without showing each other a record"
    return (
        f"{sites}{access}. It {costs} every {plan.unit} an epsilon of at most {format_epsilon(report.worst_epsilon)} "
        f"at delta {plan.delta:g}."
    )


def question(asked_for: Question, algorithm: str) -> tuple[Block, ...]:
    """Blocks about the public question: columns, parameters, preprocessing, public files.

    Parameters
    ----------
    asked_for : Question
        The question of the plan.
    algorithm : str
        Name of the algorithm.
    """
    columns = f"{asked_for.n_columns} column{'s' if asked_for.n_columns != 1 else ''}"
    purpose = (f"Purpose: {asked_for.purpose}",) if asked_for.purpose else ()
    blocks: list[Block] = [Text((f"What was asked for: {description(algorithm)}, of {columns}.", *purpose))]
    if rows := _columns(asked_for):
        used = [at for at in range(4) if at == 0 or any(row[at] for row in rows)]
        heading = ("column", "range or categories", "measured in", "missing values")
        blocks.append(
            Table(
                "Columns, with their public properties",
                tuple(heading[at] for at in used),
                tuple(tuple(row[at] for at in used) for row in rows),
            )
        )
    else:
        first_last = " … ".join(asked_for.columns)
        blocks.append(Text((f"Columns: {first_last}; their names have the SHA-256 {asked_for.columns_digest}.",)))
    more = {
        name: value
        for name, value in asked_for.parameters.items()
        if name not in _COLUMN_PARAMETERS and value not in (None, {})
    }
    for title, entries in (
        ("Parameters", more),
        (
            "Preparation, the same at every site",
            {k: v for k, v in asked_for.preprocessing.items() if k not in _COLUMN_PARAMETERS},
        ),
        ("Public files", asked_for.files),
        ("Permit", asked_for.permit),
    ):
        if lines := [(name, parameter_text(value)) for name, value in entries.items()]:
            names = ("for", "SHA-256") if title == "Public files" else ("name", "value")
            folded = title not in ("Public files", "Permit")
            blocks.append(Table(title, names, tuple(lines), folded=folded))
    return tuple(blocks)


def _columns(asked_for: Question) -> list[tuple[str, str, str, str]]:
    """Rows of the table of columns; empty if there are too many."""
    if asked_for.n_columns > _MOST_COLUMNS or len(asked_for.columns) != asked_for.n_columns:
        return []
    given = asked_for.parameters
    measured = asked_for.preprocessing.get("measured_in") or given.get("measured_in")
    rows = []
    for at, name in enumerate(asked_for.columns):
        unit = measured.get(name, "") if isinstance(measured, Mapping) else ""
        rows.append((name, range_text(given, name, at), str(unit), _rule_of(given.get("missing"), name)))
    return rows


def range_text(given: Mapping[str, Any], name: str, at: int) -> str:
    """Public range or levels of a column as text.

    Parameters
    ----------
    given : mapping
        Parameters of the question. A range is in the lists `lower` and `upper`, or under the column's name in `ranges`;
        levels are under its name in `levels`.
    name : str
        The column.
    at : int
        Its place in the lists.
    """
    lower, upper = given.get("lower"), given.get("upper")
    if isinstance(lower, list) and isinstance(upper, list) and at < min(len(lower), len(upper)):
        return f"{parameter_text(lower[at])} to {parameter_text(upper[at])}"
    ranges, levels = given.get("ranges"), given.get("levels")
    if isinstance(ranges, Mapping) and isinstance(ends := ranges.get(name), list) and len(ends) == 2:
        return f"{parameter_text(ends[0])} to {parameter_text(ends[1])}"
    if isinstance(levels, Mapping) and name in levels:
        return parameter_text(levels[name])
    return ""


def _rule_of(rules: Any, name: str) -> str:
    """Rule for missing values of a column as text."""
    rule = rules.get(name) if isinstance(rules, Mapping) else rules
    return "" if rule is None else parameter_text(rule)


def parameter_text(value: Any, most: int = 12) -> str:
    """A public parameter as one line.

    Parameters
    ----------
    value : JSON-compatible
        The parameter.
    most : int
        Largest number of elements of a list or mapping; the number of further elements is stated.

    >>> parameter_text([1.5, None, True]), parameter_text({"age": 2})
    ('1.5, none, yes', 'age: 2')
    """
    # bool is a subclass of int and must be tested first.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format_number(float(value), 6)
    if isinstance(value, Mapping):
        entries = [f"{key}: {parameter_text(each)}" for key, each in list(value.items())[:most]]
        return ", ".join(entries) + _rest_clause(value, most)
    if isinstance(value, list | tuple):
        return ", ".join(parameter_text(each) for each in value[:most]) + _rest_clause(value, most)
    return "none" if value is None else str(value)


def _rest_clause(values: Any, most: int) -> str:
    """Clause about elements left out."""
    return f" and {len(values) - most} more" if len(values) > most else ""


# ---- the guarantee -------------------------------------------------------------------------------------------------


def guarantee(report: PrivacyReport) -> tuple[Block, ...]:
    """The guarantee in words: unit, adversary, strength; then its limits.

    Parameters
    ----------
    report : PrivacyReport
        Exact costs; the largest epsilon of all sites is stated.
    """
    if not report.private:
        return (Text(tuple(report.sentences()), "warning"),)
    facts = SCHEMES[report.scheme["name"]]
    epsilon = report.worst_epsilon
    # exp(700) is near the largest float64.
    times = math.exp(min(epsilon, 700.0))
    who = "readers of the result put" if facts.sees_data else f"{adversary(report.colluders)} put"
    dealt = " but for the noise that the coordinator dealt itself" if facts.deals_noise else ""
    # The two neighbouring relations of a plan: one unit's data differ, or are absent.
    other = "replaced by that of somebody else" if report.adjacency == "replace-one" else "left out"
    bound = (
        f"If {who} together all they saw{dealt}, then whatever they conclude about one {report.unit} is at most "
        f"{format_number(times, 3)} times as likely as it would be with that {report.unit}'s data {other} (epsilon "
        f"{format_epsilon(epsilon)}), but for a chance of {chance(report.delta)} (delta {report.delta:g})."
    )
    if epsilon > _LARGE_EPSILON:
        bound += " An epsilon this large promises little."
    guess = (
        f"If they had to guess which of the two it was, they would be right at most "
        f"{format_epsilon(100 * report.best_guess)} % of the time; without any information, 50 %."
    )
    lost = f"{counted(report.dropouts, 'further site')} {'is' if report.dropouts == 1 else 'are'}"
    loss = f" It holds even if {lost} lost on the way." if report.dropouts else ""
    whole = f"It holds for a {report.unit} with all its rows, over the whole study.{loss}"
    return (
        Text((bound, guess), "promise"),
        # The first sentence is the guarantee itself, which follows last.
        Text((whole, *report.sentences()[1:])),
        Text(("What is not promised:",)),
        Text(tuple(_limits(report, facts.sees_data)), "points"),
        Text((f"In the words of a statistician: {report.sentences()[0]}",)),
    )


def chance(delta: float) -> str:
    """A small probability in words.

    >>> chance(1e-5), chance(3e-7)
    ('one in 100,000', 'one in 3,333,333')
    """
    # The tolerance of 1e-12 absorbs the rounding error of 1 / delta, so that 1e-5 gives 100,000.
    return f"one in {math.floor(1 / delta * (1 + 1e-12)):,}"


def _limits(report: PrivacyReport, sees_data: bool) -> list[str]:
    """Sentences about what the guarantee does not cover."""
    colluders = report.colluders
    limits = [
        "The result describes groups of people, also people who took no part: if it shows that smokers fall ill more "
        "often, this is learned about every smoker.",
        "A site knows its own people. The guarantee protects them against the other sites and the readers of the "
        "result.",
        "Other studies of the same people add to the cost. The ledger of each site adds them up; the report of one "
        "study cannot.",
    ]
    if not sees_data:
        more = "a site" if colluders == 0 else f"more than {'one site' if colluders == 1 else f'{colluders} sites'}"
        limits.append(f"If {more} worked together with the coordinator, they could learn more.")
    return limits
