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
def test_a_page_keeps_nobody_out(page: Path, site: Path, driver: Any) -> None:
    driver.get((site / page.with_suffix(".html")).as_uri())
    view = BOTH[PAGES.index(page) % 2]
    without = ["color-contrast"] if page.stem in LONG else []
    assert grave(faults(driver, [view], without)) == []


def test_code_that_scrolls_is_within_reach_of_the_keyboard(site: Path, driver: Any) -> None:
    """On a telephone too, where the theme's script would take it out of reach."""
    driver.get((site / "analyst.html").as_uri())
    look(driver, 390, dark=False)
    wide = "[...document.querySelectorAll('pre > code')].filter((each) => each.scrollWidth > each.clientWidth)"
    assert driver.execute_script(f"return {wide}.length") > 0
    assert driver.execute_script(f"return {wide}.every((each) => each.tabIndex === 0)")
    driver.execute_script(f"{wide}[0].removeAttribute('tabindex')")
    assert driver.execute_async_script(f"const done = arguments[0]; setTimeout(() => done({wide}[0].tabIndex), 0)") == 0
