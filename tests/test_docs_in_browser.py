"""The pages of the docs, built, in a real browser: what axe-core finds serious (`make test-browser`).

Every page once, in turns on a screen in light and on a telephone in dark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import BOTH, chromium, faults, grave, look, skip_unless_installed

skip_unless_installed()

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default::ResourceWarning")]
ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb")
)
LONG = {
    "api",
    "audit",
    "commands",
    "entries",
    "guarantee",
}  # thousands of words in the colours of all others: contrast takes a minute there


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    return place


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_docs_page_in_browser_has_no_accessibility_fault(page: Path, site: Path, driver: Any) -> None:
    driver.get((site / page.with_suffix(".html")).as_uri())
    view = BOTH[PAGES.index(page) % 2]
    without = ["color-contrast"] if page.stem in LONG else []
    assert grave(faults(driver, [view], without)) == []


@pytest.mark.parametrize("width", [390, 1200])
def test_code_block_at_any_width_wraps_and_is_not_cut_off(site: Path, driver: Any, width: int) -> None:
    driver.get((site / "analyst.html").as_uri())
    look(driver, width, dark=False)
    blocks = "[...document.querySelectorAll('pre > code')]"
    assert driver.execute_script(f"return {blocks}.length") > 0
    assert driver.execute_script(f"return {blocks}.filter((each) => each.scrollWidth > each.clientWidth).length") == 0
