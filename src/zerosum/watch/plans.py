"""A plan as HTML: question, guarantee, costs and digests, as in `zerosum plan` and `zerosum site dry-run`."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from zerosum import html
from zerosum.kernel.amounts import cost_word
from zerosum.kernel.plan import Plan
from zerosum.report.record import PrivacyReport, privacy_report
from zerosum.watch.cache import RecentCache

_TEMPLATE = "watch/plan.html"
_MOST_COLUMNS = 60  # columns shown before the list is folded
# Largest numbers of sites and releases in a table, and of cached reports.
_MOST_SITES = 200
_MOST_RELEASES = 200
_CACHE_SIZE = 64

# Reports by digest of the plan.
_cache: RecentCache[PrivacyReport] = RecentCache(_CACHE_SIZE)
_computing = threading.Lock()


def report_of(plan: Plan) -> PrivacyReport:
    """Privacy report of a plan, cached because pages are rendered repeatedly."""
    digest = plan.digest()
    if report := _cache.get(digest):
        return report
    with _computing:  # One computation at a time: a thread that waited for the same plan finds its report in the cache.
        return _cache.get(digest) or _cache.put(digest, privacy_report(plan))


def question(plan: Plan) -> Markup:
    """The question: columns, ranges, parameters, preprocessing, sites."""
    # Only public parameters of the plan are shown here. They were chosen by the coordinator, so the template escapes
    # them.
    given = dict(plan.question.parameters)
    ranges = _ranges(plan.question.columns, given)
    # Columns are listed separately, and their ranges beside them.
    listed = {"columns", "lower", "upper"} if ranges else {"columns"}
    parameters = {name: value for name, value in given.items() if value is not None and name not in listed}
    return html.call(
        _TEMPLATE,
        "question",
        plan,
        ranges,
        _texts(parameters),
        _texts(plan.question.preprocessing),
        _MOST_COLUMNS,
        _MOST_SITES,
    )


def guarantee(plan: Plan) -> Markup:
    """Sentences of the guarantee."""
    return html.call(_TEMPLATE, "guarantee", report_of(plan).sentences())


def costs(plan: Plan, here: str = "") -> Markup:
    """Tables of costs by site and of releases. `here` is the name of the reading site."""
    report = report_of(plan)
    # The column exists only under a scheme in which a helper deals noise.
    dealt = any(site.helper_epsilon is not None for site in report.per_site)
    sites = [
        (
            f"{site.site} (here)" if site.site == here else site.site,
            f"{site.mu:.4f}",
            f"{site.epsilon:.4f}",
            "" if site.published_epsilon is None else f"{site.published_epsilon:.4f}",
            *(["" if site.helper_epsilon is None else f"{site.helper_epsilon:.4f}"] if dealt else []),
        )
        # The reading site is first; the sort is stable.
        for site in sorted(report.per_site, key=lambda each: each.site != here)[:_MOST_SITES]
    ]
    headings = ["site", "mu", f"epsilon at delta {report.delta:g}", "published epsilon"]
    releases = [
        (
            line.statistic + (f", {line.steps} steps" if line.steps > 1 else ""),
            f"{line.size}",
            f"{line.sensitivity:.4g}",
            f"{line.share:.3g}",
            f"{line.noise_std:.4g}",
            f"{cost_word(line.noise)}{line.mu:.4g}",
        )
        for line in report.releases[:_MOST_RELEASES]
    ]
    return html.call(
        _TEMPLATE,
        "costs",
        report,
        sites,
        [*headings, *(["epsilon against the dealer"] if dealt else [])],
        releases,
        max(len(report.per_site) - _MOST_SITES, 0),
        max(len(report.releases) - _MOST_RELEASES, 0),
    )


def digests(plan: Plan) -> Markup:
    """Study name and digests."""
    return html.call(_TEMPLATE, "digests", plan)


def _ranges(names: tuple[str, ...], parameters: Mapping[str, Any]) -> dict[str, str]:
    """Range of each column as text; empty if there is not one for each."""
    lower, upper = parameters.get("lower"), parameters.get("upper")
    if not (isinstance(lower, list) and isinstance(upper, list) and len(lower) == len(upper) == len(names)):
        return {}
    pairs = zip(names, lower, upper, strict=True)
    return {name: f"{_text(low)} to {_text(high)}" for name, low, high in pairs}


def _texts(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of parameters as text, sorted by name."""
    return [(name, _text(value)) for name, value in sorted(parameters.items())]


def _text(value: Any) -> str:
    """A public parameter as text: numbers with six digits, lists and mappings as JSON."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)
