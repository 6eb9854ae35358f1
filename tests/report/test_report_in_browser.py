"""A report of every algorithm in a real browser: what axe-core finds, and whether it fits (`make test-browser`).

On a screen in light and on a telephone in dark, with everything that is folded opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gallery_studies import STUDIES
from helpers.browser import BOTH, chromium, complaints, faults, skip_unless_installed
from zerosum.report.build import write_report

skip_unless_installed()

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default::ResourceWarning")]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("name", STUDIES)
def test_report_in_browser_of_every_algorithm_has_no_fault(name: str, driver: Any, tmp_path: Path) -> None:
    result, space = STUDIES[name]()
    result.write(tmp_path / name)
    driver.get(write_report(tmp_path / name, space).absolute().as_uri())
    opened = driver.execute_script(
        "const all = [...document.querySelectorAll('details')]; all.forEach((each) => { each.open = true; });"
        "return all.length;"
    )
    assert opened >= 1
    assert faults(driver, BOTH) == []
    assert complaints(driver) == []


def test_report_in_browser_seeded_faults_are_found(driver: Any, tmp_path: Path) -> None:
    """Text that is hardly there, a table that only a mouse can scroll, a picture without a name."""
    rows = "<tr>" + "".join(f"<td>{'wide' * 9}</td>" for _ in range(20)) + "</tr>"
    page = (
        '<!DOCTYPE html><html lang="en"><head><meta name="viewport" content="width=device-width"><title>t</title>'
        '</head><body><main><h1>t</h1><p style="color:#ccc;background:#fff">pale</p><img src="data:,">'
        f'<div style="overflow-x:auto"><table>{rows}</table></div></main></body></html>'
    )
    (tmp_path / "page.html").write_text(page)
    driver.get((tmp_path / "page.html").as_uri())
    found = " ".join(faults(driver, BOTH))
    for rule in ("serious: color-contrast", "critical: image-alt", "serious: scrollable-region-focusable"):
        assert rule in found
