"""A plan as HTML: question, guarantee, costs and digests, as in `zerosum plan` and `zerosum site dry-run`.

Tested in tests/watch/test_boards.py.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import Any

from zerosum.kernel.markup import Html, element
from zerosum.kernel.plan import Plan
from zerosum.report.record import PrivacyReport, privacy_report
from zerosum.watch.markup import join, more, pairs, paragraph, table

_COLUMNS = 60  # columns shown before the list is folded
# Largest numbers of sites and releases in a table, and of cached reports.
_SITES = 200
_RELEASES = 200
_REPORTS = 64

# Cache of reports by digest of the plan, least recently used first.
_known: OrderedDict[str, PrivacyReport] = OrderedDict()
_mutex, _computing = threading.Lock(), threading.Lock()


def report_of(plan: Plan) -> PrivacyReport:
    """Privacy report of a plan, cached because pages are rendered repeatedly."""
    digest = plan.digest()
    with _mutex:
        if digest in _known:
            _known.move_to_end(digest)
            return _known[digest]
    with _computing:  # One computation at a time: a thread that waited for the same plan finds its report in the cache.
        with _mutex:
            found = _known.get(digest)
        found = found or privacy_report(plan)
        with _mutex:
            _known[digest] = found
            while len(_known) > _REPORTS:
                _known.popitem(last=False)
        return found


def asked(plan: Plan) -> Html:
    """The question: columns, ranges, parameters, preprocessing, sites."""
    question = plan.question
    parameters = dict(question.parameters)
    ranges = _ranges(question.columns, parameters)
    # Ranges are shown beside the columns.
    rest = {name: value for name, value in parameters.items() if value is not None and name not in ("columns",)}
    if ranges:
        rest = {name: value for name, value in rest.items() if name not in ("lower", "upper")}
    names = [site.name for site in plan.sites]
    lines: list[tuple[str, object]] = [
        ("algorithm", plan.algorithm),
        ("columns", _columns(question.columns, question.n_columns, ranges)),
        *((name, _value(value)) for name, value in sorted(rest.items())),
        *((f"first: {name}", _value(value)) for name, value in sorted(question.preprocessing.items())),
        *((f"file: {name}", element("code", digest)) for name, digest in sorted(question.files.items())),
        ("protected", f"one {plan.unit}, {plan.adjacency.value}"),
        ("sites", f"{len(names)}: {', '.join(names[:_SITES])}{', ...' if len(names) > _SITES else ''}"),
        ("scheme", plan.scheme.name),
        (
            "rounds in all",
            f"{plan.rounds}" + (f", and {plan.attempts} may be tried once more" if plan.attempts else ""),
        ),
    ]
    return pairs(lines)


def guarantee(plan: Plan) -> Html:
    """Sentences of the guarantee."""
    return join(paragraph(sentence) for sentence in report_of(plan).sentences())


def costs(plan: Plan, here: str = "") -> Html:
    """Tables of costs by site and of releases. `here` is the name of the reading site."""
    report = report_of(plan)
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
        for site in sorted(report.per_site, key=lambda each: each.site != here)[:_SITES]
    ]
    headings = ["site", "mu", f"epsilon at delta {report.delta:g}", "published epsilon"]
    releases = [
        (
            line.statistic + (f", {line.steps} steps" if line.steps > 1 else ""),
            f"{line.size}",
            f"{line.sensitivity:.4g}",
            f"{line.share:.3g}",
            f"{line.noise_std:.4g}",
            f"{line.mu:.4g}",
        )
        for line in report.releases[:_RELEASES]
    ]
    left_out = max(len(report.per_site) - _SITES, 0), max(len(report.releases) - _RELEASES, 0)
    return join(
        [
            table([*headings, *(["epsilon against the dealer"] if dealt else [])], sites, "What it costs", 3 + dealt),
            paragraph(f"and {left_out[0]} more sites") if left_out[0] else None,
            table(
                ["release", "numbers", "sensitivity", "share of mu²", "noise", "mu"], releases, "What is released", 5
            ),
            paragraph(f"and {left_out[1]} more releases") if left_out[1] else None,
            paragraph(
                f"{report.rounds} round{'s' if report.rounds > 1 else ''} of {report.exchanges} exchange"
                f"{'s' if report.exchanges > 1 else ''}, {report.bytes_per_site} bytes to and from each site."
            ),
            paragraph(f"Finite arithmetic adds {report.extra_delta:.2g} to delta, which is paid for.")
            if report.extra_delta > 0
            else None,
        ]
    )


def digests(plan: Plan) -> Html:
    """Study name and digests."""
    return pairs(
        [
            ("study", plan.study),
            ("digest of the plan", element("code", plan.digest())),
            ("public digest", element("code", plan.public_digest)),
        ]
    )


def _columns(names: tuple[str, ...], count: int, ranges: dict[str, str]) -> Html:
    """List of columns with ranges, folded if long."""

    def item(name: str) -> Html:
        return element("li", element("span", name, class_="name"), f" {ranges[name]}" if name in ranges else None)

    if count > len(names):  # the plan lists the first and last column only
        return join([f"{names[0]} ... {names[-1]} ({count})"])
    first, rest = names[:_COLUMNS], names[_COLUMNS:]
    shown = element("ul", *map(item, first), class_="columns")
    return shown if not rest else join([shown, more(f"and {len(rest)} more", element("ul", *map(item, rest)))])


def _ranges(names: tuple[str, ...], parameters: dict[str, Any]) -> dict[str, str]:
    """Range of each column as text; empty if there is not one for each."""
    lower, upper = parameters.get("lower"), parameters.get("upper")
    if not (isinstance(lower, list) and isinstance(upper, list) and len(lower) == len(upper) == len(names)):
        return {}
    pairs = zip(names, lower, upper, strict=True)
    return {name: f"{_number(low)} to {_number(high)}" for name, low, high in pairs}


def _number(value: Any) -> str:
    """A number with six digits."""
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def _value(value: Any) -> Html:
    """A public parameter; a long one is folded."""
    said = _number(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    said = said or (value if isinstance(value, str) else json.dumps(value))
    if len(said) <= 200:
        return join([said])
    return more(f"{said[:100]} ...", element("code", said[:20_000] + (" ..." if len(said) > 20_000 else "")))
