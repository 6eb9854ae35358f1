"""Blocks of a report for brain networks: differences from templates, and connectivity between networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from zerosum.arrays import Floats
from zerosum.data.masker import Masker
from zerosum.kernel.quantity import NORMAL_95, Quantity
from zerosum.kernel.question import Question
from zerosum.report.document import Bars, Block, Forest, ForestRow, Grid, Table, Text, all_known
from zerosum.report.number_format import format_number
from zerosum.report.slices import slices

Estimate = Mapping[str, Quantity]

_MOST_MAPS = 12  # largest number of differences that are drawn
_MOST_NETWORKS = 24  # largest number of networks of a heat map
_MOST_EDGES = 16  # edges that are drawn with intervals
_LEVEL = 0.05  # of tests and of the false discovery rate


def differences(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """What a study changes about its templates: slices of the differences, and the part of them above the noise."""
    found, kept = estimate["map_difference"], estimate["share_kept"].value
    axis = found.axes[0]
    size = np.linalg.norm(found.value, axis=1)
    if not np.any(size > 0):
        sentence = (
            "No difference from the templates is above the noise: the maps are the templates, and the release adds "
            "nothing to them. More people, a larger epsilon or public people would help."
        )
        yield Text((sentence,), "warning")
    elif space is not None and found.shape[1] == len(space.columns):
        yield from slices(found.value[:_MOST_MAPS], space, axis.labels, noun="Difference")
    yield Bars(
        "Share kept",
        "Energy of the difference of each map over that of the noisy one: 0 is the template, 1 all of the release.",
        tuple(f"component {label}" for label in axis.labels),
        all_known(kept),
        whole=1.0,
    )
    rows = tuple(
        (label, format_number(float(norm), 3), format_number(float(share), 2))
        for label, norm, share in zip(axis.labels, size, kept, strict=True)
    )
    heading = ("component", "norm of the difference (template: 1)", "share kept")
    yield Table("Differences from the templates in numbers", heading, rows, folded=True)


def connectivity(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Means by group, differences or coefficients as matrices, the strongest edges with intervals, and tests."""
    for name, title in (
        ("connectivity", "Connectivity"),
        ("connectivity_difference", "Difference"),
        ("connectivity_coefficients", "Coefficient"),
    ):
        if name not in estimate:
            continue
        rows, edges = estimate[name].axes
        networks = _networks(edges.labels)
        if len(networks) > _MOST_NETWORKS:
            continue
        for at, label in enumerate(rows.labels):
            # A single group of all people needs no name.
            of = "" if name == "connectivity" and len(rows.labels) == 1 else f" {_words(name, label)}"
            about = "Fisher's z of each pair of networks: red is positive, blue negative."
            yield Grid(f"{title}{of}", about, networks, networks, _square(estimate[name].value[at], len(networks)))
    for name in ("connectivity_difference", "connectivity_coefficients"):
        if name in estimate:
            yield from _edges(estimate, name)


def _words(name: str, label: str) -> str:
    """What a row is about: "of patients from controls", or "of age"."""
    if name != "connectivity_difference":
        return f"of {label}"
    later, _, first = label.partition(" - ")
    return f"of {later} from {first}"


def _networks(edges: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the networks from those of the edges, in their order."""
    count = round((1 + np.sqrt(1 + 8 * len(edges))) / 2)
    first = edges[0].partition(" - ")[0]
    # The first edges are those of the first network with all others.
    return (first, *(edge.removeprefix(f"{first} - ") for edge in edges[: count - 1]))


def _square(values: Floats, count: int) -> tuple[tuple[float | None, ...], ...]:
    square = np.full((count, count), np.nan)
    square[np.triu_indices(count, 1)] = values
    square = np.where(np.isnan(square), square.T, square)
    return tuple(all_known(row) for row in square)


def _edges(estimate: Estimate, name: str) -> Iterator[Block]:
    """The strongest edges with intervals, and the tests in words."""
    found, tests = estimate[name], estimate["global_test"].value
    for at, label in enumerate(found.axes[0].labels):
        statistic, free, p = tests[at]
        clear = int(np.sum(estimate["edge_q_value"].value[at] < _LEVEL))
        words = _words(name, label)
        verdict = "some edge differs from 0" if p < _LEVEL else "no difference is shown in all edges together"
        single = f"{clear} edges have a false discovery rate below {_LEVEL:g}"
        numbers = f"chi-squared {statistic:.4g}, {free:.4g} df, p = {p:.2g}"
        sentence = f"{name.removeprefix('connectivity_').capitalize()} {words}: {verdict} ({numbers}); {single}."
        yield Text((sentence,))
        order = np.argsort(estimate["edge_p_value"].value[at], kind="stable")[:_MOST_EDGES]
        pooled, ends = (estimate[f"{name}_{kind}"].value[at] for kind in ("interval", "population_interval"))
        rows = tuple(
            ForestRow(
                found.axes[1].labels[e],
                float(found.value[at, e]),
                float(pooled[e, 0]),
                float(pooled[e, 1]),
                float(ends[e, 0]),
                float(ends[e, 1]),
            )
            for e in order
        )
        title = "Edges" if len(found.axes[0].labels) == 1 else f"Edges {words}"
        about = (
            "Edges with the smallest p values, with 95 % intervals: bars for these people, lines for the population."
        )
        yield Forest(title, about, rows, "Fisher's z")
        table = tuple(
            (
                found.axes[1].labels[e],
                format_number(float(found.value[at, e]), 3),
                format_number(float(np.asarray(found.std)[at, e]) * NORMAL_95, 2),
                format_number(float(estimate["edge_p_value"].value[at, e]), 2),
                format_number(float(estimate["edge_q_value"].value[at, e]), 2),
            )
            for e in order
        )
        heading = ("edge", "Fisher's z", "95 % of the noise", "p", "q")
        yield Table(f"{title} in numbers", heading, table, folded=True)
