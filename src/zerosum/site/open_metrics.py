"""Figures of a site in the OpenMetrics text format, for the textfile collector of node_exporter and similar monitors.

https://prometheus.io/docs/specs/om/open_metrics_spec/. Every figure has the label `site`. None is a fact about records:
counts of messages, plans, bytes and faults, the budget by the ledger, and the resources of the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# name, type, help, key of the record (`zerosum.site.metrics`)
_GAUGES = (
    ("up", "Whether the site serves.", "serving"),
    ("started_seconds", "Start of the process, seconds since 1970.", "started"),
    ("written_seconds", "Time of these figures, seconds since 1970.", "written"),
    ("plans_waiting", "Plans that wait for the steward.", "waiting"),
    ("memory_bytes", "Resident memory of the process.", "memory_bytes"),
    ("open_files", "Open files of the process.", "open_files"),
    ("threads", "Threads of the process.", "threads"),
    ("disk_free_bytes", "Free space on the disk of the state folder.", "disk_free_bytes"),
    ("epsilon_spent", "What a person has spent, at the delta of the cap.", "spent"),
    ("epsilon_cap", "Lifetime cap of a person.", "cap"),
)


def text(record: Mapping[str, Any]) -> str:
    """The figures of a record as text.

    Parameters
    ----------
    record : mapping
        As `zerosum.site.metrics` writes it.
    """
    label = f'site="{_escaped(str(record["site"]))}"'
    return "\n".join([*_lines(record, label), "# EOF"]) + "\n"


def _lines(record: Mapping[str, Any], label: str) -> Iterator[str]:
    """All lines but the last."""
    values = dict(record) | {"serving": int(bool(record.get("serving")))}
    for name, description, key in _GAUGES:
        # A figure that the system does not provide has no line: a 0 would be a false measurement.
        if values.get(key) is not None:
            yield from _head(name, "gauge", description)
            yield f"zerosum_site_{name}{{{label}}} {values[key]}"
    for name, description, key in (
        ("studies_open", "Studies in progress.", "open"),
        ("studies_queued", "Plans that wait for a place.", "queue"),
        ("faults", "Faults that the site found; zerosum site health prints them.", "faults"),
    ):
        yield from _head(name, "gauge", description)
        yield f"zerosum_site_{name}{{{label}}} {len(record.get(key, ()))}"
    # Counters by kind, such as "answered Consent" and "refused Malformed".
    counts: Mapping[str, int] = record.get("counts", {})
    for family in ("answered", "refused"):
        yield from _head(f"{family}", "counter", f"Messages {family}, by kind.")
        for kind, count in sorted(counts.items()):
            if kind.startswith(f"{family} "):
                yield f'zerosum_site_{family}_total{{{label},kind="{_escaped(kind.split(" ", 1)[1])}"}} {count}'
    for name in ("frames", "bytes_in", "bytes_out"):
        yield from _head(name, "counter", f"{name.replace('_', ' ').capitalize()} of all studies.")
        yield f"zerosum_site_{name}_total{{{label}}} {counts.get(name, 0)}"


def _head(name: str, kind: str, description: str) -> Iterator[str]:
    """The metadata of a family."""
    yield f"# TYPE zerosum_site_{name} {kind}"
    yield f"# HELP zerosum_site_{name} {description}"


def _escaped(value: str) -> str:
    """A label's value: backslashes, quotes and line breaks escaped, as the specification requires."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
