"""The version of the source, as reports and the changelog have it."""

from __future__ import annotations

import re
from pathlib import Path

import zerosum
from zerosum.report.record import versions
from zerosum.version import VERSION


def test_version_in_reports_is_source_version() -> None:
    assert versions()["zerosum"] == VERSION


def test_changelog_has_heading_for_version() -> None:
    """A development version belongs to Unreleased and comes after every release; a release has a heading of its own."""
    changelog = (Path(zerosum.__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    release, dev = re.fullmatch(r"(\d+\.\d+\.\d+)(\.dev\d+)?", VERSION).groups()  # type: ignore[union-attr]
    headings = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    if dev:
        numbers = [tuple(map(int, heading.split("."))) for heading in headings if heading != "Unreleased"]
        assert headings[0] == "Unreleased"
        assert tuple(map(int, release.split("."))) > max(numbers)
    else:
        assert release in headings
